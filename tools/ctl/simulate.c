/* SPDX-License-Identifier: Apache-2.0 */
/* sluicectl simulate: made-up jobs with known faults, and what the rules make of them. */
#include "tools/ctl/simulate.h"
#include "core/err.h"
#include "monitor/cases/judge.h"
#include "monitor/diagnosis/verdict_text.h"
#include "monitor/simulate/play.h"
#include "monitor/simulate/quiet.h"
#include "monitor/simulate/trial.h"
#include "tools/ctl/command.h"

#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char sc_simulate_usage[] =
    "       sluicectl simulate [-o json] [--ranks N] [--seed N] [--fault CLASS] [--strength X]\n"
    "                          [--trials N [--strengths X,X,...]] [--healthy NODE-DAYS]\n";

const char sc_simulate_help[] =
    "\n"
    "  simulate    make a job of N ranks up (64), with one fault of CLASS (of diagnose's "
    "verdicts;\n"
    "              none), X times slower (1.5), and judge it: sluicectl simulate --fault "
    "slow_rank\n"
    "  --trials N  that many jobs of the seeds from --seed on: how often the culprit was found;\n"
    "              with --fault all, of each class\n"
    "  --healthy NODE-DAYS  how often the test for slow ranks accuses a healthy one\n";

#define STRENGTHS_MOST 16
#define RANKS_MOST 65536

struct request {
    bool json;
    uint32_t ranks, trials;
    uint64_t seed;
    enum sl_verdict_class cls; /* SL_VERDICT_JOB_CLASSES: all of them */
    double strengths[STRENGTHS_MOST];
    unsigned strength_count;
    double node_days;
};

/* ---- words ---- */

static int refuse(const char *why)
{
    fprintf(stderr, "sluicectl: simulate: %s\nusage: %s", why,
            sc_simulate_usage + strlen("       "));
    return SC_ARGUMENTS;
}

static bool take_class(const char *word, enum sl_verdict_class *out)
{
    if (strcmp(word, "all") == 0) {
        *out = SL_VERDICT_JOB_CLASSES;
        return true;
    }
    for (unsigned cls = 0; cls < SL_VERDICT_JOB_CLASSES; cls++)
        if (strcmp(word, sl_verdict_class_name((enum sl_verdict_class)cls)) == 0) {
            *out = (enum sl_verdict_class)cls;
            return true;
        }
    return false;
}

static bool take_strengths(const char *word, struct request *out)
{
    char *end;

    out->strength_count = 0;
    for (;; word = end + 1) {
        double strength = strtod(word, &end);

        if (end == word || !(strength > 1 && strength <= 1000) ||
            out->strength_count == STRENGTHS_MOST)
            return false;
        out->strengths[out->strength_count++] = strength;
        if (*end == '\0')
            return true;
        if (*end != ',')
            return false;
    }
}

/* NULL, or what is wrong. */
static const char *take_words(int count, char **words, struct request *out)
{
    unsigned long long number;

    for (int i = 0; i < count; i++) {
        const char *value;

        if (strcmp(words[i], "--json") == 0) {
            out->json = true;
        } else if ((value = sc_option(count, words, &i, "ranks")) != NULL) {
            if (!sc_number(value, RANKS_MOST, &number) || number < 2)
                return "--ranks takes 2 to 65536";
            out->ranks = (uint32_t)number;
        } else if ((value = sc_option(count, words, &i, "seed")) != NULL) {
            if (!sc_number(value, UINT64_MAX / 2, &number))
                return "--seed takes a number";
            out->seed = number;
        } else if ((value = sc_option(count, words, &i, "trials")) != NULL) {
            if (!sc_number(value, 1000000, &number) || number == 0)
                return "--trials takes 1 to 1000000";
            out->trials = (uint32_t)number;
        } else if ((value = sc_option(count, words, &i, "healthy")) != NULL) {
            if (!sc_number(value, 100000000, &number) || number == 0)
                return "--healthy takes node-days, 1 to 100000000";
            out->node_days = (double)number;
        } else if ((value = sc_option(count, words, &i, "fault")) != NULL) {
            if (!take_class(value, &out->cls))
                return "--fault takes a class of verdicts (docs/diagnosis.md), or all";
        } else if ((value = sc_option(count, words, &i, "strengths")) != NULL ||
                   (value = sc_option(count, words, &i, "strength")) != NULL) {
            if (!take_strengths(value, out))
                return "--strength takes times above 1; --strengths up to 16 of them, with commas";
        } else if ((value = sc_option(count, words, &i, "output")) != NULL ||
                   strcmp(words[i], "-o") == 0) {
            value = value != NULL ? value : i + 1 < count ? words[++i] : "";
            if (strcmp(value, "json") != 0)
                return "-o takes json";
            out->json = true;
        } else {
            return "there is no such option";
        }
    }
    return NULL;
}

/* ---- the rules ---- */

static int judge(const struct sl_job *job, struct sl_verdicts *verdicts)
{
    static const struct sl_judge_options options = SL_JUDGE_OPTIONS;

    return sl_judge(job, &options, verdicts);
}

/* ---- one job ---- */

static struct json_object *text(const char *words)
{
    return json_object_new_string(words);
}

static void add(struct json_object *object, const char *key, struct json_object *value)
{
    json_object_object_add(object, key, value);
}

static void print(struct json_object *object)
{
    puts(json_object_to_json_string_ext(object,
                                        JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE));
    json_object_put(object);
}

/* Of a slow group, as ports and routes name it. */
static const char *const groups[SL_PLAY_GROUPS] = {[SL_PLAY_LEAF] = "leaf",
                                                   [SL_PLAY_RAIL] = "rail",
                                                   [SL_PLAY_PLANE] = "plane",
                                                   [SL_PLAY_SPINE] = "spine"};

static struct json_object *fault_json(const struct sl_play_fault *fault)
{
    struct json_object *object = json_object_new_object();

    add(object, "class", text(sl_verdict_class_name((enum sl_verdict_class)fault->cls)));
    add(object, fault->cls == SL_VERDICT_SLOW_GROUP ? groups[fault->group] : "rank",
        json_object_new_int64(fault->rank));
    if (fault->cls == SL_VERDICT_SLOW_LINK)
        add(object, "peer", json_object_new_int64(fault->peer));
    add(object, "step", json_object_new_int64(fault->step));
    if (fault->cls >= SL_VERDICT_SLOW_RANK)
        add(object, "strength", json_object_new_double(fault->strength));
    return object;
}

static void say_plan(const struct sl_play_plan *plan)
{
    const struct sl_play_fault *fault = &plan->fault;

    printf("%u ranks: tensor %u, stages %u, replicas %u, experts %u; %u micro-batches, %u steps; "
           "seed %llu\n",
           sl_play_ranks(plan), plan->tensor, plan->stages, plan->replicas, plan->experts,
           plan->batches, plan->steps, (unsigned long long)plan->seed);
    printf("noise %.1f %%, messages %.1f %%, longer sequences %.1f %%, a second kind of hosts "
           "+%.0f %%\n",
           plan->noise * 100, plan->jitter * 100, plan->sequences * 100, plan->second_kind * 100);
    if (fault->cls == SL_VERDICT_NOT_HUNG)
        puts("truth: healthy");
    else if (fault->cls == SL_VERDICT_SLOW_LINK)
        printf("truth: %s from rank %u to rank %u, %.2f times\n",
               sl_verdict_class_name(SL_VERDICT_SLOW_LINK), fault->rank, fault->peer,
               fault->strength);
    else if (fault->cls == SL_VERDICT_SLOW_GROUP)
        printf("truth: %s %s%u, %.2f times\n", sl_verdict_class_name(SL_VERDICT_SLOW_GROUP),
               groups[fault->group], fault->rank, fault->strength);
    else if (fault->cls >= SL_VERDICT_SLOW_RANK)
        printf("truth: %s %u, %.2f times from step %u on\n",
               sl_verdict_class_name((enum sl_verdict_class)fault->cls), fault->rank,
               fault->strength, fault->step);
    else
        printf("truth: %s, rank %u, step %u\n",
               sl_verdict_class_name((enum sl_verdict_class)fault->cls), fault->rank, fault->step);
}

static int show(const struct request *request, const struct sl_play_plan *plan)
{
    struct sl_verdicts verdicts = {.list = NULL};
    struct sl_job *job;
    struct json_object *object;
    int err = sl_play_job(plan, &job);

    if (err != 0)
        return sc_complain();
    err = sl_job_seal(job);
    if (err == 0)
        err = judge(job, &verdicts);
    if (err == 0 && request->json) {
        object = json_object_new_object();
        add(object, "version", json_object_new_int(1));
        add(object, "ranks", json_object_new_int64(sl_play_ranks(plan)));
        add(object, "seed", json_object_new_int64((int64_t)plan->seed));
        add(object, "truth", fault_json(&plan->fault));
        add(object, "identifiable", json_object_new_boolean(sl_trial_identifiable(plan, job)));
        add(object, "verdicts", sl_verdicts_json(job, &verdicts));
        print(object);
    } else if (err == 0) {
        say_plan(plan);
        sl_verdicts_print(job, &verdicts, stdout);
    }
    sl_verdicts_free(&verdicts);
    sl_job_free(job);
    return err == 0 ? SC_GOOD : sc_complain();
}

static int simulate_one(const struct request *request)
{
    struct sl_play_plan plan;

    sl_play_draw(&plan, request->ranks, request->seed);
    if (request->cls != SL_VERDICT_NOT_HUNG &&
        !sl_play_draw_fault(&plan, request->cls, request->strengths[0])) {
        sl_fail(-1,
                "the job of seed %llu cannot have such a fault; another --seed, or more --ranks",
                (unsigned long long)request->seed);
        return sc_complain();
    }
    return show(request, &plan);
}

/* ---- many ---- */

static double percent(uint32_t part, uint32_t all)
{
    return all > 0 ? 100.0 * part / all : 0;
}

static void say_trials(const struct sl_trials *it)
{
    printf("%-14s %8.2f %6u %6u %8.2f %8.2f %7.2f %6u %6u %5u/%u/%u %8.3f\n",
           sl_verdict_class_name(it->cls), it->strength, it->count, it->identifiable,
           percent(it->found, it->identifiable), percent(it->in_set, it->count), it->set, it->wrong,
           it->silent, it->steps[0], it->steps[1], it->steps[2], it->judge_s_most);
    fflush(stdout);
}

static struct json_object *trials_json(const struct sl_trials *it)
{
    struct json_object *object = json_object_new_object(), *steps = json_object_new_array();

    add(object, "class", text(sl_verdict_class_name(it->cls)));
    add(object, "strength", json_object_new_double(it->strength));
    add(object, "jobs", json_object_new_int64(it->count));
    add(object, "identifiable", json_object_new_int64(it->identifiable));
    add(object, "found", json_object_new_int64(it->found));
    add(object, "in_set", json_object_new_int64(it->in_set));
    add(object, "set", json_object_new_double(it->set));
    add(object, "wrong", json_object_new_int64(it->wrong));
    add(object, "silent", json_object_new_int64(it->silent));
    for (unsigned i = 0; i < 3; i++)
        json_object_array_add(steps, json_object_new_int64(it->steps[i]));
    add(object, "steps", steps);
    add(object, "judge_seconds_most", json_object_new_double(it->judge_s_most));
    return object;
}

static int try_class(const struct request *request, enum sl_verdict_class cls,
                     struct json_object *list)
{
    unsigned count = cls >= SL_VERDICT_SLOW_RANK ? request->strength_count : 1;

    for (unsigned i = 0; i < count; i++) {
        struct sl_trials trials;
        double strength = cls >= SL_VERDICT_SLOW_RANK ? request->strengths[i] : 1;

        if (sl_trials_run(request->ranks, cls, strength, request->seed, request->trials, true,
                          judge, &trials) != 0)
            return sc_complain();
        if (list != NULL)
            json_object_array_add(list, trials_json(&trials));
        else
            say_trials(&trials);
    }
    return SC_GOOD;
}

static int simulate_many(const struct request *request)
{
    struct json_object *list = request->json ? json_object_new_array() : NULL, *object;
    int status = SC_GOOD;

    if (list == NULL)
        printf("%-14s %8s %6s %6s %8s %8s %7s %6s %6s %9s %8s\n", "class", "times", "jobs",
               "ident.", "found %", "in set %", "set", "wrong", "silent", "steps", "judged s");
    for (unsigned cls = 0; cls < SL_VERDICT_JOB_CLASSES && status == SC_GOOD; cls++)
        if (request->cls == SL_VERDICT_JOB_CLASSES || request->cls == cls)
            status = try_class(request, (enum sl_verdict_class)cls, list);
    if (list == NULL)
        return status;
    object = json_object_new_object();
    add(object, "version", json_object_new_int(1));
    add(object, "ranks", json_object_new_int64(request->ranks));
    add(object, "seed", json_object_new_int64((int64_t)request->seed));
    add(object, "trials", list);
    print(object);
    return status;
}

/* ---- health ---- */

static int simulate_health(const struct request *request)
{
    static const struct sl_slow_options options = SL_SLOW_OPTIONS;
    struct json_object *object;
    struct sl_quiet quiet;

    if (sl_quiet_run(request->seed, request->node_days, options.node_days, &quiet) != 0)
        return sc_complain();
    if (!request->json) {
        printf("%.0f node-days of healthy ranks in %llu windows: %llu accused; with 95 %% "
               "confidence at most %.2f in 10,000 node-days\n",
               quiet.node_days, (unsigned long long)quiet.windows, (unsigned long long)quiet.alarms,
               quiet.bound);
        return SC_GOOD;
    }
    object = json_object_new_object();
    add(object, "version", json_object_new_int(1));
    add(object, "node_days", json_object_new_double(quiet.node_days));
    add(object, "windows", json_object_new_int64((int64_t)quiet.windows));
    add(object, "alarms", json_object_new_int64((int64_t)quiet.alarms));
    add(object, "alarms_in_10000_node_days_at_most", json_object_new_double(quiet.bound));
    print(object);
    return SC_GOOD;
}

int sc_simulate(int count, char **words)
{
    struct request request = {.ranks = 64,
                              .seed = 1,
                              .cls = SL_VERDICT_NOT_HUNG,
                              .strengths = {1.5},
                              .strength_count = 1};
    const char *why = take_words(count, words, &request);

    if (why != NULL)
        return refuse(why);
    if (request.node_days > 0)
        return simulate_health(&request);
    if (request.trials > 0)
        return simulate_many(&request);
    if (request.cls == SL_VERDICT_JOB_CLASSES)
        return refuse("all faults need --trials");
    return simulate_one(&request);
}
