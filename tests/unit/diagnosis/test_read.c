/* SPDX-License-Identifier: Apache-2.0 */
/* Files before their format: gzip, what nobody knows, and JSON walked through in pieces. */
#include "core/err.h"
#include "monitor/read/json.h"
#include "monitor/read/read.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <cmocka.h>

/* Bytes that come a few at a time. */
struct drops {
    struct sl_read_in in;
    const char *at;
    size_t left, each;
};

static long drip(struct sl_read_in *in, void *buffer, size_t cap)
{
    struct drops *drops = (struct drops *)in;
    size_t len = drops->left < drops->each ? drops->left : drops->each;

    len = len < cap ? len : cap;
    memcpy(buffer, drops->at, len);
    drops->at += len;
    drops->left -= len;
    return (long)len;
}

static struct drops drops_of(const char *text, size_t each)
{
    return (struct drops){
        .in = {.name = "x.json", .more = drip}, .at = text, .left = strlen(text), .each = each};
}

/* The sum of the numbers in "list", or an error. */
static int sum_list(const char *text, size_t each, int64_t *sum)
{
    struct drops drops = drops_of(text, each);
    struct sl_json *json = sl_json_new(&drops.in);
    struct json_object *value;
    char key[8];
    int got = sl_json_open(json, '{');

    *sum = 0;
    while (got == 0 && (got = sl_json_next(json, key, sizeof(key))) == 1) {
        bool is_list = strcmp(key, "list") == 0;

        got = is_list ? sl_json_open(json, '[') : sl_json_value(json, &value);
        if (got == 0 && !is_list)
            json_object_put(value);
        while (got == 0 && is_list && (got = sl_json_next(json, NULL, 0)) == 1) {
            got = sl_json_value(json, &value);
            if (got == 0) {
                *sum += json_object_get_int64(value);
                json_object_put(value);
            }
        }
        if (got == 0)
            continue;
        break;
    }
    if (got == 0)
        got = sl_json_end(json);
    sl_json_free(json);
    return got;
}

static const char good[] = " { \"a\" : {\"list\": [9, {}]}, \"list\":[1, 20,300 ,-4e0 , 5000],\n"
                           "\"long key that is cut\": \"\\u00e4\", \"list\": [], \"z\": null } \n";

static void values_are_whole_however_the_bytes_come(void **state)
{
    int64_t sum;

    (void)state;
    for (size_t each = 1; each < sizeof(good); each++) {
        assert_int_equal(sum_list(good, each, &sum), 0);
        assert_int_equal(sum, 5317);
    }
}

static void json_that_is_cut_is_refused_wherever_it_is(void **state)
{
    char text[sizeof(good)];
    int64_t sum;

    (void)state;
    for (size_t len = 0; len < (size_t)(strrchr(good, '}') - good); len++) {
        memcpy(text, good, len);
        text[len] = '\0';
        assert_int_equal(sum_list(text, 3, &sum), -EBADMSG);
        assert_non_null(strstr(sluice_last_error(), "x.json, byte "));
    }
}

static void json_that_is_none_is_refused(void **state)
{
    static const char *const bad[] = {"[]",
                                      "{\"list\":{}}",
                                      "{\"list\":[1 2]}",
                                      "{\"list\":[1,]}",
                                      "{list:[]}",
                                      "{\"list\" []}",
                                      "{} {}",
                                      "{\"a\":1 \"b\":2}",
                                      "{\"a\":nul}",
                                      "{,}",
                                      "\xff",
                                      "{\"list\":[1,2}",
                                      "{\"list\":[1}"};
    int64_t sum;

    (void)state;
    for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (sum_list(bad[i], 64, &sum) != -EBADMSG)
            fail_msg("%s is taken", bad[i]);
}

/* ---- files ---- */

static char *write_file(const void *bytes, size_t len)
{
    char *path = strdup("/tmp/sluice-read-XXXXXX");
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, len), len);
    close(fd);
    return path;
}

static int read_file(const void *bytes, size_t len)
{
    char *path = write_file(bytes, len);
    struct sl_job *job = sl_job_new();
    int err = sl_read_file(job, path);

    assert_non_null(strstr(sluice_last_error(), path));
    sl_job_free(job);
    unlink(path);
    free(path);
    return err;
}

static size_t gzip(const char *text, size_t len, unsigned char *out, size_t cap)
{
    z_stream z = {.next_in = (unsigned char *)(uintptr_t)text, .avail_in = (uInt)len};

    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_out = out;
    z.avail_out = (uInt)cap;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return cap - z.avail_out;
}

static void a_file_that_nobody_knows_is_refused_with_the_formats_that_are(void **state)
{
    unsigned char packed[4096];
    size_t len = gzip("hello", 5, packed, sizeof(packed));

    (void)state;
    assert_int_equal(read_file("hello", 5), -EBADMSG);
    assert_non_null(strstr(sluice_last_error(), "no format that is known here"));
    assert_int_equal(read_file(packed, len), -EBADMSG);
    assert_non_null(strstr(sluice_last_error(), "no format that is known here"));
    assert_int_equal(read_file("", 0), -EBADMSG);
    assert_non_null(strstr(sluice_last_error(), "is empty"));
}

static void a_gzip_file_that_is_cut_or_damaged_is_refused(void **state)
{
    unsigned char packed[4096];
    size_t len = gzip(good, sizeof(good), packed, sizeof(packed));

    (void)state;
    for (size_t cut = 2; cut < len; cut++) {
        assert_int_equal(read_file(packed, cut), -EBADMSG);
        assert_non_null(strstr(sluice_last_error(), "compressed"));
    }
    packed[len / 2] ^= 0x55;
    assert_int_equal(read_file(packed, len), -EBADMSG);
    assert_non_null(strstr(sluice_last_error(), "no whole gzip file"));
}

static void a_file_that_is_not_there_is_told(void **state)
{
    struct sl_job *job = sl_job_new();

    (void)state;
    assert_int_equal(sl_read_file(job, "/nonexistent/_dump_0"), -ENOENT);
    assert_int_equal(sl_read_file(job, "/tmp"), -EISDIR);
    sl_job_free(job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_whole_however_the_bytes_come),
        cmocka_unit_test(json_that_is_cut_is_refused_wherever_it_is),
        cmocka_unit_test(json_that_is_none_is_refused),
        cmocka_unit_test(a_file_that_nobody_knows_is_refused_with_the_formats_that_are),
        cmocka_unit_test(a_gzip_file_that_is_cut_or_damaged_is_refused),
        cmocka_unit_test(a_file_that_is_not_there_is_told),
    };

    return cmocka_run_group_tests_name("diagnosis_read", tests, NULL, NULL);
}
