/* SPDX-License-Identifier: Apache-2.0 */
/* Who the members are: lines of files, what Kubernetes and DNS answer, and a look in a child. */
#include "core/err.h"
#include "monitor/cluster/members.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static struct sl_members_list list;

static int add(const char *line)
{
    return sl_members_add(&list, line, strlen(line), 9494);
}

static const char *all(void)
{
    static char text[4096];
    size_t len = 0;

    text[0] = '\0';
    sl_members_sort(&list);
    for (unsigned i = 0; i < list.count; i++)
        len += (size_t)snprintf(text + len, sizeof(text) - len, "%s %u;", list.list[i].host,
                                list.list[i].port);
    sl_members_list_free(&list);
    return text;
}

static void lines_are_hosts_and_ports(void **state)
{
    (void)state;
    assert_int_equal(add("node17"), 1);
    assert_int_equal(add("  10.0.0.1:80 # the first"), 1);
    assert_int_equal(add("[fe80::1%eth0]:81"), 1);
    assert_int_equal(add("fd00::2"), 1);
    assert_int_equal(add("node17\r"), 1);
    assert_int_equal(add(""), 0);
    assert_int_equal(add("# nothing"), 0);
    assert_string_equal(all(), "10.0.0.1 80;fd00::2 9494;fe80::1%eth0 81;node17 9494;");
}

static void what_is_no_host_is_refused(void **state)
{
    static const char *const wrong[] = {"a:0",      "a:65536", "a:",      "a:b",  "a b",
                                        "http://a", "-a",      "a/b",     "[::1", "[]:1",
                                        "[::1]1",   "user@a",  "a:123456"};

    (void)state;
    for (unsigned i = 0; i < SL_ARRAY_LEN(wrong); i++)
        if (add(wrong[i]) != -EINVAL)
            fail_msg("%s", wrong[i]);
    assert_string_equal(all(), "");
}

static void endpoints_of_kubernetes_are_taken(void **state)
{
    static const char text[] =
        "{\"metadata\":{\"continue\":\"next-1\"},\"items\":[{\"ports\":[{\"port\":9500}],"
        "\"endpoints\":[{\"addresses\":[\"10.1.0.2\"],\"nodeName\":\"n2\"},"
        "{\"addresses\":[\"10.1.0.1\",\"10.1.0.9\"]},{\"addresses\":[]},{\"addresses\":[7]}]},"
        "{\"endpoints\":[{\"addresses\":[\"fd00::1\"]},{\"addresses\":[\"a/b\"]}]}]}";
    char next[32];

    (void)state;
    assert_int_equal(sl_members_slices(&list, text, strlen(text), 9494, next, sizeof(next)), 0);
    assert_string_equal(next, "next-1");
    assert_string_equal(all(), "10.1.0.1 9500;10.1.0.2 9500;fd00::1 9494;");
    assert_int_equal(sl_members_slices(&list, "{}", 2, 9494, next, sizeof(next)), -EBADMSG);
    assert_int_equal(sl_members_slices(&list, "nothing", 7, 9494, next, sizeof(next)), -EBADMSG);
}

/* A header, one question, an SRV record of a compressed name, one of another kind. */
static const unsigned char answer[] =
    "\x00\x01\x81\x80\x00\x01\x00\x02\x00\x00\x00\x00"
    "\x07_sluice\x04_tcp\x01"
    "d\x00\x00\x21\x00\x01"
    "\xc0\x0c\x00\x21\x00\x01\x00\x00\x00\x3c\x00\x0b\x00\x00\x00\x00\x25\x16\x02n1\xc0\x19"
    "\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\x0a\x00\x00\x01";

static void records_of_dns_are_taken_and_damaged_ones_refused(void **state)
{
    size_t len = sizeof(answer) - 1;

    (void)state;
    assert_int_equal(sl_members_srv(&list, answer, len), 0);
    assert_string_equal(all(), "n1.d 9494;");
    for (size_t cut = 0; cut < len; cut++)
        assert_int_equal(sl_members_srv(&list, answer, cut), -EBADMSG);
    sl_members_list_free(&list);
}

static void sources_are_checked(void **state)
{
    static const char *const good[] = {"",       "file:/a",     "dns:a srv:b",
                                       "slurm:", "slurm:batch", "kubernetes:sluice/sluiced"};
    static const char *const wrong[] = {"/a",           "file:",    "dns:",     "slurm:-x",
                                        "kubernetes:a", "http://a", "file:/a b"};
    struct sl_mon_config config;

    (void)state;
    sl_mon_config_defaults(&config);
    for (unsigned i = 0; i < SL_ARRAY_LEN(good); i++) {
        snprintf(config.cluster_members, sizeof(config.cluster_members), "%s", good[i]);
        assert_int_equal(sl_members_check(&config), 0);
    }
    for (unsigned i = 0; i < SL_ARRAY_LEN(wrong); i++) {
        snprintf(config.cluster_members, sizeof(config.cluster_members), "%s", wrong[i]);
        if (sl_members_check(&config) != -EINVAL)
            fail_msg("%s", wrong[i]);
    }
}

static bool look(struct sl_members *members, uint64_t *now_ns)
{
    for (unsigned i = 0; i < 500; i++) {
        if (sl_members_tick(members, *now_ns))
            return true;
        if (sl_members_why(members)[0] != '\0')
            return false;
        *now_ns += 10000000;
        usleep(10000);
    }
    fail_msg("no answer");
    return false;
}

/* What fails changes nothing. */
static void a_file_is_read_again_and_its_errors_are_told(void **state)
{
    char path[] = "/tmp/sluice-members-test.XXXXXX";
    int fd = mkstemp(path);
    struct sl_mon_config config;
    struct sl_members *members;
    uint64_t now_ns = 1000000000;

    (void)state;
    sl_mon_config_defaults(&config);
    snprintf(config.cluster_members, sizeof(config.cluster_members), "file:%s dns:127.0.0.1", path);
    assert_true(write(fd, "b\na:1\n", 6) == 6);
    assert_int_equal(sl_members_new(&config, &members), 0);
    assert_true(look(members, &now_ns));
    assert_int_equal(sl_members_list(members)->count, 3);
    assert_string_equal(sl_members_list(members)->list[0].host, "127.0.0.1");
    assert_string_equal(sl_members_list(members)->list[1].host, "a");
    assert_true(write(fd, "c d\n", 4) == 4);
    now_ns += 61000000000;
    assert_false(look(members, &now_ns));
    assert_non_null(strstr(sl_members_why(members), ":3: 'c d' is no member"));
    assert_int_equal(sl_members_list(members)->count, 3);
    sl_members_free(members);
    close(fd);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_hosts_and_ports),
        cmocka_unit_test(what_is_no_host_is_refused),
        cmocka_unit_test(endpoints_of_kubernetes_are_taken),
        cmocka_unit_test(records_of_dns_are_taken_and_damaged_ones_refused),
        cmocka_unit_test(sources_are_checked),
        cmocka_unit_test(a_file_is_read_again_and_its_errors_are_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
