/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/steer.h"

#include "core/err.h"

#include <stdio.h>
#include <string.h>

const char *sl_steer_state_name(enum sl_steer_state state)
{
    static const char *const names[SL_STEER_STATES] = {"in_use", "avoided", "tried", "lowered"};

    return (unsigned)state < SL_STEER_STATES ? names[state] : "unknown";
}

void sl_steer_init(struct sl_steer *steer, const struct sl_steer_rules *rules)
{
    *steer = (struct sl_steer){.rules = *rules};
}

uint8_t sl_steer_weight(const struct sl_steer *steer, const struct sl_steer_port *port)
{
    switch (port->state) {
    case SL_STEER_AVOIDED: return 0;
    case SL_STEER_TRIED: return steer->rules.trial_weight;
    case SL_STEER_LOWERED: return port->weight;
    default: return 100;
    }
}

uint64_t sl_steer_rest_ns(const struct sl_steer *steer, const struct sl_steer_port *port)
{
    return steer->rules.rest_ns << port->relapses;
}

unsigned sl_steer_count(const struct sl_steer *steer, enum sl_steer_state state)
{
    unsigned count = 0;

    for (unsigned i = 0; i < steer->count; i++)
        count += steer->ports[i].state == state;
    return count;
}

/* ---- over a restart ---- */

uint64_t sl_steer_pack(const struct sl_steer_port *port)
{
    return (uint64_t)port->state | (uint64_t)port->relapses << 8 |
           (uint64_t)(port->back_ns != 0) << 16;
}

static void unpack(struct sl_steer_port *port, uint64_t packed, uint64_t now_ns)
{
    uint64_t state = packed & 0xff, relapses = packed >> 8 & 0xff;

    /* LOWERED follows from the verdict anew. */
    if (state == SL_STEER_AVOIDED || state == SL_STEER_TRIED)
        port->state = (enum sl_steer_state)state;
    port->relapses = relapses > SL_STEER_DOUBLINGS ? SL_STEER_DOUBLINGS : (uint8_t)relapses;
    port->back_ns = (packed >> 16 & 1) != 0 ? now_ns : 0;
}

/* ---- changes ---- */

static void change(struct sl_steer *steer, struct sl_steer_port *port, enum sl_steer_state to,
                   uint64_t now_ns, const char *why)
{
    enum sl_steer_state from = port->state;

    port->state = to;
    port->since_ns = port->quiet_ns = now_ns;
    port->carrying_ns = 0;
    port->is_refused = false;
    steer->changes[to]++;
    if (steer->changed != NULL)
        steer->changed(steer->arg, port, from, why);
}

static void rest_longer(struct sl_steer_port *port)
{
    if (port->relapses < SL_STEER_DOUBLINGS)
        port->relapses++;
}

/* One that is up and fully used has to be left, and not too many may be taken out. */
static bool may_avoid(const struct sl_steer *steer, const struct sl_steer_view *views,
                      unsigned count, const struct sl_steer_port *port)
{
    unsigned out = sl_steer_count(steer, SL_STEER_AVOIDED) + sl_steer_count(steer, SL_STEER_TRIED);

    if (out >= steer->rules.ports)
        return false;
    for (unsigned i = 0; i < count; i++) {
        const struct sl_steer_port *other = NULL;

        for (unsigned k = 0; k < steer->count; k++)
            if (strcmp(steer->ports[k].name, views[i].name) == 0)
                other = &steer->ports[k];
        if (other != NULL && other != port && views[i].is_up &&
            (other->state == SL_STEER_IN_USE || other->state == SL_STEER_LOWERED))
            return true;
    }
    return false;
}

static void refuse(struct sl_steer *steer, struct sl_steer_port *port)
{
    if (!port->is_refused)
        steer->refused++;
    port->is_refused = true;
}

static void avoid(struct sl_steer *steer, struct sl_steer_port *port, uint64_t now_ns)
{
    /* Not long ago it was given back: that was too early. */
    bool is_again = port->back_ns != 0 &&
                    now_ns - port->back_ns < SL_STEER_FORGET * sl_steer_rest_ns(steer, port);

    if (!is_again)
        port->relapses = 0;
    else
        rest_longer(port);
    change(steer, port, SL_STEER_AVOIDED, now_ns, "its verdict is open");
}

/* ---- what is seen of one ---- */

static void see_in_use(struct sl_steer *steer, struct sl_steer_port *port,
                       const struct sl_steer_view *view, const struct sl_steer_view *views,
                       unsigned count, uint64_t now_ns)
{
    bool is_fresh = view->bads > port->bads;

    if (view->is_open && view->weight > 0 && view->weight < 100) {
        if (port->state == SL_STEER_LOWERED) {
            port->weight = view->weight;
            return;
        }
        port->weight = view->weight;
        change(steer, port, SL_STEER_LOWERED, now_ns, "its verdict is open: it is slower");
        return;
    }
    if (view->is_open && view->is_bad && view->weight == 0 && is_fresh) {
        if (may_avoid(steer, views, count, port)) {
            avoid(steer, port, now_ns);
            port->bads = view->bads;
        } else {
            refuse(steer, port);
        }
        return;
    }
    if (!view->is_open)
        port->is_refused = false;
    if (port->state == SL_STEER_LOWERED && !view->is_open)
        change(steer, port, SL_STEER_IN_USE, now_ns, "its verdict is closed");
}

static void see_avoided(struct sl_steer *steer, struct sl_steer_port *port,
                        const struct sl_steer_view *view, uint64_t now_ns)
{
    if (view->bads > port->bads || !view->is_up) {
        port->bads = view->bads;
        port->quiet_ns = now_ns;
        return;
    }
    if (now_ns - port->quiet_ns >= sl_steer_rest_ns(steer, port))
        change(steer, port, SL_STEER_TRIED, now_ns, "it has rested");
}

static void see_tried(struct sl_steer *steer, struct sl_steer_port *port,
                      const struct sl_steer_view *view, uint64_t now_ns)
{
    if (view->bads >= port->bads + SL_STEER_AGAIN) {
        port->bads = view->bads;
        rest_longer(port);
        change(steer, port, SL_STEER_AVOIDED, now_ns, "it is no better when it is tried");
        return;
    }
    if (view->carried > port->carried)
        port->carrying_ns += now_ns - port->seen_ns;
    if (port->carrying_ns < steer->rules.trial_ns)
        return;
    port->bads = view->bads;
    port->back_ns = now_ns;
    change(steer, port, SL_STEER_IN_USE, now_ns, "it carried well when it was tried");
}

static void see(struct sl_steer *steer, struct sl_steer_port *port,
                const struct sl_steer_view *view, const struct sl_steer_view *views, unsigned count,
                uint64_t now_ns)
{
    if (view->bads < port->bads)
        port->bads = view->bads; /* they are counted anew */
    if (view->clears != port->clears) {
        port->clears = view->clears;
        port->relapses = 0;
        port->bads = view->bads;
        if (port->state != SL_STEER_IN_USE)
            change(steer, port, SL_STEER_IN_USE, now_ns, "an operator says that it is good");
        return;
    }
    switch (port->state) {
    case SL_STEER_AVOIDED: see_avoided(steer, port, view, now_ns); break;
    case SL_STEER_TRIED: see_tried(steer, port, view, now_ns); break;
    default: see_in_use(steer, port, view, views, count, now_ns);
    }
}

/* ---- all of them ---- */

static struct sl_steer_port *port_of(struct sl_steer *steer, const struct sl_steer_view *view,
                                     uint64_t now_ns)
{
    struct sl_steer_port *port;

    for (unsigned i = 0; i < steer->count; i++)
        if (strcmp(steer->ports[i].name, view->name) == 0)
            return &steer->ports[i];
    if (steer->count == SL_STEER_PORTS || strlen(view->name) >= SL_STEER_NAME) {
        steer->left_out++;
        return NULL;
    }
    port = &steer->ports[steer->count++];
    *port = (struct sl_steer_port){.since_ns = now_ns,
                                   .quiet_ns = now_ns,
                                   .seen_ns = now_ns,
                                   .carried = view->carried,
                                   .clears = view->clears};
    snprintf(port->name, sizeof(port->name), "%s", view->name);
    if (steer->recall != NULL)
        unpack(port, steer->recall(steer->arg, view->name), now_ns);
    /* Of one that was never avoided a verdict that is open already is news. */
    if (port->state != SL_STEER_IN_USE || port->back_ns != 0)
        port->bads = view->bads;
    return port;
}

/* A port that is gone is none to be avoided. */
static void forget_gone(struct sl_steer *steer)
{
    unsigned kept = 0;

    for (unsigned i = 0; i < steer->count; i++)
        if (steer->ports[i].is_there)
            steer->ports[kept++] = steer->ports[i];
    steer->count = kept;
}

void sl_steer_see(struct sl_steer *steer, uint64_t now_ns, const struct sl_steer_view *views,
                  unsigned count)
{
    for (unsigned i = 0; i < steer->count; i++)
        steer->ports[i].is_there = false;
    for (unsigned i = 0; i < count; i++) {
        struct sl_steer_port *port = port_of(steer, &views[i], now_ns);

        if (port != NULL)
            port->is_there = true;
    }
    forget_gone(steer);
    for (unsigned i = 0; i < count; i++)
        for (unsigned k = 0; k < steer->count; k++) {
            struct sl_steer_port *port = &steer->ports[k];

            if (strcmp(port->name, views[i].name) != 0)
                continue;
            see(steer, port, &views[i], views, count, now_ns);
            port->carried = views[i].carried;
            port->seen_ns = now_ns;
        }
}
