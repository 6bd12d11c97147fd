/* SPDX-License-Identifier: Apache-2.0 */
/* An address on this host where connecting waits, as for a host that is down: a listener whose
 * queue is full. Include cmocka.h before. */
#ifndef SL_TESTS_UTIL_DEAD_PLACE_H
#define SL_TESTS_UTIL_DEAD_PLACE_H

#include <stddef.h>
#include <sys/socket.h>
#include <unistd.h>

#define DEAD_PLACE_FILLERS 8

struct dead_place {
    int listener, filler[DEAD_PLACE_FILLERS];
};

/* Port 0 in addr becomes one that is free. */
static inline void dead_place_open(struct dead_place *dead, void *addr, socklen_t len)
{
    int on = 1;

    dead->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(setsockopt(dead->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)), 0);
    assert_int_equal(bind(dead->listener, addr, len), 0);
    assert_int_equal(listen(dead->listener, 0), 0);
    assert_int_equal(getsockname(dead->listener, addr, &len), 0);
    for (size_t i = 0; i < DEAD_PLACE_FILLERS; i++) {
        dead->filler[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        (void)!connect(dead->filler[i], addr, len);
    }
}

static inline void dead_place_close(struct dead_place *dead)
{
    for (size_t i = 0; i < DEAD_PLACE_FILLERS; i++)
        close(dead->filler[i]);
    close(dead->listener);
}

#endif
