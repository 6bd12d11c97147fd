/* SPDX-License-Identifier: Apache-2.0 */
/* Pipes of wire-up on the simulated network: bytes in order, with the latency of their link. */
#include "core/wireup.h"
#include "testing/sim/net.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROOM 4096     /* bytes on their way in one direction */
#define PIECES_MAX 16 /* sends on their way */
#define BACKLOG 4096

struct piece {
    uint64_t at_ns; /* when it can be seen */
    size_t len;
};

/* One end. The other end writes into its inbox. */
struct sl_pipe {
    struct sl_sim_rank *rank;
    struct sl_pipe *other; /* NULL: it is gone */
    uint64_t over_ns;      /* when this end learns that the other hung up; SL_NEVER: not yet */
    struct piece pieces[PIECES_MAX];
    unsigned piece_count;
    size_t len;
    uint8_t bytes[ROOM];
};

struct knock {
    struct sl_node node;
    uint64_t at_ns;
    struct sl_pipe *pipe;
};

struct sl_wire {
    struct sl_sim_rank *rank;
    uint64_t number;
    struct sl_node knocks;
};

static void kick_rank(struct sl_sim *sim, struct sl_sim_event *event)
{
    sl_sim_kick(&sim->ranks[event->a]);
}

static void kick_at(struct sl_sim *sim, uint64_t at_ns, uint32_t rank)
{
    if (at_ns != SL_NEVER)
        sl_sim_at(sim, at_ns, kick_rank)->a = rank;
}

static struct sl_pipe *pipe_new(struct sl_sim_rank *rank)
{
    struct sl_pipe *pipe = calloc(1, sizeof(*pipe));

    sl_assert(pipe != NULL);
    pipe->rank = rank;
    pipe->over_ns = SL_NEVER;
    return pipe;
}

static void wire_hang_up(struct sl_pipe *pipe)
{
    struct sl_pipe *other = pipe->other;
    struct sl_sim *sim = pipe->rank->sim;

    if (other != NULL) {
        other->over_ns = sl_sim_transit(sim, pipe->rank->rank, other->rank->rank, 1);
        other->other = NULL;
        kick_at(sim, other->over_ns, other->rank->rank);
    }
    free(pipe);
}

static int wire_open(struct sl_worker *worker, bool one_host, struct sl_wireup_addr *addr,
                     struct sl_wire **out)
{
    struct sl_sim_rank *rank = worker->idle_arg;
    struct sl_wire *wire = calloc(1, sizeof(*wire));

    (void)one_host;
    sl_assert(wire != NULL && worker->idle == sl_sim_idle);
    wire->rank = rank;
    wire->number = ++rank->sim->wire_number;
    sl_list_init(&wire->knocks);
    sl_sim_table_put(&rank->sim->wires, wire->number, wire);
    memcpy(addr->id, &wire->number, sizeof(wire->number));
    addr->host = rank->host;
    *out = wire;
    return 0;
}

static void drop_knock(struct knock *knock)
{
    wire_hang_up(knock->pipe);
    sl_list_remove(&knock->node);
    free(knock);
}

static void wire_close(struct sl_wire *wire)
{
    if (wire == NULL)
        return;
    while (!sl_list_empty(&wire->knocks))
        drop_knock(sl_container_of(wire->knocks.next, struct knock, node));
    sl_sim_table_remove(&wire->rank->sim->wires, wire->number);
    free(wire);
}

static int wire_dial(struct sl_wire *wire, const struct sl_wireup_addr *to, unsigned n,
                     struct sl_pipe **out)
{
    struct sl_sim *sim = wire->rank->sim;
    struct sl_wire *target;
    struct knock *knock;
    uint64_t number;

    if (n > 0)
        return -ENODEV;
    memcpy(&number, to->id, sizeof(number));
    target = sl_sim_table_get(&sim->wires, number);
    if (target == NULL)
        return sl_fail(-ECONNREFUSED, "nobody listens there");
    knock = calloc(1, sizeof(*knock));
    sl_assert(knock != NULL);
    *out = pipe_new(wire->rank);
    knock->pipe = pipe_new(target->rank);
    knock->pipe->other = *out;
    (*out)->other = knock->pipe;
    knock->at_ns = sl_sim_transit(sim, wire->rank->rank, target->rank->rank, 1);
    sl_list_push_back(&target->knocks, &knock->node);
    kick_at(sim, knock->at_ns, target->rank->rank);
    return 0;
}

static int wire_accept(struct sl_wire *wire, struct sl_pending_set *set, struct sl_pending *pending,
                       uint64_t now_ns, struct sl_pipe **out)
{
    sl_list_foreach(&wire->knocks, node)
    {
        struct knock *knock = sl_container_of(node, struct knock, node);

        if (knock->at_ns > now_ns)
            continue;
        *out = knock->pipe;
        sl_list_remove(&knock->node);
        free(knock);
        sl_pending_add_user(set, pending, 0, 0, now_ns);
        return 0;
    }
    return -EAGAIN;
}

static ssize_t wire_send(struct sl_pipe *pipe, const void *bytes, size_t len)
{
    struct sl_pipe *other = pipe->other;
    struct sl_sim *sim = pipe->rank->sim;

    if (other == NULL)
        return -ECONNRESET;
    if (other->piece_count == PIECES_MAX || other->len == ROOM)
        return -EAGAIN;
    if (len > ROOM - other->len)
        len = ROOM - other->len;
    uint64_t at_ns = sl_sim_transit(sim, pipe->rank->rank, other->rank->rank, len);

    memcpy(other->bytes + other->len, bytes, len);
    other->len += len;
    other->pieces[other->piece_count++] = (struct piece){at_ns, len};
    kick_at(sim, at_ns, other->rank->rank);
    return (ssize_t)len;
}

static ssize_t wire_recv(struct sl_pipe *pipe, void *bytes, size_t len)
{
    struct piece *first = &pipe->pieces[0];
    uint64_t now_ns = pipe->rank->sim->now_ns;

    if (pipe->piece_count == 0 || first->at_ns > now_ns)
        return pipe->piece_count == 0 && pipe->over_ns <= now_ns ? 0 : -EAGAIN;
    if (len > first->len)
        len = first->len;
    memcpy(bytes, pipe->bytes, len);
    pipe->len -= len;
    memmove(pipe->bytes, pipe->bytes + len, pipe->len);
    first->len -= len;
    if (first->len == 0)
        memmove(first, first + 1, --pipe->piece_count * sizeof(*first));
    return (ssize_t)len;
}

static int wire_random(struct sl_wire *wire, void *out, size_t len)
{
    for (size_t i = 0; i < len; i++)
        ((uint8_t *)out)[i] = (uint8_t)sl_rng_u64(&wire->rank->sim->rng);
    return 0;
}

static const char *wire_to(const struct sl_pipe *pipe)
{
    (void)pipe;
    return "its fiber";
}

static int wire_fd(const struct sl_pipe *pipe)
{
    (void)pipe;
    return -1;
}

static unsigned wire_listeners(const struct sl_wire *wire, struct pollfd *out, unsigned cap)
{
    (void)wire, (void)out, (void)cap;
    return 0;
}

const struct sl_wire_ops sl_sim_wire_ops = {
    .open = wire_open,
    .close = wire_close,
    .dial = wire_dial,
    .accept = wire_accept,
    .send = wire_send,
    .recv = wire_recv,
    .hang_up = wire_hang_up,
    .to = wire_to,
    .fd = wire_fd,
    .random = wire_random,
    .listeners = wire_listeners,
};
