/* SPDX-License-Identifier: Apache-2.0 */
/* The life of engines and flows, and who runs when. */
#include "dpdk/proto/inside.h"

#include <stdio.h>

#define QUANTUM 32u /* packets of a flow before it is the next one's turn */

void *sl_dp_alloc(struct sl_dp_engine *engine, size_t len)
{
    return engine->alloc(engine->arg, len);
}

void sl_dp_free(struct sl_dp_engine *engine, void *memory, size_t len)
{
    if (memory != NULL)
        engine->free(engine->arg, memory, len);
}

/* ---- engine ---- */

static bool power_of_two(uint32_t value)
{
    return value != 0 && (value & (value - 1)) == 0;
}

int sl_dp_engine_init(struct sl_dp_engine *engine, uint64_t now_ns)
{
    const struct sl_dp_settings *s = &engine->settings;

    if (!power_of_two(s->window) || s->window < SL_DP_PLACES_LEAST || s->window > SL_DP_WINDOW_MOST)
        return sl_fail(-EINVAL,
                       "a window of %u packets is not possible: it has to be a power of two from "
                       "%u to %u",
                       s->window, SL_DP_PLACES_LEAST, SL_DP_WINDOW_MOST);
    if (s->cc == NULL || s->rto_least_ns == 0 || s->dead_ns == 0)
        return sl_fail(-EINVAL, "the protocol needs a congestion control and times that are not 0");
    engine->wheel = sl_dp_alloc(engine, sizeof(*engine->wheel));
    if (engine->wheel == NULL)
        return sl_fail(-ENOMEM, "no memory for the timers of an engine");
    sl_dp_wheel_init(engine->wheel, now_ns);
    sl_list_init(&engine->ready);
    sl_list_init(&engine->waiting);
    engine->now_ns = engine->looked_ns = now_ns;
    engine->away_ns = 0;
    return 0;
}

void sl_dp_engine_fini(struct sl_dp_engine *engine)
{
    sl_assert(sl_list_empty(&engine->ready) && sl_list_empty(&engine->waiting));
    sl_dp_free(engine, engine->wheel, sizeof(*engine->wheel));
    engine->wheel = NULL;
}

void sl_dp_engine_look(struct sl_dp_engine *engine, uint64_t now_ns)
{
    sl_dp_engine_tick(engine, now_ns);
    if (now_ns <= engine->looked_ns)
        return;
    engine->away_ns = now_ns - engine->looked_ns;
    engine->looked_ns = now_ns;
}

static unsigned run_flow(struct sl_dp_flow *flow, unsigned budget)
{
    unsigned sent = 0;

    flow->is_stuck = false;
    if (flow->has_failed)
        return 0;
    if (flow->rx_dirty != 0 && sl_dp_answer(flow) != 0)
        sl_dp_ready(flow);
    sl_dp_retire(flow);
    if (!flow->is_stuck)
        sent = sl_dp_send(flow, budget);
    if (flow->rx_dirty != 0)
        sl_dp_wait(flow);
    return sent;
}

/* All of a list goes before all of another one. */
static void put_before(struct sl_node *first, struct sl_node *list)
{
    while (!sl_list_empty(first)) {
        struct sl_node *node = first->prev;

        sl_list_remove(node);
        sl_list_push_back(list->next, node);
    }
}

/* Each ready flow once: those that still have something to do come back to the list. */
static unsigned run_ready(struct sl_dp_engine *engine, unsigned budget)
{
    struct sl_node round = engine->ready, hungry, *node;
    unsigned moved = 0;

    round.next->prev = round.prev->next = &round;
    sl_list_init(&engine->ready);
    sl_list_init(&hungry);
    while (budget > 0 && (node = sl_list_pop_front(&round)) != NULL) {
        struct sl_dp_flow *flow = sl_container_of(node, struct sl_dp_flow, ready);
        unsigned sent = run_flow(flow, budget < QUANTUM ? budget : QUANTUM);

        if (sent == 0 && flow->is_stuck) {
            sl_list_remove(node);
            sl_list_push_back(&hungry, node);
        }
        moved += sent;
        budget -= sent;
    }
    /* Next time those go first that found the port full, and those that the budget did not reach:
     * else the first one takes all that a port has room for, run after run. */
    put_before(&round, &engine->ready);
    put_before(&hungry, &engine->ready);
    return moved;
}

unsigned sl_dp_engine_run(struct sl_dp_engine *engine, uint64_t now_ns, unsigned budget)
{
    struct sl_node *node;
    unsigned moved;

    sl_dp_engine_look(engine, now_ns);
    moved = sl_dp_wheel_advance(engine->wheel, engine->now_ns);
    if (!sl_list_empty(&engine->ready))
        moved += run_ready(engine, budget);
    while ((node = sl_list_pop_front(&engine->waiting)) != NULL)
        sl_list_push_back(&engine->ready, node);
    return moved;
}

void sl_dp_engine_hurry(struct sl_dp_engine *engine)
{
    sl_list_foreach(&engine->ready, node)
    {
        struct sl_dp_flow *flow = sl_container_of(node, struct sl_dp_flow, ready);

        flow->rx_asked = flow->rx_dirty;
    }
}

/* When a flow of the list has to run, if that is before next_ns. */
static uint64_t first_of(const struct sl_dp_engine *engine, const struct sl_node *list,
                         uint64_t next_ns)
{
    for (const struct sl_node *node = list->next; node != list; node = node->next) {
        const struct sl_dp_flow *flow = sl_container_of(node, struct sl_dp_flow, ready);
        bool is_held = flow->rx_waits && flow->rx_asked == 0;
        uint64_t at_ns = is_held ? flow->rx_since_ns + SL_DP_HELD_NS : engine->now_ns;

        if (at_ns < next_ns)
            next_ns = at_ns;
    }
    return next_ns;
}

uint64_t sl_dp_engine_next(const struct sl_dp_engine *engine)
{
    uint64_t next_ns = sl_dp_wheel_next(engine->wheel);

    next_ns = first_of(engine, &engine->ready, next_ns);
    return first_of(engine, &engine->waiting, next_ns);
}

/* ---- flow ---- */

static bool ends_good(const struct sl_dp_ends *ends)
{
    return ends->routes >= 1 && ends->routes <= SL_DP_ROUTES_MAX && ends->payload_least > 0 &&
           ends->payload_most >= ends->payload_least && ends->payload_most <= SL_DP_PAYLOAD_MOST &&
           ends->payload_most <= ends->payload_least * SL_DP_PARTS_MAX && ends->version != 0 &&
           ends->version <= 15;
}

static void set_up(struct sl_dp_flow *flow, struct sl_dp_engine *engine,
                   const struct sl_dp_ends *ends, void *owner)
{
    sl_list_init(&flow->ready);
    flow->engine = engine;
    flow->owner = owner;
    flow->ends = *ends;
    flow->timer.fire = sl_dp_expire;
    flow->tx_mask = flow->rx_mask = SL_DP_PLACES_LEAST - 1;
    flow->limit = SL_DP_PLACES_LEAST;
    flow->heard_ns = engine->now_ns;
    flow->route_count = ends->routes;
    flow->head = (struct sl_dp_head){.kind_version = (uint8_t)(SL_DP_DATA << 4 | ends->version),
                                     .flow = ends->peer_number,
                                     .secret = ends->peer_secret};
    sl_dp_mtu_init(flow);
    for (unsigned i = 0; i < flow->route_count; i++)
        sl_dp_route_init(flow, &flow->route[i]);
}

static void free_rings(struct sl_dp_flow *flow)
{
    struct sl_dp_engine *engine = flow->engine;
    size_t tx = flow->tx_mask + 1, rx = flow->rx_mask + 1;

    sl_dp_free(engine, flow->tx, tx * sizeof(*flow->tx));
    sl_dp_free(engine, flow->acked, tx / 8);
    sl_dp_free(engine, flow->rx, rx * sizeof(*flow->rx));
    sl_dp_free(engine, flow->came, rx / 8);
}

int sl_dp_flow_open(struct sl_dp_engine *engine, const struct sl_dp_ends *ends, void *owner,
                    struct sl_dp_flow **out)
{
    size_t len = sizeof(struct sl_dp_flow) + ends->routes * sizeof(struct sl_dp_route);
    struct sl_dp_flow *flow;

    if (!ends_good(ends))
        return sl_fail(-EINVAL,
                       "a flow of %u routes with packets of %u to %u bytes is not possible",
                       ends->routes, ends->payload_least, ends->payload_most);
    flow = sl_dp_alloc(engine, len);
    if (flow == NULL)
        return sl_fail(-ENOMEM, "no memory for a flow of %u routes", ends->routes);
    flow->len = len;
    set_up(flow, engine, ends, owner);
    flow->tx = sl_dp_alloc(engine, SL_DP_PLACES_LEAST * sizeof(*flow->tx));
    flow->acked = sl_dp_alloc(engine, SL_DP_PLACES_LEAST / 8);
    flow->rx = sl_dp_alloc(engine, SL_DP_PLACES_LEAST * sizeof(*flow->rx));
    flow->came = sl_dp_alloc(engine, SL_DP_PLACES_LEAST / 8);
    if (flow->tx == NULL || flow->acked == NULL || flow->rx == NULL || flow->came == NULL) {
        sl_dp_flow_close(flow);
        return sl_fail(-ENOMEM, "no memory for the %u packets of a flow", SL_DP_PLACES_LEAST);
    }
    *out = flow;
    return 0;
}

void sl_dp_flow_close(struct sl_dp_flow *flow)
{
    if (flow == NULL)
        return;
    sl_list_remove(&flow->ready);
    sl_dp_wheel_cancel(flow->engine->wheel, &flow->timer);
    free_rings(flow);
    sl_dp_free(flow->engine, flow, flow->len);
}

void *sl_dp_flow_owner(const struct sl_dp_flow *flow)
{
    return flow->owner;
}

struct sl_dp_engine *sl_dp_flow_engine(const struct sl_dp_flow *flow)
{
    return flow->engine;
}

void sl_dp_fail(struct sl_dp_flow *flow, int status, const char *fmt, ...)
{
    char why[160];
    va_list args;

    if (flow->has_failed)
        return;
    flow->has_failed = true;
    flow->rx_dirty = flow->rx_asked = 0;
    sl_list_remove(&flow->ready);
    sl_dp_wheel_cancel(flow->engine->wheel, &flow->timer);
    va_start(args, fmt);
    vsnprintf(why, sizeof(why), fmt, args);
    va_end(args);
    flow->engine->ops->failed(flow, status, why);
}
