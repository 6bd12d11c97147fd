/* SPDX-License-Identifier: Apache-2.0 */
/* Windows over shared memory: a rank whose own is smaller than it says, sums that are the same bits
 * on every rank, and ranks that run ahead of each other. */
#include "tests/unit/collectives/crew.h"

#include "core/rng.h"
#include "core/transport.h"
#include "core/registry.h"

#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

static const struct sl_transport_ops *shm;
static struct sl_transport_ops liar, its_ops;

/* The windows of this rank have a page for its peers, though all say the same size. */
static int register_a_page(struct sl_iface *iface, const struct sl_mem *mem, struct sl_mr **out,
                           struct sl_key *key)
{
    struct sl_mem less = *mem;

    less.len = 4096;
    return shm->mr_reg(iface, &less, out, key);
}

static int open_liar(struct sl_worker *worker, const struct sl_device *dev,
                     const struct sl_handler *handler, struct sl_iface **out)
{
    int err = shm->open(worker, dev, handler, out);

    if (err != 0)
        return err;
    its_ops = *(*out)->ops;
    its_ops.mr_reg = register_a_page;
    (*out)->ops = &its_ops;
    return 0;
}

static int set_up(void **state)
{
    (void)state;
    shm = sl_transport_find("shm", 3);
    assert_non_null(shm);
    liar = *shm;
    liar.open = open_liar;
    return 0;
}

static void sums(struct sluice_comm *comm, int rank)
{
    static const size_t counts[] = {1, 100, 5000, 300000};
    float *in = malloc(300000 * sizeof(*in)), *out = malloc(300000 * sizeof(*out));
    size_t wrong = 0;
    int err = 0;

    for (unsigned c = 0; c < SL_ARRAY_LEN(counts) && err == 0; c++) {
        for (size_t i = 0; i < counts[c]; i++)
            in[i] = (float)((size_t)rank + i % 100);
        err = sluice_allreduce(comm, in, out, counts[c], SLUICE_F32, SLUICE_SUM, NULL);
        for (size_t i = 0; i < counts[c] && err == 0; i++)
            wrong += out[i] != (float)(6 + 4 * (i % 100));
    }
    free(in);
    free(out);
    CREW_EXPECT(err == 0);
    CREW_EXPECT(wrong == 0);
}

static void without_windows(struct sluice_comm *comm, int rank)
{
    CREW_EXPECT(comm->win.slots == NULL);
    sums(comm, rank);
}

static void with_windows(struct sluice_comm *comm, int rank)
{
    CREW_EXPECT(comm->win.slots != NULL);
    CREW_EXPECT(comm->worker->near == comm->size - 1);
    sums(comm, rank);
}

static void a_rank_whose_window_is_smaller_than_it_says_harms_nobody(void **state)
{
    struct crew crew = {.ranks = 4, .settings = "", .ops = {shm, shm, shm, shm}};

    (void)state;
    RUN_CREW(&crew, with_windows);
    crew.ops[3] = &liar;
    RUN_CREW(&crew, without_windows);
}

/* ---- the same bits ---- */

#define BITS_MAX 20000

static float results[CREW_MAX][BITS_MAX];
static size_t bits_count;
static enum sluice_op bits_op;

/* Whose sum depends on the order of its parts: numbers of very different size, of both signs. */
static void different(float *in, size_t count, int rank)
{
    struct sl_rng rng;

    sl_rng_init(&rng, 1000 + (uint64_t)rank);
    for (size_t i = 0; i < count; i++) {
        float size = (float)(1 << sl_rng_below(&rng, 24));

        in[i] = ((float)sl_rng_below(&rng, 2000) - 1000.0f) / 1000.0f * size;
        if (bits_op == SLUICE_PROD)
            in[i] = 1.0f + in[i] / 3e7f;
    }
}

static void sum_of_different(struct sluice_comm *comm, int rank)
{
    float *in = malloc(BITS_MAX * sizeof(*in));
    int err;

    different(in, bits_count, rank);
    err = sluice_allreduce(comm, in, results[rank], bits_count, SLUICE_F32, bits_op, NULL);
    free(in);
    CREW_EXPECT(err == 0);
}

/* Direct algorithms read the windows of all ranks in one pass: in the same order everywhere, or
 * ranks drift apart. */
static void every_rank_has_the_same_bits(void **state)
{
    static const char *const algos[] = {
        "ALGO=flat",     "ALGO=direct",  "ALGO=ring",  "ALGO=biring",
        "ALGO=doubling", "ALGO=halving", "ALGO=dtree", ""};
    static const size_t counts[] = {1, 7, 1000, BITS_MAX};
    static const int sizes[] = {3, 4};

    (void)state;
    for (unsigned a = 0; a < SL_ARRAY_LEN(algos); a++)
        for (unsigned s = 0; s < SL_ARRAY_LEN(sizes); s++)
            for (unsigned c = 0; c < SL_ARRAY_LEN(counts); c++) {
                struct crew crew = {
                    .ranks = sizes[s], .settings = algos[a], .ops = {shm, shm, shm, shm}};
                bits_count = counts[c];
                bits_op = c % 2 == 0 ? SLUICE_SUM : SLUICE_PROD;
                RUN_CREW(&crew, sum_of_different);
                for (int r = 1; r < sizes[s]; r++)
                    if (memcmp(results[0], results[r], bits_count * sizeof(float)) != 0)
                        fail_msg("%s: ranks 0 and %d of %d differ in %zu elements", algos[a], r,
                                 sizes[s], bits_count);
            }
}

/* ---- ranks that run ahead ---- */

static size_t ahead_count;
static int ahead_calls;
static _Atomic bool root_is_through;

static bool root_got_through(void)
{
    time_t deadline = time(NULL) + 20;

    while (!root_is_through && time(NULL) < deadline)
        sched_yield();
    return root_is_through;
}

/* The others call only after the root has ended all its calls. */
static void after_the_root(struct sluice_comm *comm, int rank)
{
    uint64_t data[128] = {0};
    int err = 0;

    CREW_EXPECT(rank == 0 || root_got_through());
    for (int i = 1; i <= ahead_calls && err == 0; i++) {
        if (rank == 0)
            data[0] = data[ahead_count - 1] = (uint64_t)i;
        err = sluice_broadcast(comm, data, data, ahead_count, SLUICE_U64, 0, NULL);
        CREW_EXPECT(err != 0 || (data[0] == (uint64_t)i && data[ahead_count - 1] == (uint64_t)i));
    }
    CREW_EXPECT(err == 0);
    if (rank == 0)
        root_is_through = true;
    CREW_EXPECT(sluice_barrier(comm, NULL) == 0);
}

static void a_root_is_calls_ahead_of_the_others(void **state)
{
    static const struct {
        size_t count;
        int calls;
    } cases[] = {
        {1, SL_WIN_SLOTS - 2}, {6, SL_WIN_SLOTS - 2}, {7, SL_WIN_SHORTS}, {128, SL_WIN_SHORTS}};
    struct crew crew = {.ranks = 3, .settings = "ALGO=flat", .ops = {shm, shm, shm}};

    (void)state;
    for (unsigned c = 0; c < SL_ARRAY_LEN(cases); c++) {
        ahead_count = cases[c].count;
        ahead_calls = cases[c].calls;
        root_is_through = false;
        RUN_CREW(&crew, after_the_root);
    }
}

/* Slots and areas are used many times over, in all orders of sizes: nobody reads what is of another
 * call. */
static void calls_of_all_sizes(struct sluice_comm *comm, int rank)
{
    static const size_t counts[] = {1, 6, 7, 128, 129, 4000};
    uint64_t *data = malloc(4000 * sizeof(*data)), sum;
    struct sl_rng rng;
    size_t wrong = 0;
    int err = 0;

    sl_rng_init(&rng, 7); /* the same on all ranks */
    for (uint64_t i = 1; i <= 1500 && err == 0; i++) {
        size_t count = counts[sl_rng_below(&rng, SL_ARRAY_LEN(counts))];
        int root = (int)sl_rng_below(&rng, 3);
        uint64_t value = i * 10 + (uint64_t)rank;

        if (sl_rng_below(&rng, 4) == 0) {
            err = sluice_reduce(comm, &value, &sum, 1, SLUICE_U64, SLUICE_SUM, root, NULL);
            wrong += rank == root && sum != i * 30 + 3;
            continue;
        }
        data[0] = data[count - 1] = value;
        err = sluice_broadcast(comm, data, data, count, SLUICE_U64, root, NULL);
        wrong += data[0] != i * 10 + (uint64_t)root || data[count - 1] != data[0];
    }
    free(data);
    CREW_EXPECT(err == 0);
    CREW_EXPECT(wrong == 0);
}

static void calls_of_all_sizes_follow_each_other(void **state)
{
    struct crew crew = {.ranks = 3, .settings = "ALGO=flat", .ops = {shm, shm, shm}};

    (void)state;
    RUN_CREW(&crew, calls_of_all_sizes);
}

/* Each believes that it is the root of the second call, and needs nothing of the other. */
static void with_two_roots(struct sluice_comm *comm, int rank)
{
    uint64_t data = 0, sum;
    int err = sluice_allreduce(comm, &data, &sum, 1, SLUICE_U64, SLUICE_SUM, NULL);

    CREW_EXPECT(err == 0);
    CREW_EXPECT(sluice_broadcast(comm, &data, &data, 1, SLUICE_U64, rank, NULL) == 0);
    for (int i = 0; i < 5 && err == 0; i++)
        err = sluice_broadcast(comm, &data, &data, 1, SLUICE_U64, 0, NULL);
    if (err == 0)
        err = sluice_barrier(comm, NULL);
    CREW_EXPECT(err == -EPROTO);
    CREW_EXPECT(strstr(sluice_last_error(), "collective number 2") != NULL);
}

static void two_roots_are_noticed_calls_later(void **state)
{
    struct crew crew = {.ranks = 2, .settings = "ALGO=flat", .ops = {shm, shm}};

    (void)state;
    RUN_CREW(&crew, with_two_roots);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_root_is_calls_ahead_of_the_others),
        cmocka_unit_test(calls_of_all_sizes_follow_each_other),
        cmocka_unit_test(two_roots_are_noticed_calls_later),
        cmocka_unit_test(a_rank_whose_window_is_smaller_than_it_says_harms_nobody),
        cmocka_unit_test(every_rank_has_the_same_bits)};

    return cmocka_run_group_tests(tests, set_up, NULL);
}
