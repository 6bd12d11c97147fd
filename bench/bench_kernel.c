/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernel alone takes for what the library asks of it, with nothing of the library between:
 * the limits beside numbers 6, 9 and 10 in docs/perf.md.
 *
 *   flags     N ranks on the cores allowed raise a flag and yield until all have
 *   star      N ranks send 8 B to rank 0 over TCP and wait for its answer (spin and yield, or
 *             sleep)
 *   doubling  N ranks swap 8 B with one partner, then with another
 *   kill      from SIGKILL to the end of file at the peer: a plain socket, and one that an io_uring
 *             polls
 */
#include "core/clock.h"
#include "core/host.h"

#include <errno.h>
#include <liburing.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_RANKS 8
#define ROUNDS 31
#define TURNS 500
#define KILLS 41

struct shared {
    struct {
        _Alignas(128) _Atomic uint64_t turn;
    } rank[MAX_RANKS];
};

static struct shared *shared;
static int sockets[MAX_RANKS][MAX_RANKS]; /* [a][b]: a's end of the connection with b */

static void die(const char *what)
{
    perror(what);
    _exit(1);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void print(const char *what, int ranks, double *us, int count)
{
    qsort(us, (size_t)count, sizeof(*us), by_value);
    printf("%-16s %d ranks %10.2f us (%.2f-%.2f)\n", what, ranks, us[count / 2], us[0],
           us[count - 1]);
    fflush(stdout);
}

/* Two ends of a TCP connection over loopback. */
static void connect_pair(int *a, int *b)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(at);
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);

    *a = socket(AF_INET, SOCK_STREAM, 0);
    if (listener < 0 || *a < 0 || bind(listener, (struct sockaddr *)&at, len) != 0 ||
        listen(listener, 1) != 0 || getsockname(listener, (struct sockaddr *)&at, &len) != 0 ||
        connect(*a, (struct sockaddr *)&at, len) != 0)
        die("connect");
    *b = accept(listener, NULL, NULL);
    if (*b < 0)
        die("accept");
    close(listener);
    setsockopt(*a, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    setsockopt(*b, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

static void put(int fd)
{
    uint64_t word = 1;

    if (send(fd, &word, sizeof(word), MSG_NOSIGNAL) != sizeof(word))
        die("send");
}

static void get(int fd, bool sleeps)
{
    uint64_t word;

    for (;;) {
        ssize_t n = recv(fd, &word, sizeof(word), sleeps ? 0 : MSG_DONTWAIT);

        if (n == sizeof(word))
            return;
        if (n >= 0 || errno != EAGAIN)
            die("recv");
        sched_yield();
    }
}

static void turn_flags(int me, int ranks, bool sleeps)
{
    uint64_t turn = atomic_load(&shared->rank[me].turn) + 1;

    (void)sleeps;
    atomic_store_explicit(&shared->rank[me].turn, turn, memory_order_release);
    for (int i = 0; i < ranks; i++)
        while (atomic_load_explicit(&shared->rank[i].turn, memory_order_acquire) < turn)
            sched_yield();
}

static void turn_star(int me, int ranks, bool sleeps)
{
    if (me != 0) {
        put(sockets[me][0]);
        get(sockets[me][0], sleeps);
        return;
    }
    for (int i = 1; i < ranks; i++)
        get(sockets[0][i], sleeps);
    for (int i = 1; i < ranks; i++)
        put(sockets[0][i]);
}

static void turn_doubling(int me, int ranks, bool sleeps)
{
    for (int bit = 1; bit < ranks; bit *= 2) {
        put(sockets[me][me ^ bit]);
        get(sockets[me][me ^ bit], sleeps);
    }
}

typedef void turn_fn(int me, int ranks, bool sleeps);

static void rank_main(const char *what, turn_fn *turn, int me, int ranks, bool sleeps)
{
    double us[ROUNDS];

    sl_host_bind((unsigned)me, (unsigned)ranks);
    for (int r = 0; r < ROUNDS; r++) {
        uint64_t start = sl_now(&sl_clock_monotonic);

        for (int i = 0; i < TURNS; i++)
            turn(me, ranks, sleeps);
        us[r] = (double)(sl_now(&sl_clock_monotonic) - start) / 1e3 / TURNS;
    }
    if (me == 0)
        print(what, ranks, us, ROUNDS);
}

static void ranks_run(const char *what, turn_fn *turn, int ranks, bool sleeps)
{
    pid_t pids[MAX_RANKS];

    fflush(stdout);
    memset(shared, 0, sizeof(*shared));
    for (int a = 0; a < ranks; a++)
        for (int b = 0; b < a; b++)
            connect_pair(&sockets[a][b], &sockets[b][a]);
    for (int i = 0; i < ranks; i++) {
        pids[i] = fork();
        if (pids[i] < 0)
            die("fork");
        if (pids[i] == 0) {
            rank_main(what, turn, i, ranks, sleeps);
            _exit(0);
        }
    }
    for (int i = 0; i < ranks; i++)
        waitpid(pids[i], NULL, 0);
    for (int a = 0; a < ranks; a++)
        for (int b = 0; b < ranks; b++)
            if (a != b)
                close(sockets[a][b]);
}

/* The rank that dies: busy on one core, its socket polled by a ring or not. */
static _Noreturn void victim(int fd, bool ring_polls)
{
    struct io_uring ring;

    if (ring_polls) {
        if (io_uring_queue_init(64, &ring, 0) != 0)
            _exit(1);
        struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);

        io_uring_prep_poll_multishot(sqe, fd, POLLIN | POLLRDHUP);
        io_uring_submit(&ring);
    }
    put(fd);
    for (volatile uint64_t i = 0;; i++)
        ;
}

static void kills_run(const char *what, bool ring_polls)
{
    double us[KILLS];

    for (int i = 0; i < KILLS; i++) {
        uint64_t word, start;
        int mine, its;
        pid_t pid;

        connect_pair(&mine, &its);
        pid = fork();
        if (pid < 0)
            die("fork");
        if (pid == 0) {
            close(mine);
            victim(its, ring_polls);
        }
        close(its);
        get(mine, true);
        start = sl_now(&sl_clock_monotonic);
        kill(pid, SIGKILL);
        if (recv(mine, &word, sizeof(word), 0) > 0)
            die("recv after kill");
        us[i] = (double)(sl_now(&sl_clock_monotonic) - start) / 1e3;
        waitpid(pid, NULL, 0);
        close(mine);
    }
    print(what, 2, us, KILLS);
}

int main(void)
{
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        die("mmap");
    for (int ranks = 2; ranks <= MAX_RANKS; ranks *= 2) {
        ranks_run("flags, yield", turn_flags, ranks, false);
        ranks_run("star, yield", turn_star, ranks, false);
        ranks_run("star, sleep", turn_star, ranks, true);
        ranks_run("doubling, yield", turn_doubling, ranks, false);
        ranks_run("doubling, sleep", turn_doubling, ranks, true);
    }
    kills_run("kill, plain", false);
    kills_run("kill, io_uring", true);
    return 0;
}
