/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The other process of a wire: port_peer PORTS MODE [INDEX]. Tells its hello on standard output
 * when its link may come up, reads the other one on standard input, and then echoes or streams
 * until its input ends. Without any it prints what it sees, for people.
 */
#include "core/clock.h"
#include "core/err.h"
#include "core/log.h"
#include "tests/unit/dpdk/port_end.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static bool is_over(void)
{
    struct pollfd input = {.fd = 0, .events = POLLIN};
    char byte;

    return poll(&input, 1, 0) > 0 && read(0, &byte, 1) <= 0;
}

/* Packets of that length, which are lent; 0: of many lengths, of which some are. */
static void stream(struct port_end *end, size_t len)
{
    static uint8_t payload[16384];

    port_end_fill(payload, sizeof(payload));
    for (unsigned i = 0;; i++) {
        for (int j = 0, sent = 0; j < 32 && sent >= 0; j++)
            sent = port_end_send(end, payload, len != 0 ? len : 100 + (i + (unsigned)j) * 37 % 8000,
                                 len != 0 || (i + (unsigned)j) % 3 != 0);
        port_end_poll(end);
        if (i % 64 == 0) {
            sched_yield();
            if (is_over())
                return;
        }
    }
}

/* One packet first, and then as echo. */
static void send_one(struct port_end *end, size_t len)
{
    static uint8_t payload[16384];

    port_end_fill(payload, sizeof(payload));
    while (!port_end_wait_up(end, 1000) || port_end_send(end, payload, len, false) < 0)
        if (is_over())
            return;
    sl_dpdk_flush(end->user, end->port);
}

static void echo(struct port_end *end)
{
    end->echoes = true;
    for (unsigned i = 0;; i++) {
        port_end_poll(end);
        sched_yield();
        if (i % 64 == 0 && is_over())
            return;
    }
}

int main(int argc, char **argv)
{
    static struct port_end end;
    struct sl_dpdk_port_settings settings = {
        .list = argv[1], .rank = -1, .local_rank = -1, .inject = getenv("PEER_INJECT")};
    struct port_hello peer;

    if (argc < 3)
        return 2;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_IGN);
    if (getenv("PEER_LOG") != NULL)
        sl_log_configure(getenv("PEER_LOG"));
    if (port_end_open(&end, &settings, argc > 3 ? (unsigned)atoi(argv[3]) : 0) != 0) {
        fprintf(stderr, "port_peer: %s\n", sluice_last_error());
        return 1;
    }
    if (write(1, &end.own, sizeof(end.own)) != sizeof(end.own) ||
        read(0, &peer, sizeof(peer)) != sizeof(peer))
        return 1;
    if (port_end_connect(&end, &peer, 50000) != 0) {
        fprintf(stderr, "port_peer: %s\n", sluice_last_error());
        return 1;
    }
    if (strncmp(argv[2], "one=", 4) == 0)
        send_one(&end, (size_t)atoi(argv[2] + 4));
    if (strcmp(argv[2], "mixed") == 0)
        stream(&end, 0);
    else if (strncmp(argv[2], "stream", 6) == 0)
        stream(&end, strlen(argv[2]) > 7 ? (size_t)atoi(argv[2] + 7) : 1000);
    else
        echo(&end);
    port_end_close(&end);
    return 0;
}
