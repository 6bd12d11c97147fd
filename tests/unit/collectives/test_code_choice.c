/* SPDX-License-Identifier: Apache-2.0 */
/* Which calls are compressed, by costs alone: no rank sends anything here. */
#include "collectives/code.h"

#include "collectives/select.h"
#include "core/err.h"
#include "lib/compress.h"
#include "schedules/code_cost.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define TILE 4096

/* A byte an element and some scales: a quarter of f32. */
static uint64_t bytes(const struct sl_code *code, uint64_t count)
{
    return count + (count + TILE - 1) / TILE * 64;
}

static const struct sl_code code = {
    .bytes = bytes, .tile = TILE, .mark = 5, .work = {2.4f, 1.5f, 1.7f}};

static const struct sl_code *code_for(struct sl_coding *coding, enum sluice_dtype dtype, bool sums)
{
    return dtype == SLUICE_F32 ? &code : NULL;
}

static const struct sl_code *inner_for(struct sl_coding *coding, enum sluice_dtype dtype)
{
    return &code;
}

static void stays(struct sl_coding *coding)
{
}

static struct sl_coding by_cost(void)
{
    return (struct sl_coding){
        .users = 1, .min_bytes = 16 << 10, .code = code_for, .inner = inner_for, .free = stays};
}

static uint32_t hosts[] = {0, 1, 2, 3};

/* So many ranks on a host each, over links of so many Gbit/s. */
static struct sluice_comm comm_of(uint32_t ranks, double gbits)
{
    struct sluice_comm comm = {
        .size = ranks,
        .host = hosts,
        .host_count = ranks,
        .local_size = 1,
        .most_local = 1,
        .costs = {{250, 0.08}, {30000, 0.8}, 150, 0.03, 0.03, 0.05, 10, 0.03, 1}};

    sl_config_defaults(&comm.config);
    comm.costs.net.beta = 8 / gbits;
    return comm;
}

static struct sl_call call_of(uint64_t len)
{
    return (struct sl_call){
        .coll = SL_ALLREDUCE, .dtype = SLUICE_F32, .op = SLUICE_SUM, .count = len / 4};
}

static bool taken(struct sl_coding *coding, const struct sluice_comm *comm,
                  const struct sl_call *call)
{
    struct sl_coding_choice choice;
    struct sl_runner *runners[2];
    struct sl_recipe recipe;

    sl_coding_choose(coding, comm, call, NULL, &choice);
    assert_int_equal(sl_coding_recipe(coding, comm, call, NULL, runners, &recipe), choice.taken);
    assert_ptr_equal(recipe.coding, choice.taken ? coding : NULL);
    assert_ptr_equal(recipe.spared, !choice.taken && choice.algo != NULL ? coding : NULL);
    assert_ptr_equal(recipe.algo, choice.taken ? choice.algo : NULL);
    assert_true(!choice.taken || (recipe.code == &code && recipe.raw_ns == choice.raw_ns));
    return choice.taken;
}

static void slow_links_compress_and_fast_ones_do_not(void **state)
{
    struct sl_coding coding = by_cost();
    struct sl_call call = call_of((uint64_t)64 << 20);

    (void)state;
    for (uint32_t ranks = 2; ranks <= 4; ranks += 2)
        for (double gbits = 0.1; gbits < 1000; gbits *= 10) {
            struct sluice_comm comm = comm_of(ranks, gbits);

            assert_int_equal(taken(&coding, &comm, &call), gbits < 15);
        }
}

static void at_a_gigabit_it_pays_from_less_than_a_mebibyte_on(void **state)
{
    struct sl_coding coding = by_cost();
    struct sl_call call = call_of(4);

    (void)state;
    for (uint32_t ranks = 2; ranks <= 4; ranks += 2) {
        struct sluice_comm comm = comm_of(ranks, 1);
        uint64_t from = sl_coding_pays_from(&coding, &comm, &call);

        assert_true(from >= coding.min_bytes && from <= (uint64_t)1 << 20);
        call = call_of(from);
        assert_true(taken(&coding, &comm, &call));
        call = call_of(from / 2);
        assert_false(taken(&coding, &comm, &call));
        comm = comm_of(ranks, 400);
        assert_int_equal(sl_coding_pays_from(&coding, &comm, &call), 0);
    }
}

/* Where the elements' own bytes take less than a tenth longer, they are sent. */
static void what_is_nearly_as_fast_is_sent_as_it_is(void **state)
{
    struct sl_coding coding = by_cost();
    struct sl_call call = call_of((uint64_t)64 << 20);
    double least = HUGE_VAL, most = 0;

    (void)state;
    for (double gbits = 1; gbits < 400; gbits *= 1.02) {
        struct sluice_comm comm = comm_of(2, gbits);
        struct sl_coding_choice choice;

        sl_coding_choose(&coding, &comm, &call, NULL, &choice);
        double gain = choice.raw_ns / choice.ns;

        least = choice.taken && gain < least ? gain : least;
        most = !choice.taken && gain > most ? gain : most;
    }
    assert_true(least >= 1.1 && least < 1.2);
    assert_true(most < 1.1 && most > 1);
}

static void ranks_that_share_memory_send_elements(void **state)
{
    static uint32_t one[] = {0, 0};
    struct sl_coding coding = by_cost();
    struct sl_call call = call_of((uint64_t)64 << 20);
    struct sluice_comm comm = comm_of(2, 10);

    (void)state;
    comm.host = one;
    comm.host_count = 1;
    comm.most_local = comm.local_size = 2;
    assert_false(taken(&coding, &comm, &call));
    comm.costs.shm.beta = 100; /* measured while other programs ran */
    assert_false(taken(&coding, &comm, &call));
    coding.always = true;
    assert_true(taken(&coding, &comm, &call));
}

static void calls_that_it_is_not_for_are_not_counted_as_left(void **state)
{
    struct sl_coding coding = by_cost();
    struct sluice_comm comm = comm_of(2, 0.1);
    struct sl_call call = call_of((uint64_t)1 << 20), other = call;
    struct sl_coding_choice choice;

    (void)state;
    assert_true(taken(&coding, &comm, &call));
    for (int i = 0; i < 5; i++) {
        other = call;
        switch (i) {
        case 0: other.op = SLUICE_MAX; break;
        case 1: other.dtype = SLUICE_I32; break;
        case 2: other.count = (16 << 10) / 4 - 1; break;
        case 3: other.count = 0; break;
        default: other.coll = SL_REDUCE;
        }
        sl_coding_choose(&coding, &comm, &other, NULL, &choice);
        assert_null(choice.algo);
        assert_false(taken(&coding, &comm, &other));
        coding.always = true;
        assert_false(taken(&coding, &comm, &other));
        coding.always = false;
    }
    assert_false(taken(NULL, &comm, &call));
}

/* Four ranks on two hosts: the sum of a host goes between them where that is what counts. */
static void among_several_algorithms_the_cheapest_is_taken(void **state)
{
    static uint32_t two[] = {0, 0, 1, 1};
    struct sl_coding coding = by_cost();
    struct sl_call call = call_of((uint64_t)16 << 20);
    struct sluice_comm comm = comm_of(4, 1);
    struct sl_coding_choice choice;
    struct sl_shape shape;

    (void)state;
    comm.host = two;
    comm.host_count = comm.most_local = comm.local_size = 2;
    sl_coding_choose(&coding, &comm, &call, NULL, &choice);
    assert_true(choice.taken);
    assert_ptr_equal(choice.algo, &sl_algo_oneshot_hosts);
    sl_call_shape(&comm, &call, &shape);
    shape.code = choice.code;
    shape.inner = choice.inner;
    assert_true(sl_select_coded(&comm, &sl_algo_oneshot, &shape) > choice.ns);

    /* Within hosts nothing is cheap: every rank gives to every other. */
    comm.costs.shm.beta = 30;
    comm.costs.net.beta = 8;
    sl_coding_choose(&coding, &comm, &call, NULL, &choice);
    assert_ptr_equal(choice.algo, &sl_algo_oneshot);
    coding.always = true; /* the first, whatever it costs */
    sl_coding_choose(&coding, &comm, &call, NULL, &choice);
    assert_ptr_equal(choice.algo, &sl_algo_oneshot_hosts);
}

/* What else sends signs adds them, and its sum has not the sign of the majority. */
static void votes_are_counted_whatever_else_would_be_faster(void **state)
{
    struct sl_call call = call_of((uint64_t)16 << 20);
    struct sl_coding *coding;

    (void)state;
    assert_int_equal(sl_compression_create("sign:vote=on", &coding), 0);
    for (uint32_t ranks = 2; ranks <= 4; ranks++)
        for (double gbits = 0.1; gbits < 1000; gbits *= 10) {
            struct sluice_comm comm = comm_of(ranks, gbits);
            struct sl_coding_choice choice;

            sl_coding_choose(coding, &comm, &call, NULL, &choice);
            assert_ptr_equal(choice.algo, &sl_algo_code_sum);
            assert_true(choice.taken || gbits > 1);
        }
    sl_coding_put(coding);
}

/* What would be done without is what it is compared with. */
static void a_forced_algorithm_is_what_it_is_compared_with(void **state)
{
    struct sl_coding coding = by_cost();
    struct sl_call call = call_of((uint64_t)16 << 20);
    struct sluice_comm comm = comm_of(4, 100);
    struct sl_coding_choice choice, unforced;

    (void)state;
    sl_coding_choose(&coding, &comm, &call, NULL, &unforced);
    strcpy(comm.config.algo, "allreduce:doubling");
    sl_coding_choose(&coding, &comm, &call, NULL, &choice);
    assert_string_equal(choice.raw->name, "doubling");
    assert_true(choice.raw_ns > unforced.raw_ns);
}

static char *explained(const struct sluice_comm *comm, const struct sl_call *call)
{
    char *text = NULL;
    size_t len;
    FILE *out = open_memstream(&text, &len);

    assert_non_null(out);
    assert_int_equal(sl_select_explain(comm, call, out), 0);
    fclose(out);
    return text;
}

static void the_explanation_says_who_won_and_why(void **state)
{
    struct sl_coding coding = by_cost();
    struct sl_call call = call_of((uint64_t)1 << 20);
    struct sluice_comm comm = comm_of(2, 1);
    const struct {
        double gbits;
        const char *says;
    } cases[] = {{1, ": oneshot (compressed)"},
                 {1, "\n  compressed: oneshot is predicted 3."},
                 {1, "\n  calls like this one are compressed from 16 KiB on"},
                 {1,
                  "\n  codec ?: encode 0.072 ns/B, decode 0.045 ns/B, decode and add 0.051 ns/B, "
                  "0.2539 of the bytes\n"},
                 {1, "us, encoded\n"},
                 {400, "\n  sent as it is: oneshot is predicted 0."},
                 {400, " and 1.1 is asked for\n"},
                 {400, "\n  calls like this one are compressed at no size"}};

    (void)state;
    comm.coding = &coding;
    for (size_t i = 0; i < SL_ARRAY_LEN(cases); i++) {
        comm.costs.net.beta = 8 / cases[i].gbits;
        char *text = explained(&comm, &call);

        if (strstr(text, cases[i].says) == NULL)
            fail_msg("no '%s' in:\n%s", cases[i].says, text);
        free(text);
    }
    call.dtype = SLUICE_I32;
    char *text = explained(&comm, &call);

    assert_non_null(strstr(text, "not compressed: the codec is not for this call"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slow_links_compress_and_fast_ones_do_not),
        cmocka_unit_test(at_a_gigabit_it_pays_from_less_than_a_mebibyte_on),
        cmocka_unit_test(what_is_nearly_as_fast_is_sent_as_it_is),
        cmocka_unit_test(ranks_that_share_memory_send_elements),
        cmocka_unit_test(calls_that_it_is_not_for_are_not_counted_as_left),
        cmocka_unit_test(among_several_algorithms_the_cheapest_is_taken),
        cmocka_unit_test(votes_are_counted_whatever_else_would_be_faster),
        cmocka_unit_test(a_forced_algorithm_is_what_it_is_compared_with),
        cmocka_unit_test(the_explanation_says_who_won_and_why),
    };

    return cmocka_run_group_tests_name("code_choice", tests, NULL, NULL);
}
