/* SPDX-License-Identifier: Apache-2.0 */
/* Words over a socket that takes a few bytes at a time. */
#include "core/err.h"
#include "tools/nccl/link.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static size_t takes; /* bytes at once */
static unsigned calls_left;

ssize_t __real_send(int fd, const void *bytes, size_t len, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t len, int flags);

ssize_t __wrap_send(int fd, const void *bytes, size_t len, int flags)
{
    if (calls_left == 0) {
        errno = EAGAIN;
        return -1;
    }
    calls_left--;
    return __real_send(fd, bytes, len < takes ? len : takes, flags);
}

static void words_leave_in_pieces_and_arrive_whole(void **state)
{
    static struct sl_nccl_link from, to;
    struct sl_nccl_word heard;
    unsigned words = 0, rounds = 0;
    int fd[2];

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fd), 0);
    sl_nccl_link_init(&from, NULL, true);
    sl_nccl_link_init(&to, NULL, false);
    from.fd = fd[0];
    to.fd = fd[1];
    takes = 5;
    for (unsigned i = 0; i < 3; i++) {
        struct sl_nccl_word word = {.kind = SL_NCCL_FAILED, .way = (uint8_t)i};

        snprintf(word.text, sizeof(word.text), "the reason that is number %u", i);
        calls_left = 2;
        assert_int_equal(sl_nccl_link_say(&from, &word), 0);
    }
    assert_int_equal(sl_nccl_link_flush(&from), 0); /* not yet */
    do {
        int err;

        calls_left = 1;
        while ((err = sl_nccl_link_hear(&to, &heard)) == 1) {
            char why[sizeof(heard.text)];

            snprintf(why, sizeof(why), "the reason that is number %u", words);
            assert_int_equal(heard.way, words++);
            assert_string_equal(heard.text, why);
        }
        assert_int_equal(err, 0);
        assert_true(++rounds < 1000);
    } while (sl_nccl_link_flush(&from) == 0 || words < 3);
    sl_nccl_link_fini(&from);
    sl_nccl_link_fini(&to);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(words_leave_in_pieces_and_arrive_whole)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
