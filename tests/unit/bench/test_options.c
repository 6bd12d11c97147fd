/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include "core/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define PARSE(options, ...) parse(options, (const char *const[]){"sluice-bench", __VA_ARGS__, NULL})

/* getopt reorders argv, so it gets a copy. */
static int parse(struct sb_options *options, const char *const *words)
{
    static char text[32][64];
    char *argv[33];
    int argc = 0;

    for (; words[argc] != NULL; argc++) {
        assert_true(argc < 32);
        snprintf(text[argc], sizeof(text[argc]), "%s", words[argc]);
        argv[argc] = text[argc];
    }
    argv[argc] = NULL;
    return sb_options_parse(options, argc, argv);
}

static void nothing_given_means_f32_sum_from_8_bytes_to_128_mib(void **state)
{
    struct sb_options o;

    (void)state;
    assert_int_equal(parse(&o, (const char *const[]){"sluice-bench", NULL}), 0);
    assert_int_equal(o.mode, SB_RUN);
    assert_int_equal(o.colls, 1u << SB_ALLREDUCE);
    assert_int_equal(o.dtypes, 1u << SLUICE_F32);
    assert_int_equal(o.ops, 1u << SLUICE_SUM);
    assert_int_equal(o.min_bytes, 8);
    assert_int_equal(o.max_bytes, 128 << 20);
    assert_int_equal(o.check, 1);
    assert_true(o.blocking);
}

static void letters_of_nccl_tests_are_understood(void **state)
{
    struct sb_options o;

    (void)state;
    assert_int_equal(PARSE(&o, "-b", "1k", "-e", "2M", "-f", "4", "-w", "5", "-c", "0", "-o", "max",
                           "-d", "double", "-r", "2", "-a", "3", "-z", "0", "-m", "8"),
                     0);
    assert_int_equal(o.min_bytes, 1024);
    assert_int_equal(o.max_bytes, 2 << 20);
    assert_true(o.factor > 3.99 && o.factor < 4.01);
    assert_int_equal(o.warmup, 5);
    assert_int_equal(o.check, 0);
    assert_int_equal(o.ops, 1u << SLUICE_MAX);
    assert_int_equal(o.dtypes, 1u << SLUICE_F64);
    assert_int_equal(o.root, 2);
    assert_int_equal(o.average, SB_MAX);
    assert_false(o.blocking);
    assert_int_equal(o.agg, 8);
    assert_int_equal(PARSE(&o, "-R", "1", "-u", "3", "-N", "2", "-T", "1.5", "-S", "1", "-M", "1",
                           "-J", "x.json"),
                     0);
    assert_true(o.register_buffers && o.timestamps && o.memory);
    assert_int_equal(o.unaligned, 3);
    assert_int_equal(o.cycles, 2);
    assert_true(o.timeout_s > 1.49 && o.timeout_s < 1.51);
    assert_string_equal(o.json, "x.json");
}

static void lists_and_all_select_several(void **state)
{
    struct sb_options o;

    (void)state;
    assert_int_equal(PARSE(&o, "-C", "allreduce,alltoall,bcast", "-d", "half,i8", "-o", "all"), 0);
    assert_int_equal(o.colls, 1u << SB_ALLREDUCE | 1u << SB_ALL_TO_ALL | 1u << SB_BROADCAST);
    assert_int_equal(o.dtypes, 1u << SLUICE_F16 | 1u << SLUICE_I8);
    assert_int_equal(o.ops, (1u << SLUICE_OP_COUNT) - 1);
    assert_int_equal(PARSE(&o, "-C", "all", "-d", "all"), 0);
    assert_int_equal(o.colls, (1u << SB_COLL_COUNT) - 1);
    assert_int_equal(o.dtypes, (1u << SLUICE_DTYPE_COUNT) - 1);
}

static void a_type_has_the_names_of_nccl_tests_and_of_numpy(void **state)
{
    static const char *const names[SLUICE_DTYPE_COUNT][4] = {
        [SLUICE_I8] = {"int8", "char"},
        [SLUICE_U8] = {"uint8"},
        [SLUICE_I32] = {"int32", "int"},
        [SLUICE_U32] = {"uint32"},
        [SLUICE_I64] = {"int64"},
        [SLUICE_U64] = {"uint64"},
        [SLUICE_F16] = {"half", "float16", "fp16"},
        [SLUICE_BF16] = {"bfloat16"},
        [SLUICE_F32] = {"float", "float32", "fp32"},
        [SLUICE_F64] = {"double", "float64"},
    };

    (void)state;
    for (int type = 0; type < SLUICE_DTYPE_COUNT; type++)
        for (int i = 0; i < 4 && names[type][i] != NULL; i++)
            assert_int_equal(sb_dtype_find(names[type][i], strlen(names[type][i])), type);
}

static void every_type_and_operator_is_found_by_the_library_s_own_name(void **state)
{
    (void)state;
    for (int i = 0; i < SLUICE_DTYPE_COUNT; i++) {
        const char *name = sluice_dtype_name((enum sluice_dtype)i);

        assert_int_equal(sb_dtype_find(name, strlen(name)), i);
    }
    for (int i = 0; i < SLUICE_OP_COUNT; i++) {
        const char *name = sluice_op_name((enum sluice_op)i);

        assert_int_equal(sb_op_find(name, strlen(name)), i);
    }
}

static void a_minimum_above_the_default_maximum_means_one_size(void **state)
{
    struct sb_options o;

    (void)state;
    assert_int_equal(PARSE(&o, "-b", "1G"), 0);
    assert_int_equal(o.max_bytes, 1 << 30);
    assert_int_equal(sb_options_next_size(&o, o.min_bytes), 0);
    assert_int_equal(PARSE(&o, "-b", "1G", "-e", "1M"), -EINVAL);
    assert_non_null(strstr(sluice_last_error(), "larger -e"));
}

static void sizes_grow_by_factor_or_step_and_always_grow(void **state)
{
    struct sb_options o;

    (void)state;
    assert_int_equal(PARSE(&o, "-b", "8", "-e", "64"), 0);
    assert_int_equal(sb_options_next_size(&o, 8), 16);
    assert_int_equal(sb_options_next_size(&o, 32), 64);
    assert_int_equal(sb_options_next_size(&o, 64), 0);
    assert_int_equal(PARSE(&o, "-b", "8", "-e", "64", "--stepbytes", "24"), 0);
    assert_int_equal(sb_options_next_size(&o, 8), 32);
    assert_int_equal(sb_options_next_size(&o, 56), 0);
    assert_int_equal(PARSE(&o, "-b", "0", "-e", "64", "-f", "1.1"), 0);
    assert_int_equal(sb_options_next_size(&o, 0), 1);
    assert_int_equal(sb_options_next_size(&o, 4), 5);
}

static void complaints_name_the_option_and_what_would_do(void **state)
{
    struct sb_options o;

    (void)state;
    assert_int_equal(PARSE(&o, "-b", "tiny"), -EINVAL);
    assert_string_equal(sluice_last_error(),
                        "-b is 'tiny', but must be a size such as 8, 64k, 1M or 2G");
    assert_int_equal(PARSE(&o, "-d", "f32,f8"), -EINVAL);
    assert_non_null(strstr(sluice_last_error(), "'f8' is not one of i8,"));
    assert_int_equal(PARSE(&o, "-n"), -EINVAL);
    assert_non_null(strstr(sluice_last_error(), "-n needs a value"));
    assert_int_equal(PARSE(&o, "-n", "0"), -EINVAL);
    assert_non_null(strstr(sluice_last_error(), "from 1 to"));
    assert_int_equal(PARSE(&o, "--no-such"), -EINVAL);
    assert_non_null(strstr(sluice_last_error(), "--no-such"));
    assert_int_equal(PARSE(&o, "-g", "4"), -EINVAL);
    assert_non_null(strstr(sluice_last_error(), "started with -n"));
    assert_int_equal(PARSE(&o, "allreduce"), -EINVAL);
    assert_non_null(strstr(sluice_last_error(), "-C allreduce"));
    assert_int_equal(PARSE(&o, "-n", "2", "-r", "2"), -EINVAL);
    assert_non_null(strstr(sluice_last_error(), "ranks 0 to 1"));
    assert_int_equal(PARSE(&o, "--hosts", "2"), -EINVAL);
    assert_non_null(strstr(sluice_last_error(), "--hosts 2 takes -n"));
    assert_int_equal(PARSE(&o, "-n", "4", "--hosts", "2"), 0);
    assert_int_equal(o.hosts, 2);
    assert_int_equal(PARSE(&o, "--compute", "-1"), -EINVAL);
    assert_non_null(strstr(sluice_last_error(), "--compute"));
    assert_int_equal(PARSE(&o, "--touch", "much"), -EINVAL);
    assert_int_equal(PARSE(&o, "--compute", "300", "--touch", "256k"), 0);
    assert_true(o.compute_us == 300 && o.touch_bytes == 256 << 10);
    assert_int_equal(PARSE(&o, "-f", "1"), -EINVAL);
    assert_int_equal(PARSE(&o, "-f", "nan"), -EINVAL);
    assert_int_equal(PARSE(&o, "--budget", "nan"), -EINVAL);
    assert_non_null(strstr(sluice_last_error(), "seconds from 0.001"));
    assert_int_equal(PARSE(&o, "-T", "nan"), -EINVAL);
    assert_int_equal(PARSE(&o, "-C", ","), -EINVAL);
}

static void commas_part_codecs_and_their_parameters(void **state)
{
    struct sb_options o;

    (void)state;
    assert_int_equal(PARSE(&o, "--compress", "bq8,bq4:seed=7,min=0,sign,topk,k=41"), 0);
    assert_int_equal(o.codec_count, 4);
    assert_string_equal(o.codecs[0], "bq8");
    assert_string_equal(o.codecs[1], "bq4:seed=7,min=0");
    assert_string_equal(o.codecs[2], "sign");
    assert_string_equal(o.codecs[3], "topk:k=41");
    assert_int_equal(PARSE(&o, "-b", "8"), 0);
    assert_int_equal(o.codec_count, 0);
    assert_int_equal(PARSE(&o, "--compress", ""), -EINVAL);
    assert_non_null(strstr(sluice_last_error(), "--compress is empty"));
    assert_int_equal(PARSE(&o, "--compress", ",bq8"), -EINVAL);
    assert_int_equal(PARSE(&o, "--compress", "a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q"), -EINVAL);
    assert_non_null(strstr(sluice_last_error(), "at most 16 codecs"));
    assert_int_equal(PARSE(&o, "--compress", "bq4:a=1,b=2345678901234567890123456789,c=2345678"),
                     0);
}

static void help_mentions_every_option_and_fits_100_columns(void **state)
{
    static const char *const words[] = {
        "--coll",     "--minbytes",    "--maxbytes",  "--stepfactor",     "--stepbytes",
        "--datatype", "--op",          "--root",      "--ranks",          "--transport",
        "--algo",     "--kernel",      "--alloc",     "--unaligned",      "--register",
        "--blocking", "--nonblocking", "--agg_iters", "--timeout",        "--iters",
        "--budget",   "--warmup",      "--average",   "--run_cycles",     "--compute",
        "--touch",    "--check",       "--stats",     "--json",           "--csv",
        "--plot",     "--list",        "--explain",   "--print-schedule", "--status",
        "--version",  "--help",        "--persistent"};
    char *text = NULL;
    size_t len = 0, column = 0;
    FILE *out = open_memstream(&text, &len);

    (void)state;
    sb_options_help(out);
    fclose(out);
    for (size_t i = 0; i < SL_ARRAY_LEN(words); i++)
        if (strstr(text, words[i]) == NULL)
            fail_msg("--help says nothing of %s", words[i]);
    for (size_t i = 0; i < len; i++) {
        column = text[i] == '\n' ? 0 : column + 1;
        assert_true(column <= 100);
    }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_given_means_f32_sum_from_8_bytes_to_128_mib),
        cmocka_unit_test(letters_of_nccl_tests_are_understood),
        cmocka_unit_test(lists_and_all_select_several),
        cmocka_unit_test(a_type_has_the_names_of_nccl_tests_and_of_numpy),
        cmocka_unit_test(every_type_and_operator_is_found_by_the_library_s_own_name),
        cmocka_unit_test(a_minimum_above_the_default_maximum_means_one_size),
        cmocka_unit_test(sizes_grow_by_factor_or_step_and_always_grow),
        cmocka_unit_test(complaints_name_the_option_and_what_would_do),
        cmocka_unit_test(commas_part_codecs_and_their_parameters),
        cmocka_unit_test(help_mentions_every_option_and_fits_100_columns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
