/* SPDX-License-Identifier: Apache-2.0 */
/* The link is made by ip(8) and tc(8), as in tests/net. */
#include "bench/link.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int sl_link_swap(int meet, const void *out, void *in, size_t len)
{
    if (write(meet, out, len) == (ssize_t)len && read(meet, in, len) == (ssize_t)len)
        return 0;
    return -EPIPE;
}

double sl_link_cpu_us(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec / 1e3;
}

int sl_link_run(int (*side)(int rank, int meet, void *arg), void *arg)
{
    pid_t children[2];
    int pair[2], failed = 0;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return 1;
    for (int rank = 0; rank < 2; rank++) {
        children[rank] = fork();
        if (children[rank] == 0) {
            cpu_set_t set;

            CPU_ZERO(&set);
            CPU_SET(rank, &set);
            sched_setaffinity(0, sizeof(set), &set);
            close(pair[1 - rank]);
            exit(side(rank, pair[rank], arg));
        }
    }
    close(pair[0]);
    close(pair[1]);
    for (int rank = 0; rank < 2; rank++) {
        int status = 1;

        waitpid(children[rank], &status, 0);
        failed |= status != 0;
    }
    return failed;
}

static int sh(const char *fmt, ...)
{
    char command[512];
    va_list args;

    va_start(args, fmt);
    vsnprintf(command, sizeof(command), fmt, args);
    va_end(args);
    return system(command) == 0 ? 0 : -EIO;
}

int sl_link_open(struct sl_link *link, const char *where, int rank, int meet)
{
    pid_t pid = getpid(), other;
    char go = 1;
    int err = 0;

    *link = (struct sl_link){.name = where};
    for (int i = 0; i < 2; i++)
        inet_pton(AF_INET, "127.0.0.1", &link->addr[i]);
    if (strcmp(where, "lo") == 0)
        return 0;
    inet_pton(AF_INET, "10.77.0.1", &link->addr[0]);
    inet_pton(AF_INET, "10.77.0.2", &link->addr[1]);
    if (strcmp(where, "veth") != 0)
        link->bytes_per_s =
            strtoull(where, NULL, 10) * (strstr(where, "gbit") != NULL ? 125000000 : 125000);
    if (unshare(CLONE_NEWNET) != 0)
        return -errno;
    if (sl_link_swap(meet, &pid, &other, sizeof(pid)) != 0)
        return -EPIPE;
    if (rank == 0)
        err = sh("ip link add bench0 type veth peer name bench0 netns %d", (int)other);
    if (sl_link_swap(meet, &go, &go, 1) != 0)
        return -EPIPE;
    err = err
              ?: sh("ip addr add 10.77.0.%d/24 dev bench0 && ip link set bench0 up && ip link set "
                    "lo up",
                    rank + 1);
    /* The kernel reports the carrier a moment later. */
    for (int i = 0; err == 0 && i < 1000 && sh("ip link show dev bench0 | grep -q 'state UP'") != 0;
         i++)
        usleep(10000);
    if (err == 0 && link->bytes_per_s > 0)
        err = sh("tc qdisc add dev bench0 root tbf rate %s burst 256k latency 50ms", where);
    if (sl_link_swap(meet, &go, &go, 1) != 0)
        return -EPIPE;
    return err;
}

int sl_link_connect(const struct sl_link *link, int rank, int meet)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr = link->addr[0]}, other;
    socklen_t len = sizeof(addr);
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), got = fd;

    setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5);
    if (rank == 0) {
        if (bind(fd, (struct sockaddr *)&addr, len) != 0 || listen(fd, 1) != 0 ||
            getsockname(fd, (struct sockaddr *)&addr, &len) != 0)
            return -errno;
        sl_link_swap(meet, &addr, &other, sizeof(addr));
        got = accept(fd, NULL, NULL);
        close(fd);
    } else {
        sl_link_swap(meet, &addr, &other, sizeof(addr));
        if (connect(fd, (struct sockaddr *)&other, len) != 0)
            return -errno;
    }
    setsockopt(got, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    return got;
}
