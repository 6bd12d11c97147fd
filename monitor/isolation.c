/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/isolation.h"

#include "monitor/action_line.h"
#include "monitor/event_line.h"
#include "monitor/isolate.h"
#include "monitor/isolate_plug.h"
#include "monitor/child.h"

#include "core/err.h"
#include "monitor/json_add.h"

#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VERDICTS_MAX 256 /* open ones that are looked at: the oldest */
#define LIST 16
#define GONE_WAIT_NS (60 * SL_MON_S) /* for a program that a kill does not end */

enum { SHADOW, ACT };
enum job { NO_JOB, FIND, TELL, PERFORM };

/* What came of an action, as metrics count it: each result, and these. */
enum { WITHDRAWN = SL_ISOLATE_RESULTS, IN_SHADOW, OUTCOMES };

/* What is asked for until it succeeds, and is no action. */
struct wish {
    bool is_wanted;
    unsigned failures;
    uint64_t due_ns;
};

struct sl_isolation {
    const struct sl_mon_config *config;
    const struct sl_isolate_plug *plug;
    struct sl_actions *actions;
    struct sl_isolate isolate;
    FILE *log;
    char node[SL_MON_NAME], boot_id[SL_MON_BOOT_ID];
    bool is_shadow;
    struct sl_mon_child job;
    enum job job_kind;
    uint64_t performing;   /* the action's number */
    uint64_t gone_wait_ns; /* until then the last job's programs may be there; 0: they are not */
    struct wish find, tell;
    uint64_t told_hash;
    uint64_t last_id;      /* of the latest action */
    bool is_up;            /* the last attempt got an answer */
    char why[SL_MON_TEXT]; /* it did not */
    uint64_t counts[SL_ISOLATE_KINDS][OUTCOMES];
    uint64_t killed; /* jobs that were, as they gave no answer in time */
    struct sl_isolate_order order;
    struct sl_mon_verdict verdicts[VERDICTS_MAX];
    unsigned verdict_count;
};

static const struct sl_isolate_plug *const plugs[] = {NULL, &sl_isolate_exec, &sl_isolate_slurm,
                                                      &sl_isolate_kube};

static const char *outcome_name(unsigned outcome)
{
    if (outcome == WITHDRAWN)
        return "withdrawn";
    return outcome == IN_SHADOW ? "shadow"
                                : sl_isolate_result_name((enum sl_isolate_result)outcome);
}

/* ---- between the rules and the store ---- */

static void describe_verdict(const struct sl_isolation *isolation, uint64_t id,
                             struct sl_mon_action *out)
{
    const struct sl_mon_verdict *verdict = NULL;

    for (unsigned i = 0; i < isolation->verdict_count; i++)
        if (isolation->verdicts[i].id == id)
            verdict = &isolation->verdicts[i];
    snprintf(out->boot_id, sizeof(out->boot_id), "%s",
             verdict != NULL ? verdict->boot_id : isolation->boot_id);
    if (verdict == NULL) {
        snprintf(out->text, sizeof(out->text), "%s",
                 "all verdicts that took it out have been closed for long enough");
        return;
    }
    snprintf(out->subject_kind, sizeof(out->subject_kind), "%s", verdict->kind);
    snprintf(out->subject, sizeof(out->subject), "%s", verdict->subject);
    snprintf(out->check, sizeof(out->check), "%s", verdict->check);
    snprintf(out->condition, sizeof(out->condition), "%s", verdict->condition);
    snprintf(out->text, sizeof(out->text), "%s", verdict->text);
}

static int store_new(struct sl_isolation *isolation, struct sl_isolate_action *action,
                     uint64_t wall_ns)
{
    struct sl_mon_action row = {
        .verdict = action->verdict, .is_shadow = isolation->is_shadow, .wanted_ns = wall_ns};
    int err;

    describe_verdict(isolation, action->verdict, &row);
    snprintf(row.kind, sizeof(row.kind), "%s", sl_isolate_kind_name(action->kind));
    snprintf(row.plug, sizeof(row.plug), "%s", isolation->plug->name);
    snprintf(row.node, sizeof(row.node), "%s", isolation->node);
    snprintf(row.state, sizeof(row.state), "%s", sl_isolate_state_name(action->state));
    snprintf(row.key, sizeof(row.key), "%s/%s/%" PRIu64 "/%s%s%s", row.node, row.boot_id,
             row.verdict, row.kind, isolation->is_shadow ? "/shadow" : "",
             isolation->is_shadow ? isolation->plug->name : "");
    err = sl_actions_put(isolation->actions, &row, &row.id);
    if (err != 0)
        return err;
    action->id = row.id;
    action->is_stored = true;
    if (row.id > isolation->last_id)
        isolation->last_id = row.id;
    sl_mon_action_line(&row, "wanted", wall_ns, isolation->log);
    return 0;
}

/* The same again is told after 2, 4, 8, ... attempts: a controller that is away for a day fills no
 * journal. */
static bool is_news(const struct sl_mon_action *before, const struct sl_mon_action *now)
{
    return strcmp(before->outcome, now->outcome) != 0 || strcmp(before->state, now->state) != 0 ||
           (now->attempts > 1 && (now->attempts & (now->attempts - 1)) == 0);
}

/* outcome: NULL: what the store has. result: as the line has it; NULL: none. */
static int store_again(struct sl_isolation *isolation, struct sl_isolate_action *action,
                       const char *outcome, const char *result, uint64_t wall_ns)
{
    struct sl_mon_action row, before;
    int err = sl_actions_get(isolation->actions, action->id, &row);

    if (err != 0)
        return err;
    before = row;
    snprintf(row.state, sizeof(row.state), "%s", sl_isolate_state_name(action->state));
    row.attempts = action->attempts;
    if (action->is_running)
        row.tried_ns = wall_ns;
    if (action->state != SL_ISOLATE_WANTED && row.ended_ns == 0)
        row.ended_ns = wall_ns;
    if (outcome != NULL)
        snprintf(row.outcome, sizeof(row.outcome), "%s", outcome);
    err = sl_actions_update(isolation->actions, &row);
    action->is_stored = err == 0;
    if (result != NULL && is_news(&before, &row))
        sl_mon_action_line(&row, result, wall_ns, isolation->log);
    return err;
}

/* What the rules want anew, and what they have withdrawn. */
static int store_changes(struct sl_isolation *isolation, uint64_t wall_ns)
{
    int err = 0;

    for (unsigned i = 0; i < isolation->isolate.count; i++) {
        struct sl_isolate_action *action = &isolation->isolate.actions[i];
        int one = 0;

        if (action->is_stored)
            continue;
        if (action->id == 0 && action->state == SL_ISOLATE_WANTED) {
            one = store_new(isolation, action, wall_ns);
        } else if (action->id == 0) {
            action->is_stored = true; /* over before anybody heard of it */
        } else if (action->state == SL_ISOLATE_WITHDRAWN) {
            one = store_again(isolation, action, "it is not wanted any more", "withdrawn", wall_ns);
            if (one == 0)
                isolation->counts[action->kind][WITHDRAWN]++;
        } else {
            one = store_again(isolation, action, NULL, NULL, wall_ns);
        }
        err = err == 0 ? one : err;
    }
    return err;
}

static bool read_state(const char *name, enum sl_isolate_state *out)
{
    for (unsigned i = 0; i < SL_ISOLATE_STATES; i++)
        if (strcmp(name, sl_isolate_state_name((enum sl_isolate_state)i)) == 0) {
            *out = (enum sl_isolate_state)i;
            return true;
        }
    return false;
}

static void restore_row(struct sl_isolation *isolation, struct sl_mon_action *row)
{
    struct sl_isolate_action action = {.id = row->id, .verdict = row->verdict};
    bool is_other = strcmp(row->plug, isolation->plug->name) != 0 ||
                    strcmp(row->node, isolation->node) != 0 ||
                    row->is_shadow != isolation->is_shadow;

    action.kind = strcmp(row->kind, sl_isolate_kind_name(SL_ISOLATE_OUT)) == 0 ? SL_ISOLATE_OUT
                                                                               : SL_ISOLATE_BACK;
    action.attempts = row->attempts;
    if (!read_state(row->state, &action.state))
        return;
    if (!is_other) {
        sl_isolate_restore(&isolation->isolate, &action, row->ended_ns);
        return;
    }
    if (action.state != SL_ISOLATE_WANTED)
        return;
    snprintf(row->state, sizeof(row->state), "%s", sl_isolate_state_name(SL_ISOLATE_WITHDRAWN));
    snprintf(row->outcome, sizeof(row->outcome), "%s",
             "the configuration names another plug, node or mode");
    (void)sl_actions_update(isolation->actions, row);
    sl_mon_action_line(row, "withdrawn", row->wanted_ns, isolation->log);
}

static int restore(struct sl_isolation *isolation)
{
    struct sl_mon_action *rows = calloc(LIST, sizeof(rows[0]));
    uint64_t from = 0;
    int count = 1;

    if (rows == NULL)
        return sl_fail(-ENOMEM, "no memory for actions");
    while (count > 0) {
        count = sl_actions_list(isolation->actions, from, rows, LIST);
        for (int i = 0; i < count; i++) {
            restore_row(isolation, &rows[i]);
            isolation->last_id = rows[i].id;
            from = rows[i].id + 1;
        }
    }
    free(rows);
    return count;
}

/* ---- its child ---- */

static void work(const void *arg, void *answer)
{
    const struct sl_isolation *isolation = arg;
    struct sl_isolate_answer *out = answer;

    switch (isolation->job_kind) {
    case FIND: isolation->plug->find(&isolation->order, out); break;
    case TELL: isolation->plug->tell(&isolation->order, out); break;
    default: isolation->plug->act(&isolation->order, out);
    }
}

static int start(struct sl_isolation *isolation, enum job kind, const struct sl_mon_time *now)
{
    uint64_t limit_ns = (uint64_t)isolation->config->isolate_timeout_ms * 1000000;
    int err;

    isolation->order.deadline_ns = sl_mon_child_now() + limit_ns;
    isolation->order.wall_ns = now->wall_ns;
    isolation->job_kind = kind;
    _Static_assert(sizeof(struct sl_isolate_answer) <= SL_MON_CHILD_ANSWER, "it goes back whole");
    err = sl_mon_child_start(&isolation->job, work, isolation, sizeof(struct sl_isolate_answer),
                             now->mono_ns + limit_ns);
    if (err != 0)
        isolation->job_kind = NO_JOB;
    return err;
}

static void wish_ended(struct wish *wish, const struct sl_isolate_answer *answer, uint64_t now_ns)
{
    uint64_t wait_ns;

    if (answer->result == SL_ISOLATE_IS_DONE) {
        wish->failures = 0; /* and it may be wanted again already */
        return;
    }
    wish->is_wanted = true;
    wait_ns = SL_MON_S << (wish->failures < 6 ? wish->failures : 6);
    wish->failures++;
    wish->due_ns = now_ns + (answer->retry_ns > wait_ns ? answer->retry_ns : wait_ns);
}

static void performed(struct sl_isolation *isolation, const struct sl_isolate_answer *answer,
                      const struct sl_mon_time *now)
{
    const struct sl_isolate_time at = {.mono_ns = now->mono_ns, .wall_ns = now->wall_ns};
    struct sl_isolate_action *action = sl_isolate_find(&isolation->isolate, isolation->performing);
    enum sl_isolate_result result = (enum sl_isolate_result)answer->result;

    isolation->performing = 0;
    if (action == NULL)
        return;
    sl_isolate_ended(&isolation->isolate, action, result, answer->retry_ns, &at);
    isolation->counts[action->kind][result]++;
    (void)store_again(isolation, action, answer->why, sl_isolate_result_name(result), now->wall_ns);
}

static void answered(struct sl_isolation *isolation, const struct sl_isolate_answer *answer,
                     const struct sl_mon_time *now)
{
    enum job kind = isolation->job_kind;

    isolation->job_kind = NO_JOB;
    isolation->is_up =
        answer->result != SL_ISOLATE_FAILED && answer->result != SL_ISOLATE_TIMED_OUT;
    snprintf(isolation->why, sizeof(isolation->why), "%s", isolation->is_up ? "" : answer->why);
    switch (kind) {
    case FIND:
        wish_ended(&isolation->find, answer, now->mono_ns);
        if (isolation->is_up && answer->is_out && !isolation->isolate.is_out)
            sl_isolate_adopt(&isolation->isolate, strtoull(answer->mark, NULL, 10));
        return;
    case TELL: wish_ended(&isolation->tell, answer, now->mono_ns); return;
    default: performed(isolation, answer, now);
    }
}

static void job_look(struct sl_isolation *isolation, const struct sl_mon_time *now)
{
    struct sl_isolate_answer answer = {.result = SL_ISOLATE_FAILED};
    int got;

    if (isolation->job_kind == NO_JOB)
        return;
    got = sl_mon_child_poll(&isolation->job, now->mono_ns, &answer, sizeof(answer));
    if (got == 0)
        return;
    if (got < 0) {
        sl_isolate_failed(got, &answer);
        isolation->killed += got == -ETIMEDOUT;
    }
    if (answer.result < 0 || answer.result >= SL_ISOLATE_RESULTS)
        answer.result = SL_ISOLATE_FAILED;
    isolation->gone_wait_ns = now->mono_ns + GONE_WAIT_NS;
    answered(isolation, &answer, now);
}

/* One job at a time, and none while a program of the last one is still there. */
static bool is_free(struct sl_isolation *isolation, uint64_t now_ns)
{
    if (isolation->job_kind != NO_JOB)
        return false;
    if (sl_mon_child_is_gone(&isolation->job))
        isolation->gone_wait_ns = 0;
    return isolation->gone_wait_ns == 0 || now_ns >= isolation->gone_wait_ns;
}

/* ---- classes as conditions ---- */

static struct sl_isolate_told *told_of(struct sl_isolate_order *order, const char *condition)
{
    struct sl_isolate_told *told;

    for (unsigned i = 0; i < order->told_count; i++)
        if (strcmp(order->told[i].condition, condition) == 0)
            return &order->told[i];
    if (order->told_count == SL_ISOLATE_TOLD)
        return NULL;
    told = &order->told[order->told_count++];
    *told = (struct sl_isolate_told){.is_bad = false};
    snprintf(told->condition, sizeof(told->condition), "%s", condition);
    return told;
}

/* Every class that there is; of one with several verdicts the oldest is told. */
static void told_fill(struct sl_isolation *isolation)
{
    struct sl_isolate_order *order = &isolation->order;

    order->told_count = 0;
    for (unsigned i = 0; i < SL_MON_CHECK_COUNT; i++)
        (void)told_of(order, sl_mon_checks[i].condition);
    for (unsigned i = 0; i < isolation->verdict_count; i++) {
        const struct sl_mon_verdict *verdict = &isolation->verdicts[i];
        struct sl_isolate_told *told = told_of(order, verdict->condition);

        if (told == NULL || told->is_bad)
            continue;
        told->is_bad = true;
        sl_isolate_mark(verdict->id, verdict->boot_id, told->mark, sizeof(told->mark));
        snprintf(told->text, sizeof(told->text), "%s: %s", verdict->subject, verdict->text);
    }
}

/* Of what would be told: one that changes asks for it to be told. */
static uint64_t told_hash(const struct sl_isolation *isolation)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (unsigned i = 0; i < isolation->verdict_count; i++)
        hash = (hash ^ isolation->verdicts[i].id) * UINT64_C(0x100000001b3);
    return hash;
}

static void see_told(struct sl_isolation *isolation, uint64_t now_ns)
{
    uint64_t hash = told_hash(isolation);

    if (isolation->plug->tell == NULL || isolation->is_shadow || hash == isolation->told_hash)
        return;
    isolation->told_hash = hash;
    isolation->tell = (struct wish){.is_wanted = true, .due_ns = now_ns};
}

/* ---- what is to be done now ---- */

static void refuse(struct sl_isolation *isolation, struct sl_isolate_action *action,
                   const struct sl_isolate_time *at)
{
    char why[SL_MON_TEXT];

    snprintf(why, sizeof(why), "refused: this node went out %u times within %lld s already",
             isolation->isolate.rules.times, (long long)isolation->config->isolate_window_s);
    sl_isolate_ended(&isolation->isolate, action, SL_ISOLATE_IS_REFUSED, 0, at);
    isolation->counts[action->kind][SL_ISOLATE_IS_REFUSED]++;
    (void)store_again(isolation, action, why, "refused", at->wall_ns);
}

static void in_shadow(struct sl_isolation *isolation, struct sl_isolate_action *action,
                      const struct sl_isolate_time *at)
{
    sl_isolate_begun(action);
    sl_isolate_ended(&isolation->isolate, action, SL_ISOLATE_IS_DONE, 0, at);
    isolation->counts[action->kind][IN_SHADOW]++;
    (void)store_again(isolation, action, "shadow: it would be performed now", "shadow",
                      at->wall_ns);
}

static void perform(struct sl_isolation *isolation, struct sl_isolate_action *action,
                    const struct sl_mon_time *now)
{
    struct sl_isolate_order *order = &isolation->order;

    sl_isolate_begun(action);
    /* That it may have happened is on the disk first. */
    if (store_again(isolation, action, NULL, NULL, now->wall_ns) != 0 ||
        sl_actions_get(isolation->actions, action->id, &order->action) != 0) {
        action->attempts--;
        action->is_running = false;
        return;
    }
    order->kind = action->kind;
    sl_isolate_mark(action->verdict, order->action.boot_id, order->mark, sizeof(order->mark));
    isolation->performing = action->id;
    if (start(isolation, PERFORM, now) != 0) {
        struct sl_isolate_answer answer = {.result = SL_ISOLATE_FAILED};

        sl_isolate_failed(-EIO, &answer);
        performed(isolation, &answer, now);
    }
}

static void start_next(struct sl_isolation *isolation, const struct sl_mon_time *now)
{
    const struct sl_isolate_time at = {.mono_ns = now->mono_ns, .wall_ns = now->wall_ns};
    struct sl_isolate_action *action;

    if (!is_free(isolation, now->mono_ns))
        return;
    if (isolation->find.is_wanted && isolation->find.due_ns <= now->mono_ns) {
        isolation->find.is_wanted = start(isolation, FIND, now) != 0;
        return;
    }
    action = sl_isolate_next(&isolation->isolate, now->mono_ns);
    if (action != NULL && isolation->is_shadow) {
        in_shadow(isolation, action, &at);
        return;
    }
    if (action != NULL && !sl_isolate_may(&isolation->isolate, action, now->wall_ns)) {
        refuse(isolation, action, &at);
        action = NULL;
    }
    if (action != NULL) {
        perform(isolation, action, now);
        return;
    }
    if (isolation->tell.is_wanted && isolation->tell.due_ns <= now->mono_ns) {
        told_fill(isolation);
        isolation->tell.is_wanted = start(isolation, TELL, now) != 0;
    }
}

static int read_verdicts(struct sl_isolation *isolation, struct sl_mon_store *store)
{
    int count = sl_mon_store_verdicts(store, 0, true, isolation->verdicts, VERDICTS_MAX);

    if (count >= 0)
        isolation->verdict_count = (unsigned)count;
    return count < 0 ? count : 0;
}

static void see(struct sl_isolation *isolation, const struct sl_mon_time *now)
{
    const struct sl_isolate_time at = {.mono_ns = now->mono_ns, .wall_ns = now->wall_ns};
    struct sl_isolate_verdict open[VERDICTS_MAX];

    for (unsigned i = 0; i < isolation->verdict_count; i++) {
        const struct sl_mon_verdict *verdict = &isolation->verdicts[i];

        open[i] = (struct sl_isolate_verdict){.id = verdict->id,
                                              .is_fatal = verdict->is_fatal,
                                              .is_acked = verdict->acked_ns != 0,
                                              .condition = verdict->condition};
    }
    sl_isolate_see(&isolation->isolate, &at, open, isolation->verdict_count);
    see_told(isolation, now->mono_ns);
}

void sl_isolation_tick(struct sl_isolation *isolation, struct sl_mon_store *store,
                       const struct sl_mon_time *now)
{
    int err;

    if (isolation == NULL)
        return;
    job_look(isolation, now);
    err = read_verdicts(isolation, store);
    if (err == 0) {
        see(isolation, now);
        err = store_changes(isolation, now->wall_ns);
    }
    if (err != 0) { /* what is not stored is not performed */
        isolation->is_up = false;
        snprintf(isolation->why, sizeof(isolation->why), "%s", sluice_last_error());
    }
    start_next(isolation, now);
}

/* ---- its life ---- */

static void name_node(struct sl_isolation *isolation)
{
    const char *from_kube = getenv("NODE_NAME"); /* as the downward API is used to give it */
    const char *name = isolation->config->isolate_node;

    if (name[0] == '\0' && isolation->plug == &sl_isolate_kube && from_kube != NULL)
        name = from_kube;
    snprintf(isolation->node, sizeof(isolation->node), "%s", name);
    if (name[0] == '\0' && gethostname(isolation->node, sizeof(isolation->node) - 1) != 0)
        snprintf(isolation->node, sizeof(isolation->node), "unknown");
    if (isolation->plug == &sl_isolate_slurm && name[0] == '\0')
        isolation->node[strcspn(isolation->node, ".")] = '\0';
}

static void set_rules(struct sl_isolation *isolation)
{
    const struct sl_mon_config *config = isolation->config;
    const struct sl_isolate_rules rules = {
        .classes = config->isolate_classes,
        .hold_ns =
            config->isolate_hold_s < 0 ? UINT64_MAX : (uint64_t)config->isolate_hold_s * SL_MON_S,
        .window_ns = (uint64_t)config->isolate_window_s * SL_MON_S,
        .times = (unsigned)config->isolate_times,
        .share_percent = (unsigned)config->isolate_share_percent,
        .least_nodes = (unsigned)config->isolate_least_nodes};
    uint64_t seed = sl_mon_child_now() ^ (uint64_t)getpid() << 32;

    for (const char *at = isolation->node; *at != '\0'; at++)
        seed = seed * 31 + (unsigned char)*at;
    sl_isolate_init(&isolation->isolate, &rules, seed);
    isolation->order.rules = rules;
    isolation->order.config = config;
    memcpy(isolation->order.node, isolation->node, sizeof(isolation->order.node));
}

int sl_isolation_open(const struct sl_isolation_options *options, struct sl_isolation **out)
{
    const struct sl_mon_config *config = options->config;
    struct sl_isolation *isolation;
    int err;

    *out = NULL;
    sl_assert((size_t)config->isolate_plug < SL_ARRAY_LEN(plugs));
    if (plugs[config->isolate_plug] == NULL)
        return 0;
    err = plugs[config->isolate_plug]->check(config);
    if (err != 0)
        return err;
    isolation = calloc(1, sizeof(*isolation));
    if (isolation == NULL)
        return sl_fail(-ENOMEM, "no memory for isolation");
    isolation->config = config;
    isolation->plug = plugs[config->isolate_plug];
    isolation->is_shadow = config->isolate_mode == SHADOW;
    isolation->is_up = true;
    isolation->log = options->log;
    isolation->job = (struct sl_mon_child)SL_MON_CHILD_INIT;
    snprintf(isolation->boot_id, sizeof(isolation->boot_id), "%s", options->boot_id);
    name_node(isolation);
    set_rules(isolation);
    isolation->find.is_wanted = isolation->plug->find != NULL && !isolation->is_shadow;
    err = sl_actions_open(config->store_path, (uint64_t)config->store_bytes, &isolation->actions);
    if (err == 0)
        err = restore(isolation);
    if (err != 0) {
        sl_isolation_close(isolation);
        return err;
    }
    *out = isolation;
    return 0;
}

void sl_isolation_close(struct sl_isolation *isolation)
{
    if (isolation == NULL)
        return;
    sl_mon_child_kill(&isolation->job);
    sl_actions_close(isolation->actions);
    free(isolation);
}

/* ---- what others ask ---- */

static const char *plug_name(const struct sl_isolation *isolation)
{
    return isolation != NULL ? isolation->plug->name : "none";
}

static void gauge(const struct sl_isolation *isolation, enum sl_mon_format format, FILE *out,
                  const char *name, const char *help, uint64_t value)
{
    sl_mon_metrics_family(format, out, name, "gauge", "", help);
    sl_mon_metrics_open(out, name, "plug", plug_name(isolation));
    sl_mon_metrics_number(out, value);
}

void sl_isolation_metrics(const struct sl_isolation *isolation, enum sl_mon_format format,
                          FILE *out)
{
    const struct sl_isolation *is = isolation;

    sl_mon_metrics_family(format, out, "sluice_isolation_actions", "counter", "",
                          "Attempts to take this node out or bring it back, by what came of them.");
    for (unsigned kind = 0; kind < SL_ISOLATE_KINDS; kind++)
        for (unsigned i = 0; i < OUTCOMES; i++) {
            sl_mon_metrics_open(out, "sluice_isolation_actions_total", "plug", plug_name(is));
            sl_mon_metrics_label(out, "action", sl_isolate_kind_name((enum sl_isolate_kind)kind));
            sl_mon_metrics_label(out, "result", outcome_name(i));
            sl_mon_metrics_number(out, is != NULL ? is->counts[kind][i] : 0);
        }
    sl_mon_metrics_family(format, out, "sluice_isolation_killed", "counter", "",
                          "Attempts that were killed, as they hung.");
    sl_mon_metrics_open(out, "sluice_isolation_killed_total", "plug", plug_name(is));
    sl_mon_metrics_number(out, is != NULL ? is->killed : 0);
    gauge(is, format, out, "sluice_isolation_up",
          "0: the last attempt failed or hung. 1 also before there was one.",
          is == NULL || is->is_up);
    gauge(is, format, out, "sluice_isolation_wanted", "Verdicts for which this node is to be out.",
          is != NULL ? is->isolate.wanted : 0);
    gauge(is, format, out, "sluice_isolation_waiting", "Actions that are not done yet.",
          is != NULL ? sl_isolate_waiting(&is->isolate) : 0);
    gauge(is, format, out, "sluice_isolation_out",
          "1: this node is out, by this agent (in shadow mode: it would be).",
          is != NULL && is->isolate.is_out);
    gauge(is, format, out, "sluice_isolation_breaker_open",
          "1: too many nodes are out, or this one too often: what is wanted is not done.",
          is != NULL && sl_isolate_is_refused(&is->isolate));
    sl_mon_metrics_family(format, out, "sluice_isolation_mode", "gauge", "",
                          "1: this is the mode.");
    sl_mon_metrics_open(out, "sluice_isolation_mode", "mode", "shadow");
    sl_mon_metrics_number(out, is == NULL || is->is_shadow);
    sl_mon_metrics_open(out, "sluice_isolation_mode", "mode", "act");
    sl_mon_metrics_number(out, is != NULL && !is->is_shadow);
}

/* The latest, whatever became of them. */
static struct json_object *latest(const struct sl_isolation *isolation)
{
    uint64_t from = isolation->last_id >= LIST ? isolation->last_id - LIST + 1 : 0;
    struct sl_mon_action *rows = calloc(LIST, sizeof(rows[0]));
    struct json_object *list = json_object_new_array();
    int count = rows != NULL ? sl_actions_list(isolation->actions, from, rows, LIST) : 0;

    for (int i = 0; i < count; i++) {
        struct json_object *one = json_object_new_object();
        char time_text[48];

        sl_mon_time_text(rows[i].wanted_ns, time_text, sizeof(time_text));
        sl_json_add_text(one, "time", time_text);
        sl_mon_action_json(&rows[i], one);
        json_object_array_add(list, one);
    }
    free(rows);
    return list;
}

void sl_isolation_json(const struct sl_isolation *isolation, struct json_object *out)
{
    struct json_object *own = json_object_new_object();

    sl_json_add_text(own, "plug", plug_name(isolation));
    json_object_object_add(out, "isolation", own);
    if (isolation == NULL)
        return;
    sl_json_add_text(own, "mode", isolation->is_shadow ? "shadow" : "act");
    sl_json_add_text(own, "node", isolation->node);
    json_object_object_add(own, "up", json_object_new_boolean(isolation->is_up));
    sl_json_add_text(own, "why", isolation->why);
    json_object_object_add(own, "out", json_object_new_boolean(isolation->isolate.is_out));
    sl_json_add_number(own, "wanted", isolation->isolate.wanted);
    sl_json_add_number(own, "waiting", sl_isolate_waiting(&isolation->isolate));
    json_object_object_add(own, "breaker_open",
                           json_object_new_boolean(sl_isolate_is_refused(&isolation->isolate)));
    json_object_object_add(own, "actions", latest(isolation));
}
