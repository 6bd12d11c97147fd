/* SPDX-License-Identifier: Apache-2.0 */
/* Strangers at the meeting place: garbage, and connections that are slow for ever. */
#include "tests/fault/fault.h"

#include "core/rng.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CONNECTIONS 12

static int dial(int port)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof(to)) != 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static void speak(int *fd, enum fault_kind kind, struct sl_rng *rng)
{
    uint8_t bytes[512];
    size_t len = kind == FAULT_SLOW ? 1 : 1 + sl_rng_u64(rng) % sizeof(bytes);

    for (size_t i = 0; i < len; i++)
        bytes[i] = (uint8_t)sl_rng_u64(rng);
    if (send(*fd, bytes, len, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno != EAGAIN) {
        close(*fd);
        *fd = -1;
    } else if (kind == FAULT_GARBAGE && sl_rng_u64(rng) % 4 == 0) {
        close(*fd);
        *fd = -1;
    }
}

_Noreturn void stranger_main(const struct fault_run *run)
{
    struct timespec pause = {.tv_nsec = run->kind == FAULT_SLOW ? 20000000 : 1000000};
    int fd[CONNECTIONS];
    struct sl_rng rng;

    sl_rng_init(&rng, run->seed ^ 0x57);
    for (int i = 0; i < CONNECTIONS; i++)
        fd[i] = -1;
    while (atomic_load(&run->fire) == 0) {
        for (int i = 0; i < CONNECTIONS; i++) {
            if (fd[i] < 0)
                fd[i] = dial(run->port);
            if (fd[i] >= 0)
                speak(&fd[i], run->kind, &rng);
        }
        nanosleep(&pause, NULL);
    }
    _exit(0);
}
