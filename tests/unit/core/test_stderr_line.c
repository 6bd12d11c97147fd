/* SPDX-License-Identifier: Apache-2.0 */
/* Standard error is one end of a socket that keeps each write() apart from the next. */
#include "core/stderr_line.h"
#include "core/log.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

static int before, ends[2];
static char got[2 * SL_STDERR_LINE_MAX];

static int start(void **state)
{
    (void)state;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return -1;
    before = dup(STDERR_FILENO);
    return before < 0 || dup2(ends[1], STDERR_FILENO) < 0 ? -1 : 0;
}

static int stop(void **state)
{
    (void)state;
    dup2(before, STDERR_FILENO);
    close(before);
    close(ends[0]);
    close(ends[1]);
    return 0;
}

/* The bytes of one write(); without any: none was made. */
static size_t one_write(void)
{
    ssize_t n = recv(ends[0], got, sizeof(got) - 1, MSG_DONTWAIT);

    got[n > 0 ? n : 0] = '\0';
    return n > 0 ? (size_t)n : 0;
}

static void a_line_is_one_write(void **state)
{
    char text[1000];

    (void)state;
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    errno = ENOLINK;
    sl_stderr_line("rank %d: %s", 7, text);
    assert_int_equal(errno, ENOLINK);
    assert_int_equal(one_write(), strlen("rank 7: ") + strlen(text) + 1);
    assert_memory_equal(got, "rank 7: x", 9);
    assert_int_equal(got[strlen(got) - 1], '\n');
    assert_int_equal(one_write(), 0);
}

static void a_line_of_the_log_is_one_write(void **state)
{
    char text[1000];

    (void)state;
    memset(text, 'y', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    sl_log_write(SL_LOG_WARN, "tcp", "%s", text);
    assert_int_equal(one_write(), strlen("sluice warn tcp: ") + strlen(text) + 1);
    assert_int_equal(one_write(), 0);
}

static void what_is_too_long_is_cut_and_still_a_line(void **state)
{
    char *text = malloc(2 * SL_STDERR_LINE_MAX);

    (void)state;
    assert_non_null(text);
    memset(text, 'z', 2 * SL_STDERR_LINE_MAX - 1);
    text[2 * SL_STDERR_LINE_MAX - 1] = '\0';
    sl_stderr_line("%s", text);
    free(text);
    assert_int_equal(one_write(), SL_STDERR_LINE_MAX + 1);
    assert_int_equal(got[SL_STDERR_LINE_MAX], '\n');
    assert_int_equal(one_write(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_line_is_one_write, start, stop),
        cmocka_unit_test_setup_teardown(a_line_of_the_log_is_one_write, start, stop),
        cmocka_unit_test_setup_teardown(what_is_too_long_is_cut_and_still_a_line, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
