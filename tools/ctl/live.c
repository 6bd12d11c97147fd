/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluicectl diagnose --live: looks at a running job again and again, and says what is wrong as soon
 * as two looks in a row agree.
 *
 * Each look makes a job anew of what its sources say now; of RAS, which counts and knows no times,
 * also of what it said a stall threshold ago.
 */
#include "tools/ctl/live.h"
#include "core/clock.h"
#include "core/err.h"
#include "monitor/cases/judge.h"
#include "monitor/diagnosis/comm_lasting.h"
#include "monitor/diagnosis/job_late.h"
#include "monitor/diagnosis/verdict_text.h"
#include "monitor/read/formats.h"
#include "monitor/read/read.h"
#include "tools/ctl/command.h"
#include "tools/ctl/diagnose.h"

#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SECOND ((int64_t)1000000000)
#define STALL_NS (10 * SECOND) /* below Sluice's own deadline of 30 s, after which ranks give up */
#define LOOKS_MAX 64           /* of RAS that are kept */
#define STEP_LEAST_S 0.25
#define APART_NS ((int64_t)SL_PAGE_WINDOWS * (int64_t)SL_STATE_WINDOW_NS)
_Static_assert(APART_NS >= SC_WINDOW_NS, "sums of messages are of other ones by then, too");

struct live {
    struct sc_sources *sources;
    struct sc_kept kept;
    struct sl_comm_lasting lasting;
    const char *job_name;
    int64_t stall_ns, every_ns, wait_ns, for_ns;
    bool json, follow;
    bool was_seen;    /* a process of the job was */
    unsigned answers; /* sources that answered in this look */
    unsigned late;    /* and those that still may */
    unsigned left_out, unreadable;
    bool is_strange;   /* it was said that a source makes no sense */
    char *said, *last; /* verdicts: what was printed, and those of the last look */
};

/* ---- one look ---- */

/* Kept are those from the newest that is old enough on. */
static int keep_look(struct live *live, struct sc_source *source, struct sc_answer *answer)
{
    struct sc_answer *looks = source->looks;
    unsigned drop = 0;

    if (looks == NULL)
        looks = source->looks = calloc(LOOKS_MAX, sizeof(*looks));
    if (looks == NULL)
        return sl_fail(-ENOMEM, "no memory for looks at %s", source->word);
    while (drop + 1 < source->look_count &&
           (looks[drop + 1].at_ns <= answer->at_ns - live->stall_ns ||
            source->look_count - drop >= LOOKS_MAX))
        drop++;
    for (unsigned i = 0; i < drop; i++)
        free(looks[i].bytes);
    memmove(looks, looks + drop, (source->look_count - drop) * sizeof(*looks));
    source->look_count -= drop;
    /* Where the threshold is long, looks are as far apart as the room for them wants. */
    if (source->look_count >= 2 &&
        looks[source->look_count - 1].at_ns - looks[source->look_count - 2].at_ns <
            live->stall_ns / (LOOKS_MAX / 2)) {
        free(looks[source->look_count - 1].bytes);
        source->look_count--;
    }
    looks[source->look_count++] = *answer;
    answer->bytes = NULL;
    return 0;
}

/* What it said last stands while it is late. */
static int take_ras(struct live *live, struct sc_source *source, struct sc_answer *answer,
                    struct sl_job *job)
{
    const struct sc_answer *first, *last;
    int err = answer->is_late ? 0 : keep_look(live, source, answer);

    if (err != 0 || source->look_count == 0)
        return err;
    first = &source->looks[0];
    last = &source->looks[source->look_count - 1];
    if (last->at_ns - first->at_ns < live->stall_ns)
        return 0;
    err = sl_read_bytes(job, source->word, first->bytes, first->len);
    return err != 0 ? err : sl_read_bytes(job, source->word, last->bytes, last->len);
}

/* Why a source does not answer is said once, until it answers again. */
static void say_silent(struct sc_source *source, const char *why)
{
    if (!source->is_silent && why[0] != '\0')
        fprintf(stderr, "sluicectl: %s: %s\n", source->word, why);
    source->is_silent = why[0] != '\0';
}

static int look_at_source(struct live *live, unsigned i, struct sc_pages *pages, struct sl_job *job)
{
    struct sc_source *source = &live->sources->list[i];
    struct sc_answer answer;
    char why[256];
    int err;

    if (source->fetch == NULL) {
        live->answers++;
        return sc_pages_of_host(pages);
    }
    if (!sc_sources_take(live->sources, i, &answer, why)) {
        say_silent(source, why);
        if (!answer.is_late)
            return 0;
        live->late++;
    }
    err = source->is_ras ? take_ras(live, source, &answer, job)
                         : sc_pages_of_agent(source, &answer, pages, job);
    free(answer.bytes);
    if (err == -EBADMSG || err == -EPROTO) {
        say_silent(source, sluice_last_error());
        return 0;
    }
    if (!answer.is_late) {
        source->is_silent = false;
        live->answers++;
    }
    return err;
}

static int take_pages(struct live *live, struct sc_pages *pages, struct sl_job *job)
{
    unsigned left = sc_pages_choose(pages, live->job_name);
    int err = 0;

    if (left > live->left_out)
        fprintf(stderr,
                "sluicectl: %u processes of other jobs, or that ended before, are not looked at; "
                "--job NAME says whose are\n",
                left);
    live->left_out = left > live->left_out ? left : live->left_out;
    if (pages->unreadable > live->unreadable)
        fprintf(stderr, "sluicectl: %u state pages cannot be read: run as their user or as root\n",
                pages->unreadable);
    live->unreadable = pages->unreadable;
    live->was_seen = live->was_seen || pages->count > 0;
    err = sc_kept_recall(&live->kept, pages);
    for (unsigned i = 0; i < pages->count && err == 0; i++)
        err = sl_page_take(job, &pages->list[i], sc_kept_before(&live->kept, &pages->list[i]));
    return err;
}

/* What RAS says is taken here: where it makes no sense, the rest is believed all the same. */
static int seal(struct live *live, struct sl_job *job)
{
    int err = sl_job_seal(job);

    if (err != -EBADMSG)
        return err;
    if (!live->is_strange)
        fprintf(stderr, "sluicectl: %s\n", sluice_last_error());
    live->is_strange = true;
    return sl_job_seal(job);
}

static int look(struct live *live, struct sl_job *job)
{
    struct sc_pages pages = {.list = NULL};
    int err = 0;

    live->answers = live->late = 0;
    sc_sources_ask(live->sources, live->wait_ns);
    for (unsigned i = 0; i < live->sources->count && err == 0; i++)
        err = look_at_source(live, i, &pages, job);
    if (err == 0)
        err = take_pages(live, &pages, job);
    if (err == 0)
        err = seal(live, job);
    if (err != 0) {
        sc_pages_free(&pages);
        return err;
    }
    return sc_kept_add(&live->kept, &pages);
}

/* ---- what it says ---- */

static int64_t wall_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * SECOND + now.tv_nsec;
}

static void add_notes(const struct sl_job *job, struct json_object *object)
{
    struct json_object *list = json_object_new_array();

    for (size_t i = 0; sl_job_note_at(job, i) != NULL; i++)
        json_object_array_add(list, json_object_new_string(sl_job_note_at(job, i)));
    json_object_object_add(object, "notes", list);
}

static void print(const struct live *live, const struct sl_job *job,
                  const struct sl_verdicts *verdicts)
{
    struct json_object *object;
    uint32_t told = 0;

    for (uint32_t r = 0; r < job->rank_count; r++)
        told += job->ranks[r].is_told;
    if (!live->json) {
        printf("%u of %u sources tell of %u ranks, %u communicators and %zu operations\n",
               live->answers, live->sources->count, told, job->comm_count, job->op_count);
        sl_verdicts_print(job, verdicts, stdout);
        for (size_t i = 0; sl_job_note_at(job, i) != NULL; i++)
            printf("note: %s\n", sl_job_note_at(job, i));
        return;
    }
    object = json_object_new_object();
    json_object_object_add(object, "version", json_object_new_int(1));
    json_object_object_add(object, "sources", json_object_new_int64(live->sources->count));
    json_object_object_add(object, "answers", json_object_new_int64(live->answers));
    json_object_object_add(object, "ranks", json_object_new_int64(told));
    json_object_object_add(object, "verdicts", sl_verdicts_json(job, verdicts));
    add_notes(job, object);
    puts(json_object_to_json_string_ext(object,
                                        JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE));
    json_object_put(object);
}

/* Something is said when two looks in a row agree on it, and it was not said already. is_last: the
 * time is over, and what there is is said. */
static bool is_worth_saying(struct live *live, const char *names, bool is_last)
{
    bool is_same = live->last != NULL && strcmp(live->last, names) == 0;
    bool is_new = live->said == NULL ? names[0] != '\0' : strcmp(live->said, names) != 0;

    return (is_same && is_new) || (is_last && live->said == NULL);
}

/* The exit status, or -1: another look. */
static int judge(struct live *live, const struct sl_job *job, bool is_last)
{
    struct sl_judge_options options = SL_JUDGE_OPTIONS;
    struct sl_verdicts verdicts = {.list = NULL};
    char *names = NULL;
    int status = -1, err;

    options.hang = (struct sl_hang_options){.now_ns = wall_now(), .stall_ns = live->stall_ns};
    options.slow.step_least_s = STEP_LEAST_S;
    options.comm.window_s = (double)SC_WINDOW_NS / SECOND;
    options.fuse.scope = live->job_name;
    err = sl_comm_lasting_look(&live->lasting, job, (int64_t)sl_now(&sl_clock_monotonic), APART_NS,
                               &options.comm);
    if (err == 0)
        err = sl_judge(job, &options, &verdicts);
    if (err == 0)
        names = sl_verdicts_names(job, &verdicts);
    if (names == NULL) {
        sl_verdicts_free(&verdicts);
        sl_fail(-ENOMEM, "no memory for verdicts");
        return sc_complain();
    }
    if (is_worth_saying(live, names, is_last)) {
        print(live, job, &verdicts);
        fflush(stdout);
        free(live->said);
        live->said = strdup(names);
        if (!live->follow || is_last)
            status = names[0] != '\0' ? SC_UNHEALTHY : SC_GOOD;
    }
    free(live->last);
    live->last = names;
    sl_verdicts_free(&verdicts);
    if (is_last && status < 0)
        status = live->said != NULL && live->said[0] != '\0' ? SC_UNHEALTHY : SC_GOOD;
    return status;
}

static void pause_until(int64_t mono_ns)
{
    struct timespec until = {.tv_sec = mono_ns / SECOND, .tv_nsec = mono_ns % SECOND};

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        continue;
}

/* Nobody answers, and nobody has: there is nothing to wait for. */
static int say_nobody(const struct live *live)
{
    sl_fail(-ESRCH, live->answers == 0
                        ? "no source answers"
                        : "no process of Sluice is found: is it another host, another user "
                          "(--live http://HOST:PORT asks its agent), or SLUICE_STATE=off?");
    return sc_complain();
}

static bool has_ras(const struct live *live)
{
    for (unsigned i = 0; i < live->sources->count; i++)
        if (live->sources->list[i].is_ras)
            return true;
    return false;
}

static bool is_alone(const struct live *live)
{
    if (live->answers == 0)
        return live->late == 0;
    return !live->was_seen && !has_ras(live);
}

static int run(struct live *live)
{
    int64_t begin = (int64_t)sl_now(&sl_clock_monotonic), next = begin;
    int status = -1;

    while (status < 0) {
        struct sl_job *job = sl_job_new();
        int64_t now = (int64_t)sl_now(&sl_clock_monotonic);
        bool is_last = live->for_ns > 0 && now - begin >= live->for_ns;

        if (job == NULL)
            sl_fail(-ENOMEM, "no memory for a job");
        if (job == NULL || look(live, job) != 0)
            status = sc_complain();
        else if (!live->follow && is_alone(live))
            status = say_nobody(live);
        else
            status = judge(live, job, is_last);
        sl_job_free(job);
        now = (int64_t)sl_now(&sl_clock_monotonic);
        next = next + live->every_ns > now ? next + live->every_ns : now;
        if (status < 0)
            pause_until(next);
    }
    return status;
}

/* ---- the command ---- */

static int refuse(void)
{
    fputs("usage: sluicectl diagnose --live [-o json] [--stall SECONDS] [--every SECONDS]\n"
          "           [--wait SECONDS] [--for SECONDS] [--follow] [--job NAME] [SOURCE...]\n",
          stderr);
    return SC_ARGUMENTS;
}

/* False: it is none of these, or its value is no number of seconds. */
static bool take_seconds(int count, char **words, int *i, struct live *live)
{
    const struct {
        const char *name;
        int64_t *to;
    } options[] = {{"stall", &live->stall_ns},
                   {"every", &live->every_ns},
                   {"wait", &live->wait_ns},
                   {"for", &live->for_ns}};

    for (unsigned k = 0; k < SL_ARRAY_LEN(options); k++) {
        const char *value = sc_option(count, words, i, options[k].name);

        if (value != NULL)
            return sc_seconds(value, options[k].to) && *options[k].to > 0;
    }
    return false;
}

static bool take_words(int count, char **words, struct live *live, unsigned *kept)
{
    for (int i = 0; i < count; i++) {
        bool is_short = strcmp(words[i], "-o") == 0;
        const char *value;

        if (strcmp(words[i], "--live") == 0)
            continue;
        if (strcmp(words[i], "--follow") == 0) {
            live->follow = true;
        } else if (strcmp(words[i], "--json") == 0) {
            live->json = true;
        } else if ((value = sc_option(count, words, &i, "job")) != NULL) {
            live->job_name = value;
        } else if (is_short || (value = sc_option(count, words, &i, "output")) != NULL) {
            if (is_short)
                value = i + 1 < count ? words[++i] : "";
            if (strcmp(value, "json") != 0)
                return false;
            live->json = true;
        } else if (words[i][0] == '-') {
            if (!take_seconds(count, words, &i, live))
                return false;
        } else {
            words[(*kept)++] = words[i];
        }
    }
    return true;
}

int sc_live(int count, char **words)
{
    struct live live = {.stall_ns = STALL_NS, .every_ns = SECOND, .wait_ns = 2 * SECOND};
    unsigned kept = 0;
    int status;

    if (!take_words(count, words, &live, &kept))
        return refuse();
    status = sc_sources_open(words, kept, &live.sources);
    if (status != 0) {
        sc_complain();
        return status == -EINVAL ? SC_ARGUMENTS : SC_FAILED;
    }
    status = run(&live);
    sc_kept_free(&live.kept);
    sl_comm_lasting_free(&live.lasting);
    free(live.said);
    free(live.last);
    return status;
}
