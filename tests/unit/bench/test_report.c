/* SPDX-License-Identifier: Apache-2.0 */
/* The files that other programs read. The table's exact text is in tests/golden. */
#include "report.h"

#include "core/err.h"
#include "options.h"
#include "sample.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include <json.h>

static char dir[] = "/tmp/sluice-test-report-XXXXXX";
static char file[sizeof(dir) + 32];

static const char *in_dir(const char *name)
{
    snprintf(file, sizeof(file), "%s/%s", dir, name);
    return file;
}

static int make_dir(void **state)
{
    (void)state;
    return mkdtemp(dir) == NULL;
}

static int remove_dir(void **state)
{
    static const char *const names[] = {"run.json", "run.csv", "run.svg"};

    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(names); i++)
        unlink(in_dir(names[i]));
    return rmdir(dir);
}

static char *read_file(const char *path)
{
    char *text = calloc(1, 1 << 20);
    FILE *in = fopen(path, "r");

    assert_non_null(text);
    assert_non_null(in);
    assert_true(fread(text, 1, (1 << 20) - 1, in) > 0);
    fclose(in);
    return text;
}

static void make_sample(struct sample *sample)
{
    struct sb_options options;

    sb_options_init(&options);
    sample_init(sample, &options);
}

static struct json_object *get(struct json_object *from, const char *key)
{
    struct json_object *value = NULL;

    if (!json_object_object_get_ex(from, key, &value))
        fail_msg("the JSON has no \"%s\"", key);
    return value;
}

static void json_has_every_row_and_each_rank_s_times(void **state)
{
    struct json_object *o, *rows, *row, *ranks;
    struct sample sample;

    (void)state;
    make_sample(&sample);
    assert_int_equal(sb_json_write(in_dir("run.json"), &sample.results), 0);
    o = json_object_from_file(file);
    assert_non_null(o);
    rows = get(o, "rows");
    assert_int_equal(json_object_array_length(rows), SAMPLE_ROWS);
    row = json_object_array_get_idx(rows, 1);
    assert_string_equal(json_object_get_string(get(row, "collective")), "allreduce");
    assert_string_equal(json_object_get_string(get(row, "type")), "f32");
    assert_int_equal(json_object_get_int64(get(row, "size_bytes")), 1048576);
    assert_null(get(row, "root"));
    ranks = get(get(row, "out_of_place"), "ranks");
    assert_int_equal(json_object_array_length(ranks), 2);
    assert_true(json_object_get_double(get(json_object_array_get_idx(ranks, 1), "p99_us")) > 262.9);
    row = json_object_array_get_idx(rows, 2);
    assert_int_equal(json_object_get_int64(get(get(row, "out_of_place"), "wrong")), 17);
    assert_null(get(get(row, "in_place"), "wrong"));
    assert_null(get(json_object_array_get_idx(rows, 3), "in_place"));
    assert_int_equal(json_object_get_int64(get(o, "out_of_bounds_values")), 17);
    json_object_put(o);
}

static void json_has_the_paths_and_events_of_all_ranks(void **state)
{
    struct json_object *o, *list, *path;
    static struct sample_paths paths;
    struct sample sample;

    (void)state;
    make_sample(&sample);
    sample_paths_init(&paths);
    sample.results.paths = &paths.all;
    assert_int_equal(sb_json_write(in_dir("run.json"), &sample.results), 0);
    o = json_object_from_file(file);
    assert_non_null(o);
    list = get(o, "path_statistics");
    assert_int_equal(json_object_array_length(list), SAMPLE_PATHS);
    path = json_object_array_get_idx(list, 0);
    assert_int_equal(json_object_get_int64(get(path, "sent_bytes")), 123456789012);
    assert_float_equal(json_object_get_double(get(path, "p50_us")), 1.536, 0.0001);
    assert_in_range((uint64_t)(json_object_get_double(get(path, "p99_us")) * 1000), 1536, 2048);
    assert_int_equal(json_object_get_int64(json_object_array_get_idx(get(path, "histogram"), 11)),
                     100);
    assert_null(get(path, "last_error"));
    assert_int_equal(json_object_get_int64(get(path, "label")), 0xbeef);
    assert_int_equal(json_object_get_int64(get(path, "source_port")), 0xfeed);
    assert_int_equal(json_object_get_int64(get(path, "weight")), 25);
    assert_false(json_object_get_boolean(get(path, "avoided")));
    path = json_object_array_get_idx(list, 1);
    assert_int_equal(json_object_get_int64(get(path, "resent")), 5);
    assert_int_equal(json_object_get_int64(get(path, "failures")), 2);
    assert_null(get(path, "p99_us"));
    assert_string_equal(json_object_get_string(get(path, "last_error")),
                        "transport retry counter exceeded");
    assert_null(get(json_object_array_get_idx(list, 2), "path"));
    list = get(o, "events");
    assert_int_equal(json_object_array_length(list), SAMPLE_EVENTS);
    assert_null(get(json_object_array_get_idx(list, 1), "peer"));
    assert_string_equal(json_object_get_string(get(json_object_array_get_idx(list, 2), "event")),
                        "path_down");
    assert_int_equal(json_object_get_int64(get(json_object_array_get_idx(list, 2), "b")), 12);
    assert_int_equal(json_object_get_int64(get(json_object_array_get_idx(list, 3), "a")), -1);
    assert_int_equal(json_object_get_int64(get(o, "events_dropped")), 3);
    json_object_put(o);
}

static void json_of_a_run_that_failed_carries_the_sentence(void **state)
{
    struct sample sample;
    struct json_object *o;

    (void)state;
    make_sample(&sample);
    sample.results.error = "rank 1 said \"no\"\n";
    assert_int_equal(sb_json_write(in_dir("run.json"), &sample.results), 0);
    o = json_object_from_file(file);
    assert_non_null(o);
    assert_string_equal(json_object_get_string(get(o, "error")), "rank 1 said \"no\"\n");
    json_object_put(o);
}

static void csv_has_a_line_per_size_and_placement(void **state)
{
    struct sample sample;
    unsigned lines = 0, commas = 0;
    char *text;

    (void)state;
    make_sample(&sample);
    assert_int_equal(sb_csv_write(in_dir("run.csv"), &sample.results), 0);
    text = read_file(file);
    for (const char *at = text; *at != '\0'; at++) {
        lines += *at == '\n';
        commas += *at == ',';
    }
    assert_int_equal(lines, 1 + 7);
    assert_int_equal(commas, lines * 14);
    assert_non_null(strstr(text, "allreduce,2,1048576,262144,f32,sum,-1,out,20,131.5000,"));
    assert_non_null(strstr(text, "broadcast,2,134217728,67108864,bf16,none,1,out,20,13700.0000,"));
    free(text);
}

static void codecs_have_columns_of_their_own(void **state)
{
    struct sample sample;
    struct json_object *o, *row;
    unsigned lines = 0, commas = 0;
    char *text;

    (void)state;
    make_sample(&sample);
    sample_codec(&sample);
    assert_int_equal(sb_csv_write(in_dir("run.csv"), &sample.results), 0);
    text = read_file(file);
    for (const char *at = text; *at != '\0'; at++) {
        lines += *at == '\n';
        commas += *at == ',';
    }
    assert_int_equal(commas, lines * 18 + lines - 1); /* one in the codec's name */
    assert_non_null(strstr(text, ",wrong,codec,wire_bytes,wire_ratio,error\n"));
    assert_non_null(strstr(text, ",0,\"bq8:seed=7,min=1k\",266240,0.253906,2.525000e-05\n"));
    assert_non_null(strstr(text, ",0,\"bq8:seed=7,min=1k\",,,\n"));
    free(text);

    assert_int_equal(sb_json_write(in_dir("run.json"), &sample.results), 0);
    o = json_object_from_file(file);
    row = json_object_array_get_idx(get(o, "rows"), 1);
    assert_string_equal(json_object_get_string(get(row, "codec")), "bq8:seed=7,min=1k");
    row = get(row, "out_of_place");
    assert_true(json_object_get_double(get(row, "wire_bytes")) == 266240);
    assert_true(json_object_get_double(get(row, "error")) == 2.525e-5);
    json_object_put(o);
}

static void a_file_that_cannot_be_written_is_named(void **state)
{
    struct sample sample;

    (void)state;
    make_sample(&sample);
    assert_int_equal(sb_json_write("/dev/null/run.json", &sample.results), -ENOTDIR);
    assert_non_null(strstr(sluice_last_error(), "/dev/null/run.json"));
    assert_int_equal(sb_csv_write("/dev/null/run.csv", &sample.results), -ENOTDIR);
    assert_non_null(strstr(sluice_last_error(), "/dev/null/run.csv"));
    assert_int_equal(sb_csv_write("/dev/full", &sample.results), -ENOSPC);
}

static void files_are_looked_at_before_they_are_written(void **state)
{
    assert_int_equal(sb_file_check("-"), 0);
    assert_int_equal(sb_file_check("/dev/null"), 0);
    assert_int_equal(sb_file_check("/dev/null/run.json"), -ENOTDIR);
    assert_string_equal(sluice_last_error(), "cannot write /dev/null/run.json: Not a directory");
    assert_int_equal(sb_file_check("/tmp"), -EISDIR);
    assert_int_equal(sb_file_check(in_dir("absent/run.json")), -ENOENT);
    assert_int_equal(sb_file_check(in_dir("run.json")), 0);
    assert_int_equal(access(in_dir("new.json"), F_OK), -1);
    assert_int_equal(sb_file_check(in_dir("new.json")), 0);
    assert_int_equal(access(in_dir("new.json"), F_OK), -1); /* a look makes no file */
}

static void a_drawing_is_an_svg_with_a_curve_per_collective(void **state)
{
    struct sample sample;
    char *text;

    (void)state;
    make_sample(&sample);
    if (system("command -v gnuplot >/dev/null") != 0) {
        assert_int_equal(sb_plot_check("run.svg"), -ENOTSUP);
        print_message("# %s\n", sluice_last_error());
        skip();
    }
    assert_int_equal(sb_plot_check("run.svg"), 0);
    assert_int_equal(sb_plot_write(in_dir("run.svg"), &sample.results), 0);
    text = read_file(file);
    assert_non_null(strstr(text, "<svg"));
    assert_non_null(strstr(text, "</svg>"));
    assert_non_null(strstr(text, "allreduce f32 sum out-of-place"));
    assert_non_null(strstr(text, "broadcast bf16 in-place"));
    free(text);
}

static void a_drawing_that_cannot_be_made_says_what_to_do(void **state)
{
    char *path = strdup(getenv("PATH"));

    (void)state;
    assert_int_equal(sb_plot_check("run.png"), -EINVAL);
    assert_non_null(strstr(sluice_last_error(), "ends in .svg"));
    setenv("PATH", "/nonexistent", 1);
    assert_int_equal(sb_plot_check("run.svg"), -ENOTSUP);
    assert_non_null(strstr(sluice_last_error(), "install gnuplot-nox"));
    setenv("PATH", path, 1);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_has_every_row_and_each_rank_s_times),
        cmocka_unit_test(json_has_the_paths_and_events_of_all_ranks),
        cmocka_unit_test(json_of_a_run_that_failed_carries_the_sentence),
        cmocka_unit_test(csv_has_a_line_per_size_and_placement),
        cmocka_unit_test(codecs_have_columns_of_their_own),
        cmocka_unit_test(a_file_that_cannot_be_written_is_named),
        cmocka_unit_test(files_are_looked_at_before_they_are_written),
        cmocka_unit_test(a_drawing_is_an_svg_with_a_curve_per_collective),
        cmocka_unit_test(a_drawing_that_cannot_be_made_says_what_to_do),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
