/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of sparse vectors: the bits of a plain sum, whichever way is taken, and the way is that
 * which sends fewer bytes. */
#include "draw.h"
#include "ranks.h"

#include "compress/train/sparse_sum.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "core/err.h"

#define COUNT 60013
#define MOST 1200
#define STEPS 3

enum places { ANYWHERE, ALIKE, ALIKE_IN_A_CORNER, APART, ALL_IN_ONE, NONE_OF_SOME, PLACES };

struct plan {
    enum places places;
    struct sl_sparse_spec spec;
    size_t most; /* 0: MOST */
    int lies;    /* the call of the network in which rank 1 gives nonsense; 0: in none */
    int anew;    /* the rank that begins anew before the last step, and 1; 0: none does */
    bool by_regions[RANKS_MOST][STEPS];
    size_t bytes[STEPS], sent[STEPS], largest; /* of rank 0; of a region, entries of all ranks */
};

static float outs[RANKS_MOST][COUNT], wanted[COUNT];

/* What a rank gives: the same to whoever asks. */
static size_t draw(const struct plan *plan, uint32_t rank, uint32_t ranks, unsigned step,
                   uint32_t *index, float *value)
{
    uint64_t state = rank * 1000 + step + 1;
    size_t kept = 0, most = plan->most != 0 ? plan->most : MOST;
    static const struct {
        uint32_t first, gap;
    } shapes[] = {{0, COUNT / MOST},
                  {0, COUNT / MOST},
                  {COUNT - 2 * MOST, 2},
                  {0, COUNT / MOST / 10u},
                  {0, 1},
                  {0, COUNT / MOST}};
    uint32_t at = shapes[plan->places].first;

    if (plan->places == APART)
        at += COUNT / ranks * rank;
    if (plan->places == NONE_OF_SOME && rank % 2 == 1)
        return 0;
    for (; kept < most; kept++) {
        uint32_t gap = shapes[plan->places].gap, step_of = gap;

        state = state * 6364136223846793005u + 1442695040888963407u;
        if (plan->places == ANYWHERE || plan->places == NONE_OF_SOME)
            step_of = 1 + (uint32_t)(state >> 33) % (2 * gap - 1);
        if (plan->places == APART)
            step_of = gap > 0 ? gap : 1;
        if (at >= COUNT)
            break;
        index[kept] = at;
        value[kept] = (float)((int64_t)(state >> 40) - (1 << 23)) * 0x1p-20f;
        if (plan->spec.bf16)
            value[kept] = (float)(int)(value[kept] * 16);
        at += step_of;
    }
    return kept;
}

/* A network that counts what a rank gives it, as many times as there are others to get it, and that
 * gives nonsense in one call. */
struct meter {
    const struct sl_net *net;
    size_t bytes;
    int calls, lies;
};

static int metered(struct meter *m, const void *in, size_t len, size_t all, void *out,
                   int (*call)(void *, const void *, size_t, void *))
{
    void *nonsense = memset(malloc(all + 1), 0xee, all + 1);
    int err;

    m->bytes += len * (m->net->ranks - 1);
    err = call(m->net->arg, ++m->calls == m->lies ? nonsense : in, len, out);
    free(nonsense);
    return err;
}

static int gather(void *arg, const void *in, size_t len, void *out)
{
    struct meter *m = arg;

    return metered(m, in, len, len, out, m->net->gather);
}

static int exchange(void *arg, const void *in, size_t len, void *out)
{
    struct meter *m = arg;

    return metered(m, in, len, len * m->net->ranks, out, m->net->exchange);
}

static int run(const struct sl_net *inner, void *arg)
{
    struct plan *plan = arg;
    struct meter meter = {inner, 0, 0, inner->rank == 1 ? plan->lies : 0};
    const struct sl_net metered = {&meter, inner->rank, inner->ranks, NULL, gather, exchange};
    const struct sl_net *net = &metered;
    uint32_t *index = malloc(MOST * sizeof(*index));
    float *value = malloc(MOST * sizeof(*value));
    struct sl_room count = {0}, room;
    struct sl_sparse_sum s;
    size_t before = 0;
    int err = 0;

    sl_sparse_sum_lay(&s, net, &plan->spec, COUNT, plan->most != 0 ? plan->most : MOST, &count);
    room = (struct sl_room){.memory = ranks_memory(count.used)};
    sl_sparse_sum_lay(&s, net, &plan->spec, COUNT, plan->most != 0 ? plan->most : MOST, &room);
    char *memory = room.memory;

    for (unsigned i = 0; err == 0 && i < STEPS; i++) {
        size_t kept = draw(plan, net->rank, net->ranks, i, index, value);

        if (i == STEPS - 1 && plan->anew == (int)net->rank + 1)
            sl_sparse_sum_lay(&s, net, &plan->spec, COUNT, MOST,
                              &(struct sl_room){.memory = memory});
        err = sl_sparse_sum(&s, index, value, kept, outs[net->rank]);
        plan->by_regions[net->rank][i] = s.by_regions;
        if (net->rank != 0)
            continue;
        plan->bytes[i] = meter.bytes - before;
        before = meter.bytes;
        plan->sent[i] = s.sent;
        for (uint32_t w = 0; w < net->ranks && net->ranks > 2; w++) {
            size_t all = 0;

            for (uint32_t r = 0; r < net->ranks; r++)
                all += s.counts[r * net->ranks + w];
            plan->largest = all > plan->largest ? all : plan->largest;
        }
    }
    free(memory);
    free(index);
    free(value);
    return err;
}

static void model(const struct plan *plan, uint32_t ranks, unsigned step)
{
    static uint32_t index[MOST];
    static float value[MOST];

    memset(wanted, 0, sizeof(wanted));
    for (uint32_t r = 0; r < ranks; r++) {
        size_t kept = draw(plan, r, ranks, step, index, value);

        for (size_t i = 0; i < kept; i++)
            wanted[index[i]] += value[i];
    }
}

static void check(struct plan *plan, uint32_t ranks)
{
    assert_int_equal(ranks_run(ranks, run, plan), 0);
    model(plan, ranks, STEPS - 1);
    for (uint32_t r = 0; r < ranks; r++) {
        assert_memory_equal(outs[r], wanted, sizeof(wanted));
        assert_memory_equal(plan->by_regions[r], plan->by_regions[0], STEPS);
    }
}

static void sums_have_the_bits_of_a_plain_sum_for_1_to_8_ranks(void **state)
{
    unsigned by_regions = 0, gathered = 0;

    (void)state;
    for (uint32_t ranks = 1; ranks <= RANKS_MOST; ranks++)
        for (int places = 0; places < PLACES; places++) {
            struct plan plan = {.places = (enum places)places,
                                .spec = {.bf16 = places % 2 == 1, .rice = ranks % 2 == 1}};

            check(&plan, ranks);
            by_regions += plan.by_regions[0][STEPS - 1];
            gathered += !plan.by_regions[0][STEPS - 1];
        }
    assert_true(by_regions >= 10 && gathered >= 10);
}

/* What rank 0 gives to the network; each way's bytes go to all others. */
static void regions_are_taken_where_they_send_fewer_bytes(void **state)
{
    (void)state;
    for (uint32_t ranks = 2; ranks <= RANKS_MOST; ranks++) {
        struct plan alike = {.places = ALIKE}, apart = {.places = APART};

        check(&alike, ranks);
        check(&apart, ranks);
        assert_false(alike.by_regions[0][0]); /* nothing is known yet */
        assert_int_equal(alike.by_regions[0][1], ranks > 2);
        assert_false(apart.by_regions[0][1]);
        printf("# %u ranks, %d entries each, the same places: gathered %zu bytes, by regions %zu\n",
               ranks, MOST, alike.bytes[0], alike.bytes[1]);
        if (ranks > 2)
            assert_true(alike.bytes[1] < alike.bytes[0]);
    }
}

/* Wherever the entries are: that no region has more than its owner has room for is what they are
 * cut for. */
static void regions_have_about_as_many_entries_each(void **state)
{
    (void)state;
    for (int places = 0; places < PLACES; places++)
        for (uint32_t ranks = 3; ranks <= RANKS_MOST; ranks++) {
            struct plan plan = {.places = (enum places)places};

            check(&plan, ranks);
            assert_true(plan.largest <= MOST * 3 / 2 + 2 * ranks);
        }
}

/* As one whose process has ended, where the others go on. */
static void a_rank_that_begins_anew_takes_the_way_of_the_others(void **state)
{
    (void)state;
    for (int anew = 1; anew <= 3; anew++) {
        struct plan plan = {.places = ALIKE, .anew = anew};

        check(&plan, 4);
        assert_true(plan.by_regions[0][STEPS - 2]);
        assert_int_equal(plan.by_regions[0][STEPS - 1], anew != 1);
    }
}

static void a_few_entries_are_gathered(void **state)
{
    (void)state;
    for (size_t most = 1; most <= 16; most *= 4) {
        struct plan plan = {.places = ALIKE, .most = most};

        check(&plan, 8);
        assert_true(plan.sent[0] <= 6 * most + 12 * 4);
    }
}

/* Cuts, counts, lengths, messages; then cuts, counts, blocks, lengths, messages. Cuts are what they
 * are, wherever they lie. */
static void nonsense_from_a_rank_is_refused(void **state)
{
    (void)state;
    for (int call = 0; call <= 9; call++) {
        struct plan plan = {.places = ALIKE, .lies = call};

        assert_int_equal(ranks_run(4, run, &plan),
                         call == 0 || call == 1 || call == 5 ? 0 : -EBADMSG);
        assert_int_equal(plan.by_regions[0][1], call < 2 || call == 5 || call > 6);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_have_the_bits_of_a_plain_sum_for_1_to_8_ranks),
        cmocka_unit_test(regions_are_taken_where_they_send_fewer_bytes),
        cmocka_unit_test(regions_have_about_as_many_entries_each),
        cmocka_unit_test(a_rank_that_begins_anew_takes_the_way_of_the_others),
        cmocka_unit_test(a_few_entries_are_gathered),
        cmocka_unit_test(nonsense_from_a_rank_is_refused),
    };

    return cmocka_run_group_tests_name("train_sparse_sum", tests, NULL, NULL);
}
