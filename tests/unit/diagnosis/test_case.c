/* SPDX-License-Identifier: Apache-2.0 */
/* Cases: the same set of inputs gives the same bytes, in whatever order; bundles are read as they
 * were written, or refused. */
#include "core/err.h"
#include "core/rng.h"
#include "monitor/cases/case.h"
#include "monitor/cases/explain.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define FILES_MAX 12

struct text {
    char name[64];
    char *bytes;
    size_t len;
};

struct set {
    struct text list[FILES_MAX];
    unsigned count;
};

static FILE *begin(struct set *set, const char *name)
{
    struct text *it = &set->list[set->count++];

    snprintf(it->name, sizeof(it->name), "%s", name);
    return open_memstream(&it->bytes, &it->len);
}

static void drop(struct set *set)
{
    for (unsigned i = 0; i < set->count; i++)
        free(set->list[i].bytes);
    *set = (struct set){.count = 0};
}

/* An answer of NCCL RAS: ranks of a communicator with their counts; one may be behind. */
static void make_ras(struct set *set, const char *name, unsigned ranks, unsigned slow,
                     unsigned second, unsigned count)
{
    FILE *out = begin(set, name);

    fprintf(out,
            "{\"nccl_version\":\"2.29.1\",\"timestamp\":\"2026-01-02 03:04:%02u\","
            "\"communicators_count\":1,\"communicators\":[{\"hash\":\"0xa\",\"secondary_hash\":"
            "\"0x1:0x2\",\"size\":%u,\"ranks_count\":%u,\"missing_ranks_count\":0,\"ranks\":[",
            second, ranks, ranks);
    for (unsigned r = 0; r < ranks; r++)
        fprintf(out,
                "%s{\"rank\":%u,\"host\":\"h%u\",\"pid\":%u,\"cuda_dev\":0,\"nvml_dev\":0,"
                "\"status\":{\"considered_dead\":false},\"collective_counts\":{\"AllReduce\":%u}}",
                r > 0 ? "," : "", r, r, 100 + r, r == slow ? count - 3 : count);
    fputs("],\"missing_ranks\":[]}]}\n", out);
    fclose(out);
}

static void make_status(struct set *set, struct sl_rng *rng, unsigned host)
{
    static const char *const checks[] = {"link_flap", "gpu_fatal", "gpu_ecc", "packet_loss",
                                         "blocked",   "hung_task", "nic_gone"};
    unsigned count = (unsigned)(sl_rng_u64(rng) % 4);
    char name[32];
    FILE *out;

    snprintf(name, sizeof(name), "h%u.status.json", host);
    out = begin(set, name);
    fprintf(out,
            "{\"version\":1,\"host\":\"h%u\",\"boot_id\":\"b\",\"time\":"
            "\"2026-01-02T03:04:50.000Z\",\"agent_version\":\"0\",\"fresh\":%s,\"conditions\":[",
            host, sl_rng_u64(rng) % 2 == 0 ? "true" : "false");
    for (unsigned i = 0; i < count; i++)
        fprintf(out,
                "%s{\"kind\":\"port\",\"subject\":\"p%u\",\"check\":\"%s\",\"state\":\"bad\","
                "\"since\":\"2026-01-02T03:%02u:00Z\",\"text\":\"n %u\"}",
                i > 0 ? "," : "", i, checks[sl_rng_u64(rng) % 7], (unsigned)(sl_rng_u64(rng) % 5),
                i);
    fputs("]}\n", out);
    fclose(out);
}

static void make_history(struct set *set, struct sl_rng *rng)
{
    FILE *out = begin(set, "history.json");

    fputs("[", out);
    for (unsigned i = 0; i < 12; i++)
        fprintf(out,
                "%s{\"node_id\":\"h%u\",\"event_time\":%u.25,\"event_type\":\"fault_start\","
                "\"fault_type\":{\"Class\":\"GPU\",\"Desc\":\"it\"}}",
                i > 0 ? "," : "", (unsigned)(sl_rng_u64(rng) % 6),
                (unsigned)(sl_rng_u64(rng) % 300));
    fputs("]\n", out);
    fclose(out);
}

static void make_minibatch(struct set *set, struct sl_rng *rng)
{
    FILE *out = begin(set, "times.csv");

    fputs("worker,time,batch_time\n", out);
    for (unsigned i = 0; i < 40; i++)
        for (unsigned w = 0; w < 4; w++)
            fprintf(out, "%u,%u,1.%02u\n", w, i, (unsigned)(sl_rng_u64(rng) % 20));
    fclose(out);
}

static void make_set(struct set *set, uint64_t seed, struct sl_case_options *options)
{
    struct sl_rng rng;
    unsigned ranks, slow, hosts;

    sl_rng_init(&rng, seed);
    *set = (struct set){.count = 0};
    *options = (struct sl_case_options)SL_CASE_OPTIONS;
    ranks = 2 + (unsigned)(sl_rng_u64(&rng) % 6);
    slow = (unsigned)(sl_rng_u64(&rng) % (ranks + 1));
    hosts = (unsigned)(sl_rng_u64(&rng) % 5);
    make_ras(set, "ras-2.json", ranks, slow, 10, 100);
    make_ras(set, "ras-10.json", ranks, slow, 40, sl_rng_u64(&rng) % 3 == 0 ? 110 : 100);
    for (unsigned i = 0; i < hosts; i++)
        make_status(set, &rng, i);
    if (sl_rng_u64(&rng) % 2 == 0)
        make_history(set, &rng);
    if (sl_rng_u64(&rng) % 2 == 0)
        make_minibatch(set, &rng);
    if (sl_rng_u64(&rng) % 2 == 0)
        strcpy(options->scope, "job \"7\" \\ of \xc3\xa4");
    if (sl_rng_u64(&rng) % 2 == 0)
        options->now_ns = 1767323090 * INT64_C(1000000000);
    if (sl_rng_u64(&rng) % 2 == 0)
        options->false_isolations = 1.0 / (1 + (double)(sl_rng_u64(&rng) % 100000));
}

/* In an order that turns with `turn`, some of them twice. */
static struct sl_inputs *inputs_of(const struct set *set, unsigned turn)
{
    struct sl_inputs *inputs = sl_inputs_new();

    for (unsigned i = 0; i < set->count * 2; i++) {
        unsigned at = (i * (turn % 2 == 0 ? 1 : set->count - 1) + turn) % set->count;
        char path[128];

        snprintf(path, sizeof(path), "/folder %u/%s", turn, set->list[at].name);
        if (i < set->count || turn % 3 == 0)
            assert_int_equal(sl_inputs_add(inputs, path, set->list[at].bytes, set->list[at].len),
                             0);
    }
    assert_int_equal(inputs->count, set->count);
    return inputs;
}

static char *bundle_of(const struct sl_inputs *inputs, const struct sl_case_options *options,
                       const struct sl_case_result *result, size_t *len)
{
    char *bytes;
    FILE *out = open_memstream(&bytes, len);

    assert_int_equal(sl_case_print(inputs, options, result->text, result->len, out), 0);
    fclose(out);
    return bytes;
}

/* ---- */

static void any_order_gives_the_same_bundle_and_ids(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct sl_case_options options;
        char *first = NULL;
        size_t first_len = 0;
        struct set set;

        make_set(&set, seed, &options);
        for (unsigned turn = 0; turn < 5; turn++) {
            struct sl_inputs *inputs = inputs_of(&set, turn);
            struct sl_case_result result;
            size_t len;
            char *bytes;

            assert_int_equal(sl_case_judge(inputs, &options, &result), 0);
            bytes = bundle_of(inputs, &options, &result, &len);
            if (turn == 0) {
                first = bytes;
                first_len = len;
            } else {
                assert_int_equal(len, first_len);
                assert_memory_equal(bytes, first, len);
                free(bytes);
            }
            sl_case_result_free(&result);
            sl_inputs_free(inputs);
        }
        free(first);
        drop(&set);
    }
}

static void bundles_replay_to_the_same_bytes(void **state)
{
    unsigned accusing = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct sl_case_options options;
        struct sl_case_result result, again;
        struct sl_inputs *inputs;
        struct sl_case it;
        struct set set;
        size_t len, second_len;
        char *bytes, *second;

        make_set(&set, seed, &options);
        inputs = inputs_of(&set, 0);
        assert_int_equal(sl_case_judge(inputs, &options, &result), 0);
        bytes = bundle_of(inputs, &options, &result, &len);
        assert_int_equal(sl_case_parse("b", bytes, len, &it), 0);
        assert_int_equal(it.rules, SL_RULES_VERSION);
        assert_int_equal(sl_case_judge(it.inputs, &it.options, &again), 0);
        assert_int_equal(again.len, it.result_len);
        assert_memory_equal(again.text, it.result, again.len);
        second = bundle_of(it.inputs, &it.options, &again, &second_len);
        assert_int_equal(second_len, len);
        assert_memory_equal(second, bytes, len);
        accusing += sl_verdicts_accuse(&again.verdicts);
        free(second);
        free(bytes);
        sl_case_result_free(&again);
        sl_case_result_free(&result);
        sl_case_free(&it);
        sl_inputs_free(inputs);
        drop(&set);
    }
    assert_true(accusing > 50 && accusing < 200);
}

static void an_id_stays_as_more_comes_in(void **state)
{
    struct sl_case_options options;
    char id[SL_VERDICT_ID] = "";
    struct set set;

    (void)state;
    make_set(&set, 7, &options);
    drop(&set);
    make_ras(&set, "ras-1.json", 4, 2, 10, 100);
    make_ras(&set, "ras-2.json", 4, 2, 40, 100);
    for (unsigned count = 2; count < 6; count++) {
        struct sl_inputs *inputs = inputs_of(&set, 0);
        struct sl_case_result result;
        struct sl_rng rng;

        assert_int_equal(sl_case_judge(inputs, &options, &result), 0);
        assert_int_equal(result.verdicts.count, 1);
        if (count > 2)
            assert_string_equal(result.verdicts.list[0].id, id);
        strcpy(id, result.verdicts.list[0].id);
        sl_case_result_free(&result);
        sl_inputs_free(inputs);
        sl_rng_init(&rng, count);
        make_status(&set, &rng, count);
    }
    drop(&set);
}

static void damaged_bundles_are_refused(void **state)
{
    struct sl_case_options options;
    struct sl_case_result result;
    struct sl_inputs *inputs;
    struct sl_case it;
    struct set set;
    size_t len;
    char *bytes;

    (void)state;
    make_set(&set, 3, &options);
    inputs = inputs_of(&set, 0);
    assert_int_equal(sl_case_judge(inputs, &options, &result), 0);
    bytes = bundle_of(inputs, &options, &result, &len);
    for (size_t i = 0; i < len; i += 1 + len / 1500) {
        char *cut = malloc(i + 1);
        int err;

        memcpy(cut, bytes, i);
        err = sl_case_parse("cut", cut, i, &it);
        assert_int_equal(err, -EBADMSG);
        assert_true(strncmp(sluice_last_error(), "cut, byte ", 10) == 0);
        free(cut);
        bytes[i] ^= 1 << (i % 8);
        err = sl_case_parse("bit", bytes, len, &it);
        assert_true(err == -EBADMSG || (err == -EINVAL && i < 300));
        bytes[i] ^= 1 << (i % 8);
    }
    assert_int_equal(sl_case_parse("whole", bytes, len, &it), 0);
    sl_case_free(&it);
    free(bytes);
    sl_case_result_free(&result);
    sl_inputs_free(inputs);
    drop(&set);
}

/* Whole or not at all: a file that cannot be written leaves nothing behind. */
static void files_are_written_whole(void **state)
{
    struct sl_case_options options;
    struct sl_case_result result;
    struct sl_inputs *inputs;
    struct sl_case it;
    struct set set;
    char path[64], part[96];

    (void)state;
    make_set(&set, 5, &options);
    inputs = inputs_of(&set, 0);
    assert_int_equal(sl_case_judge(inputs, &options, &result), 0);
    snprintf(path, sizeof(path), "test_case.%d.case", (int)getpid());
    snprintf(part, sizeof(part), "%s.%d.part", path, (int)getpid());
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(sl_case_write(inputs, &options, result.text, result.len, path), 0);
    assert_int_equal(access(part, F_OK), -1);
    assert_int_equal(sl_case_read(path, &it), 0);
    assert_string_equal(it.result, result.text);
    assert_string_equal(it.options.scope, options.scope);
    sl_case_free(&it);
    unlink(path);
    assert_int_equal(sl_case_write(inputs, &options, result.text, result.len, "/nothing/here.case"),
                     -ENOENT);
    assert_int_equal(sl_case_read(path, &it), -ENOENT);
    sl_case_result_free(&result);
    sl_inputs_free(inputs);
    drop(&set);
}

static void names_are_checked_and_numbers_in_them_count(void **state)
{
    struct sl_inputs *inputs = sl_inputs_new();
    char longest[300];

    (void)state;
    memset(longest, 'a', sizeof(longest));
    longest[299] = '\0';
    assert_int_equal(sl_inputs_add(inputs, "a/", "", 0), -EINVAL);
    assert_int_equal(sl_inputs_add(inputs, "a\nb", "", 0), -EINVAL);
    assert_int_equal(sl_inputs_add(inputs, longest, "", 0), -EINVAL);
    assert_int_equal(sl_inputs_add_file(inputs, "/nothing/here"), -ENOENT);
    for (unsigned i = 20; i-- > 0;) {
        char name[32];

        snprintf(name, sizeof(name), "x/_dump_%u", i * 7);
        assert_int_equal(sl_inputs_add(inputs, name, name, strlen(name)), 0);
    }
    assert_int_equal(inputs->count, 20);
    for (unsigned i = 0; i < 20; i++)
        assert_int_equal(atoi(inputs->list[i].name + 6), i * 7);
    assert_true(sl_input_order("a2", "", "a10", "") < 0);
    assert_true(sl_input_order("a02", "", "a2", "") < 0 && sl_input_order("a2", "", "a02", "") > 0);
    assert_true(sl_input_order("a", "", "a1", "") < 0);
    assert_true(sl_input_order("a1", "1", "a1", "2") < 0 && sl_input_order("a", "", "a", "") == 0);
    sl_inputs_free(inputs);
}

/* Every verdict of every seed is said without a hole in it. */
static void verdicts_are_explained(void **state)
{
    static const char *const parts[] = {"What was seen", "What it was compared with",
                                        "Why not another one", "What would decide",
                                        "What to do next"};

    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct sl_case_options options;
        struct sl_case_result result;
        struct sl_case it = {.rules = SL_RULES_VERSION};
        struct set set;

        make_set(&set, seed, &options);
        it.options = options;
        it.inputs = inputs_of(&set, 0);
        assert_int_equal(sl_case_judge(it.inputs, &options, &result), 0);
        for (uint32_t i = 0; i < result.verdicts.count; i++) {
            char *text;
            size_t len;
            FILE *out = open_memstream(&text, &len);

            assert_int_equal(sl_explain(&it, &result, &result.verdicts.list[i], out), 0);
            fclose(out);
            for (unsigned p = 0; p < 5; p++)
                assert_non_null(strstr(text, parts[p]));
            assert_null(strstr(text, "(null)"));
            free(text);
        }
        sl_case_result_free(&result);
        sl_inputs_free(it.inputs);
        drop(&set);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_order_gives_the_same_bundle_and_ids),
        cmocka_unit_test(bundles_replay_to_the_same_bytes),
        cmocka_unit_test(an_id_stays_as_more_comes_in),
        cmocka_unit_test(damaged_bundles_are_refused),
        cmocka_unit_test(files_are_written_whole),
        cmocka_unit_test(names_are_checked_and_numbers_in_them_count),
        cmocka_unit_test(verdicts_are_explained),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
