/* SPDX-License-Identifier: Apache-2.0 */
/* The transport within one process: its world, the clock, faults, and who has work to do. A message
 * lies in the inbox of its receiver from the start, with the time at which it arrives. */
#include "tests/fake/loop_inside.h"

#include "core/err.h"
#include "core/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define LOOK_NS 1000

struct loop *loop_world;

void loop_note_misuse(struct loop *loop, const char *what)
{
    if (loop->misuse[0] == '\0')
        snprintf(loop->misuse, sizeof(loop->misuse), "%s", what);
}

/* ---- what is due ---- */

bool loop_is_due(const struct loop *loop, const struct loop_ep *ep, const struct sl_node *list)
{
    const struct message *m = sl_container_of(list->next, const struct message, link);

    return list->next != list && m->at_ns <= loop->now_ns && ep->stall_until_ns <= loop->now_ns;
}

/* Can the first message of the inbox be taken out, once it is due? */
bool loop_is_takeable(struct loop_ep *ep)
{
    const struct message *m = sl_container_of(ep->inbox.next, struct message, link);
    const struct sl_channel *channel;

    if (sl_list_empty(&ep->inbox))
        return false;
    channel = sl_channels_find(&ep->channels, m->channel);
    if (channel == NULL)
        return m->bye || ep->channels.wanting > 0;
    return m->bye || channel->closed || channel->posted > 0 ||
           sl_channels_wanting(&ep->channels, channel);
}

static bool has_work(const struct loop *loop, struct loop_ep *ep)
{
    if (ep->connect != NULL || sl_channels_due(&ep->channels))
        return true;
    return !ep->told && (ep->lost_at_ns <= loop->now_ns || loop_is_due(loop, ep, &ep->ctrls) ||
                         (loop_is_due(loop, ep, &ep->inbox) && loop_is_takeable(ep)));
}

bool loop_iface_has_work(const struct loop_iface *iface)
{
    for (const struct sl_node *n = iface->eps.next; n != &iface->eps; n = n->next)
        if (has_work(iface->loop, sl_container_of(n, struct loop_ep, link)))
            return true;
    return false;
}

static void ring(struct loop *loop)
{
    uint64_t one = 1;

    sl_list_foreach(&loop->ifaces, node)
    {
        struct loop_iface *iface = sl_container_of(node, struct loop_iface, link);

        if (!iface->armed || !loop_iface_has_work(iface))
            continue;
        iface->armed = false;
        sl_assert(write(iface->fd, &one, sizeof(one)) == sizeof(one));
    }
}

/* ---- the world ---- */

void loop_pass(struct loop *loop, uint64_t ns)
{
    loop->now_ns += ns;
    ring(loop);
}

static uint64_t look_at_clock(const struct sl_clock *clock)
{
    struct loop *loop = (struct loop *)(uintptr_t)clock;

    if (loop->looking)
        return loop->now_ns;
    loop->looking = true;
    if (loop->look != NULL)
        loop->look(loop->look_arg);
    loop->looking = false;
    loop_pass(loop, LOOK_NS);
    return loop->now_ns;
}

struct loop *loop_create(uint64_t seed)
{
    struct loop *loop = calloc(1, sizeof(*loop));

    sl_assert(loop != NULL && loop_world == NULL);
    loop->clock.now_ns = look_at_clock;
    loop->now_ns = SL_NS_PER_S; /* 0 often stands for "never" */
    loop->latency_ns = 2000;
    sl_rng_init(&loop->rng, seed);
    sl_list_init(&loop->ifaces);
    loop_world = loop;
    return loop;
}

void loop_destroy(struct loop *loop)
{
    if (loop == NULL)
        return;
    sl_assert(loop->live == 0);
    loop_world = NULL;
    free(loop->eps);
    free(loop);
}

const struct sl_clock *loop_clock(const struct loop *loop)
{
    return &loop->clock;
}

void loop_on_look(struct loop *loop, void (*look)(void *arg), void *arg)
{
    loop->look = look;
    loop->look_arg = arg;
}

uint64_t loop_now(const struct loop *loop)
{
    return loop->now_ns;
}

void loop_weather(struct loop *loop, uint64_t latency_ns, uint64_t jitter_ns, uint32_t eagain_in)
{
    loop->latency_ns = latency_ns;
    loop->jitter_ns = jitter_ns;
    loop->eagain_in = eagain_in;
}

void loop_takes_at_once(struct loop *loop)
{
    loop->takes_at_once = true;
}

unsigned loop_ep_count(const struct loop *loop)
{
    return loop->ep_count;
}

void loop_stall(struct loop *loop, unsigned idx, uint64_t for_ns)
{
    struct loop_ep *ep = ep_find(loop, idx), *peer = ep == NULL ? NULL : ep_find(loop, ep->peer);

    if (ep != NULL)
        ep->stall_until_ns = loop->now_ns + for_ns;
    if (peer != NULL)
        peer->stall_until_ns = loop->now_ns + for_ns;
}

void loop_lose_ep(struct loop *loop, struct loop_ep *ep, int status, uint64_t at_ns, bool abrupt)
{
    if (ep == NULL || ep->lost_at_ns <= at_ns)
        return;
    ep->lost_at_ns = at_ns;
    ep->lost_status = status;
    ep->abrupt = abrupt;
    (void)loop;
}

void loop_lose(struct loop *loop, unsigned idx, int status, uint64_t within_ns)
{
    struct loop_ep *ep = ep_find(loop, idx), *peer = ep == NULL ? NULL : ep_find(loop, ep->peer);

    loop_lose_ep(loop, ep, status, loop->now_ns + sl_rng_below(&loop->rng, within_ns + 1), true);
    loop_lose_ep(loop, peer, status, loop->now_ns + sl_rng_below(&loop->rng, within_ns + 1), true);
}

void loop_lose_here(struct loop *loop, unsigned idx, int status)
{
    loop_lose_ep(loop, ep_find(loop, idx), status, loop->now_ns, true);
}

void loop_die(struct loop *loop, unsigned idx)
{
    struct loop_ep *ep = ep_find(loop, idx), *peer = ep == NULL ? NULL : ep_find(loop, ep->peer);

    if (ep == NULL)
        return;
    ep->dead = true;
    loop_lose_ep(loop, ep, -ECONNRESET, loop->now_ns, true);
    loop_lose_ep(loop, peer, -ECONNRESET, loop->now_ns + loop->latency_ns, true);
}

void loop_redials(struct loop *loop, uint32_t fail_in)
{
    loop->redial_fails_in = fail_in;
}

unsigned loop_live(const struct loop *loop)
{
    return loop->live;
}

const char *loop_misuse(const struct loop *loop)
{
    return loop->misuse[0] != '\0' ? loop->misuse : NULL;
}

/* Before tcp: so connections over the fake libibverbs have their sideband here. In this file, which
 * every user needs for loop_create(): of an archive, only objects that are referred to are linked.
 */
__attribute__((constructor)) static void loop_register(void)
{
    sl_assert(sl_transport_register(&loop_ops) == 0);
}
