/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine over transports that use every freedom of the contract: storms of -EAGAIN, completions
 * that come late and in another order, small budgets. Every collective, with several in flight, on
 * two to four ranks (threads). usage: test_faulty shm|tcp
 */
#include "core/rng.h"
#include "core/transport.h"
#include "tests/fake/faulty.h"
#include "tests/unit/collectives/crew.h"
#include "core/registry.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define IN_FLIGHT 3
#define COUNT_MAX 20000
#define ROUNDS 12

static const char *transport;
static uint64_t seed;

static int32_t value(unsigned call, int rank, size_t i)
{
    return (int32_t)((i * 7 + call * 13 + (size_t)rank * 3) % 1001);
}

struct call {
    enum {
        ALLREDUCE,
        REDUCE_SCATTER,
        ALL_GATHER,
        BROADCAST,
        REDUCE,
        GATHER,
        SCATTER,
        ALL_TO_ALL,
        BARRIER,
        KINDS
    } kind;
    unsigned number;
    int root;
    size_t count;
    int32_t *in, *out;
    struct sluice_req *req;
};

static size_t times_in(const struct call *c, int size)
{
    return c->kind == REDUCE_SCATTER || c->kind == SCATTER || c->kind == ALL_TO_ALL ? (size_t)size
                                                                                    : 1;
}

static size_t times_out(const struct call *c, int size)
{
    return c->kind == ALL_GATHER || c->kind == GATHER || c->kind == ALL_TO_ALL ? (size_t)size : 1;
}

static int32_t sum(const struct call *c, int size, size_t i)
{
    int32_t all = 0;

    for (int r = 0; r < size; r++)
        all += value(c->number, r, i);
    return all;
}

static int32_t expected(const struct call *c, int rank, int size, size_t i)
{
    size_t block = i / c->count, at = i % c->count, mine = (size_t)rank * c->count;

    switch (c->kind) {
    case ALLREDUCE:
    case REDUCE: return sum(c, size, i);
    case REDUCE_SCATTER: return sum(c, size, mine + i);
    case ALL_GATHER:
    case GATHER: return value(c->number, (int)block, at);
    case BROADCAST: return value(c->number, c->root, i);
    case SCATTER: return value(c->number, c->root, mine + i);
    case ALL_TO_ALL: return value(c->number, (int)block, mine + at);
    default: return 0;
    }
}

static bool has_result(const struct call *c, int rank)
{
    return c->kind != BARRIER && ((c->kind != REDUCE && c->kind != GATHER) || rank == c->root);
}

static int start(struct sluice_comm *comm, struct call *c)
{
    const enum sluice_dtype t = SLUICE_I32;

    switch (c->kind) {
    case ALLREDUCE: return sluice_allreduce(comm, c->in, c->out, c->count, t, SLUICE_SUM, &c->req);
    case REDUCE_SCATTER:
        return sluice_reduce_scatter(comm, c->in, c->out, c->count, t, SLUICE_SUM, &c->req);
    case ALL_GATHER: return sluice_all_gather(comm, c->in, c->out, c->count, t, &c->req);
    case BROADCAST: return sluice_broadcast(comm, c->in, c->out, c->count, t, c->root, &c->req);
    case REDUCE:
        return sluice_reduce(comm, c->in, c->out, c->count, t, SLUICE_SUM, c->root, &c->req);
    case GATHER: return sluice_gather(comm, c->in, c->out, c->count, t, c->root, &c->req);
    case SCATTER: return sluice_scatter(comm, c->in, c->out, c->count, t, c->root, &c->req);
    case ALL_TO_ALL: return sluice_all_to_all(comm, c->in, c->out, c->count, t, &c->req);
    default: return sluice_barrier(comm, &c->req);
    }
}

static size_t wrong_in(const struct call *c, int rank, int size)
{
    size_t wrong = 0;

    for (size_t i = 0; has_result(c, rank) && i < c->count * times_out(c, size); i++)
        wrong += c->out[i] != expected(c, rank, size, i);
    return wrong;
}

/* The same draws on all ranks. */
static void some_calls(struct sluice_comm *comm, int rank)
{
    struct call calls[IN_FLIGHT] = {0};
    int size = sluice_comm_size(comm), err = 0;
    size_t wrong = 0;
    struct sl_rng draw;

    sl_rng_init(&draw, seed);
    for (unsigned i = 0; i < IN_FLIGHT; i++) {
        calls[i].in = malloc(CREW_MAX * COUNT_MAX * sizeof(int32_t));
        calls[i].out = malloc(CREW_MAX * COUNT_MAX * sizeof(int32_t));
    }
    for (unsigned round = 0; round < ROUNDS && err == 0; round++) {
        for (unsigned i = 0; i < IN_FLIGHT && err == 0; i++) {
            struct call *c = &calls[i];

            c->kind = sl_rng_below(&draw, KINDS);
            c->number = round * IN_FLIGHT + i;
            c->root = (int)sl_rng_below(&draw, (uint64_t)size);
            c->count = 1 + sl_rng_below(&draw, sl_rng_chance(&draw, 3) ? COUNT_MAX : 300);
            for (size_t k = 0; k < c->count * times_in(c, size); k++)
                c->in[k] = value(c->number, rank, k);
            err = start(comm, c);
        }
        for (unsigned i = 0; i < IN_FLIGHT; i++) {
            if (err == 0)
                err = sluice_wait(calls[i].req);
            sluice_req_free(calls[i].req);
            calls[i].req = NULL;
            if (err == 0)
                wrong += wrong_in(&calls[i], rank, size);
        }
    }
    for (unsigned i = 0; i < IN_FLIGHT; i++) {
        free(calls[i].in);
        free(calls[i].out);
    }
    CREW_EXPECT(err == 0);
    CREW_EXPECT(wrong == 0);
}

static void collectives_survive_every_freedom_of_a_transport(void **state)
{
    static const char *const settings[] = {
        "", "ALGO=ring", "SHM_WINDOW_BYTES=16384", "ALGO=doubling", "ALGO=halving", "ALGO=bruck"};
    const struct sl_transport_ops *inner = sl_transport_find(transport, strlen(transport));

    (void)state;
    assert_non_null(inner);
    for (seed = 1; seed <= 36; seed++) {
        struct crew crew = {.ranks = 2 + (int)(seed % 3),
                            .settings = settings[seed / 3 % SL_ARRAY_LEN(settings)]};
        const struct sl_transport_ops *ops = faulty_wrap(inner, seed);
        const char *why;

        for (int r = 0; r < crew.ranks; r++)
            crew.ops[r] = ops;
        why = crew_run(&crew, some_calls);
        if (why != NULL)
            fail_msg("seed %llu: %s", (unsigned long long)seed, why);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collectives_survive_every_freedom_of_a_transport)};

    transport = argc > 1 ? argv[1] : "shm";
    return cmocka_run_group_tests(tests, NULL, NULL);
}
