/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/isolate.h"

#include "core/err.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define S UINT64_C(1000000000)
#define FIRST_RETRY_NS S
#define LAST_RETRY_NS (60 * S)
#define REFUSED_NS (30 * S)     /* and up to twice that */
#define TOLD_RETRY_NS (600 * S) /* what the other side may ask for at most */
#define CONFLICTS 5

void sl_isolate_init(struct sl_isolate *isolate, const struct sl_isolate_rules *rules,
                     uint64_t seed)
{
    memset(isolate, 0, sizeof(*isolate));
    isolate->rules = *rules;
    if (isolate->rules.times > SL_ISOLATE_TIMES)
        isolate->rules.times = SL_ISOLATE_TIMES;
    sl_rng_init(&isolate->rng, seed);
}

/* "RankLost" is in "NICDegraded, RankLost". */
static bool is_listed(const char *list, const char *word)
{
    size_t len = strlen(word);

    while (*list != '\0') {
        list += strspn(list, ", ");
        size_t has = strcspn(list, ", ");

        if (has == len && len > 0 && strncmp(list, word, len) == 0)
            return true;
        list += has;
    }
    return false;
}

bool sl_isolate_is_asked_for(const struct sl_isolate_rules *rules,
                             const struct sl_isolate_verdict *verdict)
{
    return verdict->is_fatal || is_listed(rules->classes, verdict->condition);
}

/* ---- actions ---- */

static struct sl_isolate_action *find(struct sl_isolate *isolate, enum sl_isolate_kind kind,
                                      uint64_t verdict)
{
    for (unsigned i = 0; i < isolate->count; i++)
        if (isolate->actions[i].kind == kind && isolate->actions[i].verdict == verdict)
            return &isolate->actions[i];
    return NULL;
}

struct sl_isolate_action *sl_isolate_find(struct sl_isolate *isolate, uint64_t id)
{
    for (unsigned i = 0; i < isolate->count; i++)
        if (isolate->actions[i].id == id)
            return &isolate->actions[i];
    return NULL;
}

static struct sl_isolate_action *add(struct sl_isolate *isolate, enum sl_isolate_kind kind,
                                     uint64_t verdict, uint64_t now_ns)
{
    struct sl_isolate_action *action;

    if (isolate->count == SL_ISOLATE_ACTIONS) {
        isolate->left_out++;
        return NULL;
    }
    action = &isolate->actions[isolate->count++];
    *action = (struct sl_isolate_action){
        .verdict = verdict, .kind = kind, .is_open = true, .due_ns = now_ns};
    return action;
}

static void end(struct sl_isolate_action *action, enum sl_isolate_state state)
{
    action->state = state;
    action->is_stored = false;
}

static void is_out(struct sl_isolate *isolate, uint64_t verdict)
{
    isolate->is_out = true;
    if (verdict > isolate->out_verdict)
        isolate->out_verdict = verdict;
}

/* An attempt without an answer may have taken the node out: then it is ours to bring back. */
static void withdraw(struct sl_isolate *isolate, struct sl_isolate_action *action)
{
    if (action->state != SL_ISOLATE_WANTED || action->is_running)
        return;
    if (action->kind == SL_ISOLATE_OUT && action->may_have_acted)
        is_out(isolate, action->verdict);
    end(action, SL_ISOLATE_WITHDRAWN);
}

/* What is over, and would not be wanted again. */
static bool is_forgotten(const struct sl_isolate_action *action)
{
    return action->state != SL_ISOLATE_WANTED && action->is_stored &&
           (action->kind == SL_ISOLATE_BACK || !action->is_open);
}

static void sweep(struct sl_isolate *isolate)
{
    unsigned kept = 0;

    for (unsigned i = 0; i < isolate->count; i++)
        if (!is_forgotten(&isolate->actions[i]))
            isolate->actions[kept++] = isolate->actions[i];
    isolate->count = kept;
}

static void went_out(struct sl_isolate *isolate, uint64_t wall_ns)
{
    isolate->went_out[isolate->times++ % SL_ISOLATE_TIMES] = wall_ns;
}

void sl_isolate_restore(struct sl_isolate *isolate, const struct sl_isolate_action *action,
                        uint64_t ended_wall_ns)
{
    struct sl_isolate_action *own;

    if (action->kind == SL_ISOLATE_OUT && action->state == SL_ISOLATE_DONE) {
        if (!isolate->is_out)
            went_out(isolate, ended_wall_ns);
        is_out(isolate, action->verdict);
    }
    if (action->kind == SL_ISOLATE_OUT && action->state == SL_ISOLATE_WITHDRAWN &&
        action->attempts > 0)
        is_out(isolate, action->verdict);
    if (action->kind == SL_ISOLATE_BACK &&
        (action->state == SL_ISOLATE_DONE || action->state == SL_ISOLATE_LEFT_ALONE))
        isolate->is_out = false;
    if (action->kind == SL_ISOLATE_BACK && action->state != SL_ISOLATE_WANTED)
        return;
    /* Whether their verdicts are open is not known yet: the oldest that are over give way. */
    for (unsigned i = 0; isolate->count == SL_ISOLATE_ACTIONS && i < isolate->count; i++)
        if (isolate->actions[i].state != SL_ISOLATE_WANTED) {
            isolate->actions[i].is_open = false;
            sweep(isolate);
        }
    own = add(isolate, action->kind, action->verdict, 0);
    if (own == NULL)
        return;
    own->id = action->id;
    own->state = action->state;
    own->attempts = action->attempts;
    own->may_have_acted = action->attempts > 0;
    own->is_stored = true;
}

void sl_isolate_adopt(struct sl_isolate *isolate, uint64_t verdict)
{
    is_out(isolate, verdict);
}

/* ---- what is wanted ---- */

static void see_one(struct sl_isolate *isolate, const struct sl_isolate_time *now,
                    const struct sl_isolate_verdict *verdict)
{
    struct sl_isolate_action *action = find(isolate, SL_ISOLATE_OUT, verdict->id);

    if (verdict->is_acked) {
        if (action != NULL)
            withdraw(isolate, action);
        return;
    }
    isolate->wanted++;
    if (action == NULL)
        (void)add(isolate, SL_ISOLATE_OUT, verdict->id, now->mono_ns);
}

/* Which actions are of verdicts that are still open; the others make room. */
static void mark_open(struct sl_isolate *isolate, const struct sl_isolate_verdict *verdicts,
                      unsigned count)
{
    for (unsigned i = 0; i < isolate->count; i++)
        isolate->actions[i].is_open = false;
    for (unsigned i = 0; i < count; i++) {
        struct sl_isolate_action *action = find(isolate, SL_ISOLATE_OUT, verdicts[i].id);

        if (action != NULL && sl_isolate_is_asked_for(&isolate->rules, &verdicts[i]))
            action->is_open = true;
    }
    sweep(isolate);
}

static bool is_pending(const struct sl_isolate *isolate, enum sl_isolate_kind kind)
{
    for (unsigned i = 0; i < isolate->count; i++)
        if (isolate->actions[i].kind == kind && isolate->actions[i].state == SL_ISOLATE_WANTED)
            return true;
    return false;
}

static void see_calm(struct sl_isolate *isolate, uint64_t now_ns)
{
    if (!isolate->is_calm) {
        isolate->is_calm = true;
        isolate->calm_ns = now_ns;
    }
    if (!isolate->is_out || isolate->rules.hold_ns == UINT64_MAX ||
        now_ns - isolate->calm_ns < isolate->rules.hold_ns || is_pending(isolate, SL_ISOLATE_OUT) ||
        is_pending(isolate, SL_ISOLATE_BACK))
        return;
    (void)add(isolate, SL_ISOLATE_BACK, isolate->out_verdict, now_ns);
}

void sl_isolate_see(struct sl_isolate *isolate, const struct sl_isolate_time *now,
                    const struct sl_isolate_verdict *verdicts, unsigned count)
{
    bool any = false;

    mark_open(isolate, verdicts, count);
    isolate->wanted = 0;
    for (unsigned i = 0; i < count; i++) {
        if (!sl_isolate_is_asked_for(&isolate->rules, &verdicts[i]))
            continue;
        any = true;
        see_one(isolate, now, &verdicts[i]);
    }
    for (unsigned i = 0; i < isolate->count; i++) {
        struct sl_isolate_action *action = &isolate->actions[i];

        if (action->kind == SL_ISOLATE_OUT ? !action->is_open : any)
            withdraw(isolate, action);
    }
    if (any)
        isolate->is_calm = false;
    else
        see_calm(isolate, now->mono_ns);
}

struct sl_isolate_action *sl_isolate_next(struct sl_isolate *isolate, uint64_t mono_ns)
{
    struct sl_isolate_action *next = NULL;

    for (unsigned i = 0; i < isolate->count; i++) {
        struct sl_isolate_action *action = &isolate->actions[i];

        if (action->state != SL_ISOLATE_WANTED || action->id == 0)
            continue;
        if (action->is_running)
            return NULL; /* one after the other */
        if (action->due_ns <= mono_ns && (next == NULL || action->due_ns < next->due_ns))
            next = action;
    }
    return next;
}

bool sl_isolate_may(const struct sl_isolate *isolate, const struct sl_isolate_action *action,
                    uint64_t wall_ns)
{
    unsigned recent = 0;

    if (action->kind != SL_ISOLATE_OUT || isolate->is_out || action->may_have_acted)
        return true;
    for (unsigned i = 0; i < SL_ISOLATE_TIMES && i < isolate->times; i++)
        /* A clock that was set back counts against it. */
        if (isolate->went_out[i] > wall_ns ||
            wall_ns - isolate->went_out[i] < isolate->rules.window_ns)
            recent++;
    return recent < isolate->rules.times;
}

void sl_isolate_begun(struct sl_isolate_action *action)
{
    action->is_running = true;
    action->attempts++;
}

/* Between three and five quarters, so that many nodes do not come at once. */
static uint64_t about(struct sl_isolate *isolate, uint64_t ns)
{
    return ns - ns / 4 + sl_rng_u64(&isolate->rng) % (ns / 2);
}

static uint64_t retry(struct sl_isolate *isolate, const struct sl_isolate_action *action,
                      uint64_t told_ns)
{
    unsigned doublings = action->attempts > 0 ? action->attempts - 1 : 0;
    uint64_t ns = doublings > 5 ? LAST_RETRY_NS : FIRST_RETRY_NS << doublings;

    ns = about(isolate, ns);
    if (told_ns > TOLD_RETRY_NS)
        told_ns = TOLD_RETRY_NS;
    return told_ns > ns ? told_ns : ns;
}

static void succeeded(struct sl_isolate *isolate, struct sl_isolate_action *action,
                      uint64_t wall_ns)
{
    if (action->kind == SL_ISOLATE_OUT) {
        if (!isolate->is_out)
            went_out(isolate, wall_ns);
        is_out(isolate, action->verdict);
    } else {
        isolate->is_out = false;
    }
    end(action, SL_ISOLATE_DONE);
}

void sl_isolate_ended(struct sl_isolate *isolate, struct sl_isolate_action *action,
                      enum sl_isolate_result result, uint64_t retry_ns,
                      const struct sl_isolate_time *now)
{
    action->is_running = false;
    action->result = result;
    switch (result) {
    case SL_ISOLATE_IS_DONE: succeeded(isolate, action, now->wall_ns); return;
    case SL_ISOLATE_IS_LEFT_ALONE:
        if (action->kind == SL_ISOLATE_BACK)
            isolate->is_out = false; /* whoever changed it has it now */
        end(action, SL_ISOLATE_LEFT_ALONE);
        return;
    case SL_ISOLATE_IS_REFUSED:
        action->may_have_acted = false; /* the node was looked at, or nothing was ever tried */
        action->due_ns = now->mono_ns + REFUSED_NS + sl_rng_u64(&isolate->rng) % REFUSED_NS;
        return;
    default:
        action->may_have_acted = true;
        action->due_ns = now->mono_ns + retry(isolate, action, retry_ns);
    }
}

bool sl_isolate_is_refused(const struct sl_isolate *isolate)
{
    for (unsigned i = 0; i < isolate->count; i++) {
        const struct sl_isolate_action *action = &isolate->actions[i];

        if (action->state == SL_ISOLATE_WANTED && action->result == SL_ISOLATE_IS_REFUSED)
            return true;
    }
    return false;
}

unsigned sl_isolate_waiting(const struct sl_isolate *isolate)
{
    unsigned waiting = 0;

    for (unsigned i = 0; i < isolate->count; i++)
        waiting += isolate->actions[i].state == SL_ISOLATE_WANTED;
    return waiting;
}

/* ---- one attempt ---- */

unsigned sl_isolate_allowed(const struct sl_isolate_rules *rules, unsigned all)
{
    unsigned share = (unsigned)((uint64_t)all * rules->share_percent / 100);

    return share > rules->least_nodes ? share : rules->least_nodes;
}

static enum sl_isolate_result failed(int err, char *why, size_t cap)
{
    snprintf(why, cap, "%s", sluice_last_error());
    return err == -ETIMEDOUT ? SL_ISOLATE_TIMED_OUT : SL_ISOLATE_FAILED;
}

static bool is_too_many(const struct sl_isolate_rules *rules, const struct sl_isolate_view *view,
                        const char *what, char *why, size_t cap)
{
    unsigned allowed = sl_isolate_allowed(rules, view->all);

    if (view->before < allowed)
        return false;
    snprintf(why, cap, "%s: %u of %u nodes are out, and %u may be", what, view->before, view->all,
             allowed);
    return true;
}

/* Others may have gone at the same moment, none of whom saw the others: those that went last go
 * back, so that no more stay than are allowed. */
static enum sl_isolate_result settle(const struct sl_isolate_ops *ops, void *arg,
                                     const struct sl_isolate_rules *rules, char *why, size_t cap)
{
    struct sl_isolate_view view;
    int err;

    ops->settle(arg);
    err = ops->look(arg, &view);
    if (err != 0)
        return failed(err, why, cap);
    if (view.node == SL_ISOLATE_OUT_BY_OTHERS) {
        snprintf(why, cap, "somebody else has changed it meanwhile");
        return SL_ISOLATE_IS_LEFT_ALONE;
    }
    if (view.node == SL_ISOLATE_IS_IN) {
        snprintf(why, cap, "the controller took the request, and the node is not out");
        return SL_ISOLATE_FAILED;
    }
    if (!is_too_many(rules, &view, "too many went at once, and this node is back", why, cap)) {
        snprintf(why, cap, "the node is out");
        return SL_ISOLATE_IS_DONE;
    }
    err = ops->back(arg);
    return err != 0 ? failed(err, why, cap) : SL_ISOLATE_IS_REFUSED;
}

static enum sl_isolate_result attempt_out(const struct sl_isolate_ops *ops, void *arg,
                                          const struct sl_isolate_rules *rules, const char *mark,
                                          char *why, size_t cap)
{
    struct sl_isolate_view view;
    int err = 0;

    for (unsigned i = 0; i < CONFLICTS; i++) {
        err = ops->look(arg, &view);
        if (err != 0)
            return failed(err, why, cap);
        if (view.node == SL_ISOLATE_OUT_BY_OTHERS) {
            snprintf(why, cap, "somebody else has taken it out");
            return SL_ISOLATE_IS_LEFT_ALONE;
        }
        if (view.node == SL_ISOLATE_OUT_BY_US && strcmp(view.mark, mark) != 0) {
            snprintf(why, cap, "the node is out already, by %s", view.mark);
            return SL_ISOLATE_IS_DONE;
        }
        if (view.node == SL_ISOLATE_OUT_BY_US) /* an attempt of before, of which nobody knew */
            return settle(ops, arg, rules, why, cap);
        if (is_too_many(rules, &view, "refused", why, cap))
            return SL_ISOLATE_IS_REFUSED;
        err = ops->out(arg);
        if (err == 0)
            return settle(ops, arg, rules, why, cap);
        if (err != -EAGAIN)
            break;
    }
    return failed(err, why, cap);
}

static enum sl_isolate_result attempt_back(const struct sl_isolate_ops *ops, void *arg, char *why,
                                           size_t cap)
{
    struct sl_isolate_view view;
    int err = 0;

    for (unsigned i = 0; i < CONFLICTS; i++) {
        err = ops->look(arg, &view);
        if (err != 0)
            return failed(err, why, cap);
        if (view.node == SL_ISOLATE_OUT_BY_OTHERS) {
            snprintf(why, cap, "somebody else keeps it out");
            return SL_ISOLATE_IS_LEFT_ALONE;
        }
        if (view.node == SL_ISOLATE_IS_IN) {
            snprintf(why, cap, "the node is in service already");
            return SL_ISOLATE_IS_LEFT_ALONE;
        }
        err = ops->back(arg);
        if (err == 0) {
            snprintf(why, cap, "the node is back");
            return SL_ISOLATE_IS_DONE;
        }
        if (err != -EAGAIN)
            break;
    }
    return failed(err, why, cap);
}

enum sl_isolate_result sl_isolate_attempt(const struct sl_isolate_ops *ops, void *arg,
                                          const struct sl_isolate_rules *rules,
                                          enum sl_isolate_kind kind, const char *mark, char *why,
                                          size_t cap)
{
    return kind == SL_ISOLATE_OUT ? attempt_out(ops, arg, rules, mark, why, cap)
                                  : attempt_back(ops, arg, why, cap);
}

/* ---- names ---- */

const char *sl_isolate_kind_name(enum sl_isolate_kind kind)
{
    return kind == SL_ISOLATE_OUT ? "out" : "back";
}

const char *sl_isolate_state_name(enum sl_isolate_state state)
{
    static const char *const names[SL_ISOLATE_STATES] = {[SL_ISOLATE_WANTED] = "wanted",
                                                         [SL_ISOLATE_DONE] = "done",
                                                         [SL_ISOLATE_LEFT_ALONE] = "left_alone",
                                                         [SL_ISOLATE_WITHDRAWN] = "withdrawn"};

    return (unsigned)state < SL_ISOLATE_STATES ? names[state] : "unknown";
}

const char *sl_isolate_result_name(enum sl_isolate_result result)
{
    static const char *const names[SL_ISOLATE_RESULTS] = {[SL_ISOLATE_IS_DONE] = "done",
                                                          [SL_ISOLATE_IS_LEFT_ALONE] = "left_alone",
                                                          [SL_ISOLATE_IS_REFUSED] = "refused",
                                                          [SL_ISOLATE_FAILED] = "failed",
                                                          [SL_ISOLATE_TIMED_OUT] = "timed_out"};

    return (unsigned)result < SL_ISOLATE_RESULTS ? names[result] : "unknown";
}

/* Of eight characters of the boot: a label of Kubernetes has room for it. */
void sl_isolate_mark(uint64_t verdict, const char *boot_id, char *out, size_t cap)
{
    char boot[9];
    size_t len = 0;

    for (; *boot_id != '\0' && len + 1 < sizeof(boot); boot_id++)
        if (isalnum((unsigned char)*boot_id))
            boot[len++] = *boot_id;
    boot[len] = '\0';
    snprintf(out, cap, "%" PRIu64 ".%s", verdict, len > 0 ? boot : "0");
}

bool sl_isolate_is_mark(const char *text, size_t len)
{
    size_t i = 0;

    while (i < len && isdigit((unsigned char)text[i]))
        i++;
    if (i == 0 || i == len || text[i] != '.' || len >= SL_ISOLATE_MARK)
        return false;
    for (size_t j = i + 1; j < len; j++)
        if (!isalnum((unsigned char)text[j]))
            return false;
    return i + 1 < len;
}
