/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/dpdk/port_spawn.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define HELLO_MS 20000

void port_spawn(struct port_spawned *out, const char *program, const char *list, const char *mode,
                unsigned port)
{
    int to[2], from[2];
    char idx[12];

    snprintf(idx, sizeof(idx), "%u", port);
    if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0)
        abort();
    memset(out, 0, sizeof(*out));
    out->pid = fork();
    if (out->pid == 0) {
        dup2(to[0], 0);
        dup2(from[1], 1);
        execl(program, "port_peer", list, mode, idx, NULL);
        _exit(127);
    }
    close(to[0]);
    close(from[1]);
    out->to = to[1];
    out->from = from[0];
}

bool port_spawn_meet(struct port_spawned *peer, struct port_end *end, uint16_t source_port)
{
    struct pollfd input = {.fd = peer->from, .events = POLLIN};

    /* The hello is less than a pipe writes at once. */
    if (poll(&input, 1, HELLO_MS) != 1 ||
        read(peer->from, &peer->hello, sizeof(peer->hello)) != sizeof(peer->hello) ||
        write(peer->to, &end->own, sizeof(end->own)) != sizeof(end->own))
        return false;
    return port_end_connect(end, &peer->hello, source_port) == 0;
}

static int reap(struct port_spawned *peer)
{
    int status = 0;

    close(peer->to);
    close(peer->from);
    waitpid(peer->pid, &status, 0);
    return status;
}

int port_spawn_end(struct port_spawned *peer)
{
    return reap(peer);
}

void port_spawn_kill(struct port_spawned *peer)
{
    kill(peer->pid, SIGKILL);
    reap(peer);
}
