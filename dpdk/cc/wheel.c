/* SPDX-License-Identifier: Apache-2.0 */
/* The timing wheel: wheel.h draws it. */
#include "dpdk/cc/wheel.h"

#include "core/err.h"
#include "core/list.h"

#include <stddef.h>

#define SLOTS (SL_DP_WHEEL_LEVELS * 64)
/* Armed for a time that has passed: for the next advance. Their bits are in the last word of
 * filled, so that cancel needs no question. */
#define PAST SLOTS
#define FIRING (SLOTS + 1) /* taken out by the advance that runs */

static void fill(struct sl_dp_wheel *wheel, unsigned slot, struct sl_dp_timer *timer)
{
    sl_list_push_back(&wheel->slot[slot], &timer->node);
    wheel->filled[slot / 64] |= UINT64_C(1) << slot % 64;
}

/* Into the slot of its time. */
static void file(struct sl_dp_wheel *wheel, struct sl_dp_timer *timer)
{
    uint64_t round_up = (1u << SL_DP_WHEEL_SHIFT) - 1;
    uint64_t tick = timer->at_ns >> SL_DP_WHEEL_SHIFT;

    if (timer->at_ns <= UINT64_MAX - round_up)
        tick = (timer->at_ns + round_up) >> SL_DP_WHEEL_SHIFT;
    if (tick <= wheel->tick) {
        fill(wheel, PAST, timer);
        return;
    }
    unsigned level = (63u - (unsigned)__builtin_clzll(tick ^ wheel->tick)) / 6;
    fill(wheel, level * 64 + (tick >> level * 6 & 63), timer);
}

static void take(struct sl_dp_wheel *wheel, struct sl_dp_timer *timer)
{
    struct sl_node *node = &timer->node;

    if (node->next == node->prev) { /* the last of its slot */
        size_t slot = node->next - wheel->slot;
        wheel->filled[slot / 64] &= ~(UINT64_C(1) << slot % 64);
    }
    sl_list_remove(node);
    node->next = NULL;
}

void sl_dp_wheel_init(struct sl_dp_wheel *wheel, uint64_t now_ns)
{
    *wheel = (struct sl_dp_wheel){.tick = now_ns >> SL_DP_WHEEL_SHIFT};
    for (unsigned i = 0; i < SLOTS + 2; i++)
        sl_list_init(&wheel->slot[i]);
}

void sl_dp_wheel_arm(struct sl_dp_wheel *wheel, struct sl_dp_timer *timer, uint64_t at_ns)
{
    if (sl_dp_timer_armed(timer)) {
        /* Where it lies it is found in time, and filed anew: a timeout that each answer puts off
         * moves once per timeout. */
        if (at_ns >= timer->at_ns) {
            timer->at_ns = at_ns;
            return;
        }
        take(wheel, timer);
    }
    timer->at_ns = at_ns;
    file(wheel, timer);
}

void sl_dp_wheel_cancel(struct sl_dp_wheel *wheel, struct sl_dp_timer *timer)
{
    if (sl_dp_timer_armed(timer))
        take(wheel, timer);
}

/* All of a slot's timers are to be fired, or filed anew. */
static void collect(struct sl_dp_wheel *wheel, unsigned slot)
{
    struct sl_node *from = &wheel->slot[slot], *to = &wheel->slot[FIRING];

    from->next->prev = to->prev;
    to->prev->next = from->next;
    from->prev->next = to;
    to->prev = from->prev;
    sl_list_init(from);
}

static void collect_level(struct sl_dp_wheel *wheel, unsigned level, uint64_t slots)
{
    slots &= wheel->filled[level];
    wheel->filled[level] &= ~slots;
    for (; slots != 0; slots &= slots - 1)
        collect(wheel, level * 64 + (unsigned)__builtin_ctzll(slots));
}

unsigned sl_dp_wheel_advance(struct sl_dp_wheel *wheel, uint64_t now_ns)
{
    uint64_t tick = now_ns >> SL_DP_WHEEL_SHIFT;
    unsigned fired = 0;

    collect_level(wheel, SL_DP_WHEEL_LEVELS, 1);
    if (tick > wheel->tick) {
        unsigned top = (63u - (unsigned)__builtin_clzll(tick ^ wheel->tick)) / 6;
        for (unsigned level = 0; level < top; level++)
            collect_level(wheel, level, UINT64_MAX);
        collect_level(wheel, top, UINT64_MAX >> (63 - (tick >> top * 6 & 63)));
        wheel->tick = tick;
    }
    for (struct sl_node *list = &wheel->slot[FIRING]; !sl_list_empty(list);) {
        struct sl_dp_timer *timer = sl_container_of(list->next, struct sl_dp_timer, node);
        take(wheel, timer);
        if (timer->at_ns > now_ns) {
            file(wheel, timer);
            continue;
        }
        timer->fire(timer, now_ns);
        fired++;
    }
    return fired;
}

uint64_t sl_dp_wheel_next(const struct sl_dp_wheel *wheel)
{
    if (wheel->filled[SL_DP_WHEEL_LEVELS] != 0)
        return 0;
    for (unsigned level = 0; level < SL_DP_WHEEL_LEVELS; level++) {
        if (wheel->filled[level] == 0)
            continue;
        unsigned digit = (unsigned)__builtin_ctzll(wheel->filled[level]);
        uint64_t above = level + 1 == SL_DP_WHEEL_LEVELS ? 0 : wheel->tick >> (level * 6 + 6) << 6;
        return (above | digit) << level * 6 << SL_DP_WHEEL_SHIFT;
    }
    return UINT64_MAX;
}
