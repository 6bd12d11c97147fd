/* SPDX-License-Identifier: Apache-2.0 */
#include "core/host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static uint64_t group_of_a_child(int in_new_session)
{
    uint64_t group = 0;
    int ends[2], status;

    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();

    if (child == 0) {
        if (in_new_session)
            setsid();
        group = sl_host_sched_group();
        _exit(write(ends[1], &group, sizeof(group)) != sizeof(group));
    }
    assert_int_equal(read(ends[0], &group, sizeof(group)), sizeof(group));
    assert_int_equal(waitpid(child, &status, 0), child);
    close(ends[0]);
    close(ends[1]);
    return group;
}

static void a_line_comes_without_its_end(void **state)
{
    char path[] = "/tmp/sluice-line-XXXXXX", line[16];
    int fd = mkstemp(path);

    (void)state;
    assert_int_equal(write(fd, "first\nsecond\n", 13), 13);
    assert_true(sl_host_line(path, line, sizeof(line)));
    assert_string_equal(line, "first");
    close(fd);
    unlink(path);
    assert_false(sl_host_line(path, line, sizeof(line)));
}

static int autogroup(void)
{
    FILE *file = fopen("/proc/sys/kernel/sched_autogroup_enabled", "re");
    int on = file != NULL && fgetc(file) == '1';

    if (file != NULL)
        fclose(file);
    return on;
}

static void
a_child_shares_our_turns_and_a_session_has_its_own_where_the_kernel_says_so(void **state)
{
    uint64_t ours = sl_host_sched_group();

    (void)state;
    assert_true(group_of_a_child(0) == ours);
    if (autogroup())
        assert_true(group_of_a_child(1) != ours);
    else
        assert_true(group_of_a_child(1) == ours);
}

static void an_identity_is_the_same_for_one_name_and_begins_with_its_hash(void **state)
{
    static struct sl_config here, there;
    uint8_t id[2][SL_HOST_ID_BYTES];
    uint64_t hash = sl_host_hash(&here);

    (void)state;
    sl_host_id(&here, id[0]);
    sl_host_id(&here, id[1]);
    assert_memory_equal(id[0], id[1], sizeof(id[0]));
    assert_memory_equal(id[0], &hash, sizeof(hash));
    snprintf(there.host_id, sizeof(there.host_id), "there");
    sl_host_id(&there, id[1]);
    assert_memory_not_equal(id[0], id[1], 8);
    assert_memory_not_equal(id[0] + 8, id[1] + 8, 8); /* each half by itself */
    assert_true(sl_host_hash(&there) == sl_hash_text("there"));
    snprintf(there.host_id, sizeof(there.host_id), "where");
    sl_host_id(&there, id[0]);
    assert_memory_not_equal(id[0] + 8, id[1] + 8, 8); /* by all of the name */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_comes_without_its_end),
        cmocka_unit_test(an_identity_is_the_same_for_one_name_and_begins_with_its_hash),
        cmocka_unit_test(
            a_child_shares_our_turns_and_a_session_has_its_own_where_the_kernel_says_so),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
