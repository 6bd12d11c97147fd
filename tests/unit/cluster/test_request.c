/* SPDX-License-Identifier: Apache-2.0 */
/* What is asked of an instance: what it is taken for, and what is refused. */
#include "core/err.h"
#include "monitor/cluster/request.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static struct sl_cluster_request got;

static int parse(const char *method, const char *target)
{
    sl_cluster_parse(method, target, &got);
    return got.status;
}

static void each_endpoint_is_in_the_list_and_known(void **state)
{
    const char *path, *help;
    unsigned count = 0;

    (void)state;
    for (; (path = sl_cluster_endpoint(count, &help)) != NULL; count++) {
        assert_true(help[0] != '\0');
        assert_true(parse("GET", path) == 200 || parse("GET", path) == 400);
        assert_int_equal(parse("POST", path), 405);
        assert_int_equal(got.what, count);
    }
    assert_int_equal(count, SL_CLUSTER_LIVE + 1);
}

static void parameters_are_taken(void **state)
{
    (void)state;
    assert_int_equal(parse("GET", "/v1/nodes?state=silent&after=n17&limit=1000"), 200);
    assert_string_equal(got.state, "silent");
    assert_string_equal(got.name, "n17");
    assert_int_equal(got.limit, 1000);
    assert_int_equal(parse("GET", "/v1/matrix?job=a%20job+of%2fmine"), 200);
    assert_string_equal(got.job, "a job of/mine");
    assert_int_equal(parse("HEAD", "/v1/verdicts?open=1"), 200);
    assert_true(got.is_open_only);
}

static void what_is_not_known_is_refused(void **state)
{
    static const struct {
        const char *target;
        int status;
    } rows[] = {{"/v1/nodes?state=well", 400},
                {"/v1/nodes?limit=0", 400},
                {"/v1/nodes?limit=1001", 400},
                {"/v1/nodes?sinse=3", 400},
                {"/v1/node", 400},
                {"/v1/node?name=", 400},
                {"/v1/node?name=..", 400},
                {"/v1/node?name=a&name=b", 400},
                {"/v1/node?name=a/b", 400},
                {"/v1/matrix?job=%0a", 400},
                {"/v1/verdicts?open=2", 400},
                {"/v1/cluster?job=a", 400},
                {"/v1/matrix?job=%zz", 400},
                {"/v2", 404},
                {"/v1/../etc/passwd", 404},
                {"", 404},
                {"/v1/cluster/", 404}};

    (void)state;
    for (unsigned i = 0; i < SL_ARRAY_LEN(rows); i++) {
        if (parse("GET", rows[i].target) != rows[i].status)
            fail_msg("%s: %d", rows[i].target, got.status);
        assert_true(got.why[0] != '\0');
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_endpoint_is_in_the_list_and_known),
        cmocka_unit_test(parameters_are_taken),
        cmocka_unit_test(what_is_not_known_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
