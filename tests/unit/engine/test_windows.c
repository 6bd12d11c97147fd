/* SPDX-License-Identifier: Apache-2.0 */
/* Windows over shared memory: a rank whose own is smaller than it says, and sums that are the same bits on every rank. */
#include "tests/unit/engine/crew.h"

#include "core/rng.h"
#include "core/transport.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const struct sl_transport_ops *shm;
static struct sl_transport_ops liar, its_ops;

/* The windows of this rank have a page for its peers, though all say the same size. */
static int register_a_page(struct sl_iface *iface, const struct sl_mem *mem, struct sl_mr **out, struct sl_key *key)
{
    struct sl_mem less = *mem;

    less.len = 4096;
    return shm->mr_reg(iface, &less, out, key);
}

static int open_liar(struct sl_worker *worker, const struct sl_device *dev, const struct sl_handler *handler,
                     struct sl_iface **out)
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
    CREW_EXPECT(comm->win_half[0] == NULL);
    sums(comm, rank);
}

static void with_windows(struct sluice_comm *comm, int rank)
{
    CREW_EXPECT(comm->win_half[0] != NULL);
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

/* Direct algorithms read the windows of all ranks in one pass: in the same order everywhere, or ranks drift apart. */
static void every_rank_has_the_same_bits(void **state)
{
    static const char *const algos[] = {"ALGO=flat", "ALGO=direct", "ALGO=ring", "ALGO=biring", "ALGO=doubling",
                                        "ALGO=halving", "ALGO=dtree", ""};
    static const size_t counts[] = {1, 7, 1000, BITS_MAX};
    static const int sizes[] = {3, 4};

    (void)state;
    for (unsigned a = 0; a < SL_ARRAY_LEN(algos); a++)
        for (unsigned s = 0; s < SL_ARRAY_LEN(sizes); s++)
            for (unsigned c = 0; c < SL_ARRAY_LEN(counts); c++) {
                struct crew crew = {.ranks = sizes[s], .settings = algos[a], .ops = {shm, shm, shm, shm}};
                bits_count = counts[c];
                bits_op = c % 2 == 0 ? SLUICE_SUM : SLUICE_PROD;
                RUN_CREW(&crew, sum_of_different);
                for (int r = 1; r < sizes[s]; r++)
                    if (memcmp(results[0], results[r], bits_count * sizeof(float)) != 0)
                        fail_msg("%s: ranks 0 and %d of %d differ in %zu elements", algos[a], r, sizes[s], bits_count);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_whose_window_is_smaller_than_it_says_harms_nobody),
        cmocka_unit_test(every_rank_has_the_same_bits)};

    return cmocka_run_group_tests(tests, set_up, NULL);
}
