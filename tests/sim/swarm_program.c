/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank of the swarm does: makes communicators, calls, waits, compares, cleans up. */
#include "core/err.h"
#include "tests/sim/swarm.h"

#include <stdlib.h>
#include <string.h>

#define GUARD 32
#define BEFORE 0x5c /* what stands in memory that nobody may write */

/* One call of one rank and its memory. */
struct under_way {
    struct swarm_part part;
    struct swarm_call call;
    struct sluice_req *req[2]; /* the second: the receive of SL_SEND */
    uint8_t *in_block, *out_block, *in, *out;
    uint64_t in_count, out_count;
    size_t *v; /* four arrays of all_to_all_v */
    struct sluice_operation *operation;
    bool started;
};

static struct sl_comm_params comm_params(const struct swarm *s, uint32_t rank,
                                         const struct sl_comm_transport *transport,
                                         const struct sl_config *config)
{
    return (struct sl_comm_params){
        .config = config,
        .clock = sl_sim_clock(s->sim),
        .seed = s->seed + rank,
        .idle = sl_sim_idle,
        .idle_arg = sl_sim_idle_arg(s->sim, rank),
        .wire = &sl_sim_wire_ops,
        .transports = transport,
        .transport_count = 1,
    };
}

static int make_comms(struct swarm_rank *r)
{
    static struct sl_transport_ops complete;
    struct swarm *s = r->swarm;
    struct sl_comm_transport transport = {.ops = sl_transport_complete(&sl_sim_ops, &complete)};
    struct sl_config config = s->config;
    struct sl_comm_params params = comm_params(s, r->rank, &transport, &config);
    int err;

    snprintf(config.host_id, sizeof(config.host_id), "host%u", s->host[r->rank]);
    err = sl_comm_create(r->exchange, &params, &r->comm[0]);
    if (err == 0 && s->anew)
        err = sl_comm_create(r->half, &params, &r->comm[1]);
    else if (err == 0 && s->split)
        err = sluice_comm_split(r->comm[0], (int)r->rank % 2, 0, &r->comm[1]);
    return err;
}

/* Nobody was lost, so comm 1 has the connections of comm 0; it would have windows of its own only
 * where the others have none for want of room. */
static void check_shared(struct swarm_rank *r)
{
    const struct swarm *s = r->swarm;

    if (s->split && s->mode == SWARM_WELL && s->ranks <= 64 && r->made == 0 &&
        r->comm[1]->family != r->comm[0]->family)
        snprintf(r->wrong, sizeof(r->wrong), "rank %u: its communicators share nothing", r->rank);
}

static bool reads_in(const struct under_way *u)
{
    bool rooted = u->call.coll == SL_BROADCAST || u->call.coll == SL_SCATTER;

    return !rooted || u->part.rank == u->call.root;
}

/* Where in and out meet in an in-place call, as comm.h tells. */
static void place_in_place(struct under_way *u, size_t esize)
{
    uint64_t own = u->part.rank * u->call.count * esize;
    bool is_root = u->part.rank == u->call.root;

    switch (u->call.coll) {
    case SL_ALLREDUCE:
    case SL_ALL_TO_ALL: u->in = u->out; break;
    case SL_REDUCE:
    case SL_BROADCAST: u->in = is_root ? u->out : u->in; break;
    case SL_REDUCE_SCATTER: u->out = u->in + own; break;
    case SL_ALL_GATHER: u->in = u->out + own; break;
    case SL_GATHER: u->in = is_root ? u->out + own : u->in; break;
    case SL_SCATTER: u->out = is_root ? u->in + own : u->out; break;
    default: break;
    }
}

static void prepare(struct under_way *u, size_t esize)
{
    const struct swarm_part *p = &u->part;

    u->in_count = swarm_in_count(p);
    u->out_count = swarm_out_count(p);
    u->in_block = malloc(u->in_count * esize + 2 * GUARD);
    u->out_block = malloc(u->out_count * esize + 2 * GUARD);
    sl_assert(u->in_block != NULL && u->out_block != NULL);
    memset(u->in_block, BEFORE, u->in_count * esize + 2 * GUARD);
    memset(u->out_block, BEFORE, u->out_count * esize + 2 * GUARD);
    u->in = u->in_block + GUARD;
    u->out = u->out_block + GUARD;
    if (u->call.in_place)
        place_in_place(u, esize);
    for (uint64_t i = 0; i < u->in_count && reads_in(u); i++)
        swarm_store(u->in + i * esize, u->call.dtype, swarm_input(p, p->rank, i));
    if (u->call.coll != SL_ALL_TO_ALL_V)
        return;
    u->v = calloc(4 * p->size, sizeof(u->v[0]));
    sl_assert(u->v != NULL);
    for (uint32_t r = 0; r < p->size; r++) {
        size_t *v = u->v + r;

        v[0] = swarm_v_count(p, p->rank, r);
        v[2 * p->size] = swarm_v_count(p, r, p->rank);
        if (r > 0) {
            v[p->size] = v[p->size - 1] + v[-1];
            v[3 * p->size] = v[3 * p->size - 1] + v[2 * p->size - 1];
        }
    }
}

static int start_pair(struct under_way *u, struct sluice_comm *comm)
{
    int next = (int)((u->part.rank + 1) % u->part.size);
    int prev = (int)((u->part.rank + u->part.size - 1) % u->part.size), err;

    err = sluice_send(comm, u->in, u->call.count, u->call.dtype, next, &u->req[0]);
    return err != 0 ? err
                    : sluice_recv(comm, u->out, u->call.count, u->call.dtype, prev, &u->req[1]);
}

static int make_operation(struct under_way *u, struct sluice_comm *comm)
{
    struct sluice_operation **o = &u->operation;
    const struct swarm_call *c = &u->call;
    uint32_t n = u->part.size;
    int root = (int)c->root;

    switch (c->coll) {
    case SL_ALLREDUCE:
        return sluice_allreduce_init(comm, u->in, u->out, c->count, c->dtype, c->op, o);
    case SL_REDUCE_SCATTER:
        return sluice_reduce_scatter_init(comm, u->in, u->out, c->count, c->dtype, c->op, o);
    case SL_ALL_GATHER: return sluice_all_gather_init(comm, u->in, u->out, c->count, c->dtype, o);
    case SL_BROADCAST:
        return sluice_broadcast_init(comm, u->in, u->out, c->count, c->dtype, root, o);
    case SL_REDUCE:
        return sluice_reduce_init(comm, u->in, u->out, c->count, c->dtype, c->op, root, o);
    case SL_GATHER: return sluice_gather_init(comm, u->in, u->out, c->count, c->dtype, root, o);
    case SL_SCATTER: return sluice_scatter_init(comm, u->in, u->out, c->count, c->dtype, root, o);
    case SL_ALL_TO_ALL: return sluice_all_to_all_init(comm, u->in, u->out, c->count, c->dtype, o);
    case SL_ALL_TO_ALL_V:
        return sluice_all_to_all_v_init(comm, u->in, u->v, u->v + n, u->out, u->v + 2 * n,
                                        u->v + 3 * n, c->dtype, o);
    default: return sluice_barrier_init(comm, o);
    }
}

static int start_operation(struct under_way *u, struct sluice_comm *comm, struct sluice_req **req)
{
    int err = make_operation(u, comm);

    return err != 0 ? err : sluice_start(u->operation, req);
}

static int start(struct under_way *u, struct sluice_comm *comm)
{
    struct sluice_req **req = u->call.blocking ? NULL : &u->req[0];
    const struct swarm_call *c = &u->call;
    uint32_t n = u->part.size;
    int root = (int)c->root;

    if (c->persistent)
        return start_operation(u, comm, req);
    switch (c->coll) {
    case SL_ALLREDUCE: return sluice_allreduce(comm, u->in, u->out, c->count, c->dtype, c->op, req);
    case SL_REDUCE_SCATTER:
        return sluice_reduce_scatter(comm, u->in, u->out, c->count, c->dtype, c->op, req);
    case SL_ALL_GATHER: return sluice_all_gather(comm, u->in, u->out, c->count, c->dtype, req);
    case SL_BROADCAST: return sluice_broadcast(comm, u->in, u->out, c->count, c->dtype, root, req);
    case SL_REDUCE: return sluice_reduce(comm, u->in, u->out, c->count, c->dtype, c->op, root, req);
    case SL_GATHER: return sluice_gather(comm, u->in, u->out, c->count, c->dtype, root, req);
    case SL_SCATTER: return sluice_scatter(comm, u->in, u->out, c->count, c->dtype, root, req);
    case SL_ALL_TO_ALL: return sluice_all_to_all(comm, u->in, u->out, c->count, c->dtype, req);
    case SL_ALL_TO_ALL_V:
        return sluice_all_to_all_v(comm, u->in, u->v, u->v + n, u->out, u->v + 2 * n, u->v + 3 * n,
                                   c->dtype, req);
    case SL_BARRIER: return sluice_barrier(comm, req);
    default: return u->part.size > 1 ? start_pair(u, comm) : 0;
    }
}

static void check_bytes(struct swarm_rank *r, const struct under_way *u, const uint8_t *block,
                        const uint8_t *data, uint64_t count, bool out)
{
    size_t esize = sluice_dtype_size(u->call.dtype);
    uint8_t want[8];
    int64_t value = 0;

    for (uint64_t i = 0; i < count && r->wrong[0] == '\0'; i++) {
        bool written = out ? swarm_expected(&u->part, i, &value) : reads_in(u);

        if (!out)
            value = swarm_input(&u->part, u->part.rank, i);
        memset(want, BEFORE, sizeof(want));
        if (written)
            swarm_store(want, u->call.dtype, value);
        if (memcmp(want, data + i * esize, esize) != 0)
            snprintf(r->wrong, sizeof(r->wrong),
                     "rank %u: %s: element %llu of %s %llu is %u.., not %lld", r->rank,
                     sl_coll_name(u->call.coll), (unsigned long long)i,
                     out ? "the output's" : "the input's", (unsigned long long)count,
                     data[i * esize], written ? (long long)value : -1LL);
    }
    for (unsigned i = 0; i < GUARD && r->wrong[0] == '\0'; i++)
        if (block[i] != BEFORE || block[GUARD + count * esize + i] != BEFORE)
            snprintf(r->wrong, sizeof(r->wrong), "rank %u: %s: memory beside the %s was written",
                     r->rank, sl_coll_name(u->call.coll), out ? "output" : "input");
}

static void check(struct swarm_rank *r, const struct under_way *u)
{
    bool alone = u->call.coll == SL_SEND && u->part.size == 1;
    bool root = u->part.rank == u->call.root;
    /* Where in and out meet, the other block was not used, or holds other things too. */
    bool out_apart = u->out == u->out_block + GUARD, in_apart = u->in == u->in_block + GUARD;

    if (u->call.in_place && u->call.coll == SL_REDUCE && !root)
        in_apart = true;
    if (!alone && out_apart)
        check_bytes(r, u, u->out_block, u->out, u->out_count, true);
    else if (!alone)
        for (uint64_t i = 0; i < u->out_count && r->wrong[0] == '\0'; i++) {
            size_t esize = sluice_dtype_size(u->call.dtype);
            uint8_t want[8];
            int64_t value;

            if (!swarm_expected(&u->part, i, &value))
                continue;
            swarm_store(want, u->call.dtype, value);
            if (memcmp(want, u->out + i * esize, esize) != 0)
                snprintf(r->wrong, sizeof(r->wrong),
                         "rank %u: %s in place: element %llu is not %lld", r->rank,
                         sl_coll_name(u->call.coll), (unsigned long long)i, (long long)value);
        }
    if (in_apart && out_apart)
        check_bytes(r, u, u->in_block, u->in, u->in_count, false);
}

static void keep(struct swarm_rank *r, unsigned idx, int result)
{
    r->result[idx] = result;
    if (result < 0)
        snprintf(r->text[idx], sizeof(r->text[idx]), "%s", sluice_last_error());
}

static void finish(struct swarm_rank *r, struct under_way *u, unsigned idx)
{
    if (!u->started)
        return;
    u->started = false;
    for (unsigned k = 0; k < 2; k++) {
        int err = sluice_wait(u->req[k]);

        if (u->req[k] == NULL)
            continue;
        if (r->result[idx] >= 0 && err != 0)
            keep(r, idx, err);
        if (sluice_wait(u->req[k]) != err)
            snprintf(r->wrong, sizeof(r->wrong), "rank %u: call %u ended twice", r->rank, idx);
        sluice_req_free(u->req[k]);
    }
    if (r->result[idx] > 0)
        r->result[idx] = 0;
    if (r->result[idx] == 0 && r->wrong[0] == '\0')
        check(r, u);
}

/* Waits for all calls under way, moving both communicators on. */
static void drain(struct swarm_rank *r, struct under_way *u)
{
    bool pending = true;

    while (pending) {
        pending = false;
        for (unsigned i = 0; i < SWARM_CALLS; i++)
            for (unsigned k = 0; k < 2; k++)
                pending |= u[i].started && u[i].req[k] != NULL && sluice_test(u[i].req[k]) == 0;
        if (pending)
            r->comm[0]->worker->idle(r->comm[0]->worker);
    }
}

static void begin(struct swarm_rank *r, struct under_way *u, unsigned idx)
{
    struct swarm *s = r->swarm;
    struct sluice_comm *comm;
    int err;

    u->call = s->mode == SWARM_MISMATCH && idx == s->odd && r->rank == s->culprit ? s->wrong
                                                                                  : s->calls[idx];
    comm = r->comm[u->call.comm];
    u->part = (struct swarm_part){&u->call, (uint32_t)sluice_comm_size(comm),
                                  (uint32_t)sluice_comm_rank(comm), s->seed * 131 + idx};
    if (u->call.comm == 1)
        u->part.salt += (uint64_t)(r->rank % 2 + 1) << 40;
    prepare(u, sluice_dtype_size(u->call.dtype));
    err = start(u, comm);
    if (err != 0)
        keep(r, idx, err);
    else if (u->call.blocking)
        r->result[idx] = 0;
    u->started = true;
}

void swarm_program(void *arg)
{
    struct swarm_rank *r = arg;
    struct swarm *s = r->swarm;
    struct under_way *u = calloc(SWARM_CALLS, sizeof(*u));
    struct sl_rng rng;

    sl_assert(u != NULL);
    sl_rng_init(&rng, s->seed * 1000 + r->rank);
    for (unsigned i = 0; i < SWARM_CALLS; i++)
        r->result[i] = 1;
    r->made = make_comms(r);
    check_shared(r);
    if (r->made != 0)
        snprintf(r->text[SWARM_CALLS], sizeof(r->text[0]), "%s", sluice_last_error());
    for (unsigned i = 0; r->made == 0 && i < s->call_count; i++) {
        if (s->mode == SWARM_ABORT && i == s->abort_at && r->rank == s->culprit)
            sluice_comm_abort(r->comm[0]);
        /* Nobody leaves before all have met, or some could never be told that calls differ. */
        for (unsigned k = 0; s->mode == SWARM_MISMATCH && i + 1 == s->call_count && k < i; k++)
            finish(r, &u[k], k);
        begin(r, &u[i], i);
        /* Sometimes others get a turn between calls, sometimes an older one is waited for. */
        if (sl_rng_chance(&rng, 4))
            sluice_comm_async_error(r->comm[0]);
        if (sl_rng_chance(&rng, 4))
            r->comm[0]->worker->idle(r->comm[0]->worker);
    }
    if (s->split && r->made == 0)
        drain(r, u);
    for (unsigned i = s->call_count; i-- > 0;)
        finish(r, &u[i], i);
    for (unsigned i = 0; i < SWARM_CALLS; i += 2)
        sluice_operation_free(u[i].operation);
    sluice_comm_destroy(r->comm[1]);
    sluice_comm_destroy(r->comm[0]);
    for (unsigned i = 1; i < SWARM_CALLS; i += 2) /* outlive their communicators */
        sluice_operation_free(u[i].operation);
    for (unsigned i = 0; i < SWARM_CALLS; i++) {
        free(u[i].in_block);
        free(u[i].out_block);
        free(u[i].v);
    }
    free(u);
}
