/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/condition.h"

#include <math.h>
#include <string.h>

/* From each state by each input. */
static const uint8_t next_state[SL_MON_STATES][SL_MON_INPUTS] = {
    [SL_MON_OK] = {[SL_MON_IN_BAD] = SL_MON_SUSPECT,
                   [SL_MON_IN_CONFIRM] = SL_MON_BAD,
                   [SL_MON_IN_GOOD] = SL_MON_OK,
                   [SL_MON_IN_CALM] = SL_MON_OK,
                   [SL_MON_IN_BOOT] = SL_MON_OK,
                   [SL_MON_IN_CLEAR] = SL_MON_OK,
                   [SL_MON_IN_GONE] = SL_MON_OK},
    [SL_MON_SUSPECT] = {[SL_MON_IN_BAD] = SL_MON_SUSPECT,
                        [SL_MON_IN_CONFIRM] = SL_MON_BAD,
                        [SL_MON_IN_GOOD] = SL_MON_SUSPECT,
                        [SL_MON_IN_CALM] = SL_MON_OK,
                        [SL_MON_IN_BOOT] = SL_MON_OK,
                        [SL_MON_IN_CLEAR] = SL_MON_OK,
                        [SL_MON_IN_GONE] = SL_MON_OK},
    [SL_MON_BAD] = {[SL_MON_IN_BAD] = SL_MON_BAD,
                    [SL_MON_IN_CONFIRM] = SL_MON_BAD,
                    [SL_MON_IN_GOOD] = SL_MON_BAD,
                    [SL_MON_IN_CALM] = SL_MON_RECOVERING,
                    [SL_MON_IN_BOOT] = SL_MON_OK,
                    [SL_MON_IN_CLEAR] = SL_MON_OK,
                    [SL_MON_IN_GONE] = SL_MON_OK},
    [SL_MON_RECOVERING] = {[SL_MON_IN_BAD] = SL_MON_BAD,
                           [SL_MON_IN_CONFIRM] = SL_MON_BAD,
                           [SL_MON_IN_GOOD] = SL_MON_RECOVERING,
                           [SL_MON_IN_CALM] = SL_MON_OK,
                           [SL_MON_IN_BOOT] = SL_MON_OK,
                           [SL_MON_IN_CLEAR] = SL_MON_OK,
                           [SL_MON_IN_GONE] = SL_MON_OK},
};

const char *sl_mon_state_name(enum sl_mon_state state)
{
    static const char *const names[SL_MON_STATES] = {"ok", "suspect", "bad", "recovering"};

    return (unsigned)state < SL_MON_STATES ? names[state] : "unknown";
}

const char *sl_mon_input_name(enum sl_mon_input input)
{
    static const char *const names[SL_MON_INPUTS] = {
        [SL_MON_IN_BAD] = "first evidence", [SL_MON_IN_CONFIRM] = "confirmed",
        [SL_MON_IN_GOOD] = "good sample",   [SL_MON_IN_CALM] = "evidence gone",
        [SL_MON_IN_BOOT] = "new boot",      [SL_MON_IN_CLEAR] = "cleared by an operator",
        [SL_MON_IN_GONE] = "it is over"};

    return (unsigned)input < SL_MON_INPUTS ? names[input] : "unknown";
}

void sl_mon_condition_init(struct sl_mon_condition *condition, uint64_t now_ns)
{
    *condition = (struct sl_mon_condition){.since_ns = now_ns, .history_ns = now_ns};
}

double sl_mon_condition_history(const struct sl_mon_condition *condition, uint64_t now_ns)
{
    uint64_t age_ns = now_ns > condition->history_ns ? now_ns - condition->history_ns : 0;

    return condition->history * exp2(-(double)age_ns / (double)SL_MON_HALF_LIFE_NS);
}

/* ---- a step of the machine ---- */

static bool step(struct sl_mon_condition *condition, enum sl_mon_input input, uint64_t now_ns,
                 struct sl_mon_step *out)
{
    uint8_t from = condition->state, to = next_state[from][input];

    *out = (struct sl_mon_step){.from = from, .to = to, .input = (uint8_t)input};
    if (to == from)
        return false;
    condition->state = to;
    condition->since_ns = now_ns;
    condition->entered[to]++;
    if (to == SL_MON_BAD) {
        condition->history = sl_mon_condition_history(condition, now_ns) + 1;
        condition->history_ns = now_ns;
    }
    if (to == SL_MON_OK) { /* what was seen is used up */
        condition->recent = 0;
        condition->samples = 0;
    }
    return true;
}

/* ---- evidence ---- */

/* A subject that was bad often before is believed to be so earlier. */
static unsigned needed(const struct sl_mon_condition *condition, const struct sl_mon_policy *policy,
                       uint64_t now_ns)
{
    bool is_lemon = sl_mon_condition_history(condition, now_ns) >= SL_MON_LEMON;

    return is_lemon ? (policy->bad + 1u) / 2 : policy->bad;
}

static uint32_t window_mask(const struct sl_mon_policy *policy)
{
    return policy->of >= SL_MON_WINDOW_MAX ? UINT32_MAX : (1u << policy->of) - 1;
}

static enum sl_mon_input bad_input(const struct sl_mon_condition *condition,
                                   const struct sl_mon_policy *policy, uint64_t now_ns)
{
    unsigned bads = (unsigned)__builtin_popcount(condition->recent & window_mask(policy));

    return bads >= needed(condition, policy, now_ns) ? SL_MON_IN_CONFIRM : SL_MON_IN_BAD;
}

/* Is it time to believe that nothing is wrong any more? */
static bool is_calm(const struct sl_mon_condition *condition, const struct sl_mon_policy *policy,
                    uint64_t now_ns)
{
    switch ((enum sl_mon_state)condition->state) {
    case SL_MON_SUSPECT:
        if (policy->quiet)
            return now_ns - condition->bad_ns >= policy->clear_ns;
        return condition->samples >= policy->of && (condition->recent & window_mask(policy)) == 0;
    case SL_MON_BAD:
        return now_ns - (policy->quiet ? condition->bad_ns : condition->since_ns) >=
               policy->hold_ns;
    case SL_MON_RECOVERING: return now_ns - condition->bad_ns >= policy->clear_ns;
    default: return true;
    }
}

bool sl_mon_condition_sample(struct sl_mon_condition *condition, const struct sl_mon_policy *policy,
                             const struct sl_mon_sample *sample, struct sl_mon_step *out)
{
    bool counts = sample->boot_ns >= policy->grace_ns && (sample->in_use || !policy->in_use);

    *out = (struct sl_mon_step){.from = condition->state, .to = condition->state};
    if (sample->is_bad && !counts)
        return false;
    condition->recent = condition->recent << 1 | sample->is_bad;
    condition->samples += condition->samples < SL_MON_WINDOW_MAX;
    if (!sample->is_bad) {
        condition->good++;
        return step(condition,
                    is_calm(condition, policy, sample->now_ns) ? SL_MON_IN_CALM : SL_MON_IN_GOOD,
                    sample->now_ns, out);
    }
    condition->bads++;
    condition->bad_ns = sample->now_ns;
    return step(condition, bad_input(condition, policy, sample->now_ns), sample->now_ns, out);
}

bool sl_mon_condition_tick(struct sl_mon_condition *condition, const struct sl_mon_policy *policy,
                           uint64_t now_ns, struct sl_mon_step *out)
{
    *out = (struct sl_mon_step){.from = condition->state, .to = condition->state};
    if (!policy->quiet || condition->state == SL_MON_OK || !is_calm(condition, policy, now_ns))
        return false;
    return step(condition, SL_MON_IN_CALM, now_ns, out);
}

bool sl_mon_condition_reset(struct sl_mon_condition *condition, enum sl_mon_input input,
                            uint64_t now_ns, struct sl_mon_step *out)
{
    /* The clock begins anew with a boot: what was before it is now. */
    if (condition->history_ns > now_ns)
        condition->history_ns = now_ns;
    if (condition->bad_ns > now_ns)
        condition->bad_ns = now_ns;
    bool changed = step(condition, input, now_ns, out);

    if (!changed)
        condition->since_ns = now_ns;
    condition->recent = 0;
    condition->samples = 0;
    return changed;
}
