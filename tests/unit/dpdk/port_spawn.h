/* SPDX-License-Identifier: Apache-2.0 */
/* The other process of a wire: starts port_peer, and talks with it. */
#ifndef SL_TESTS_UNIT_DPDK_PORT_SPAWN_H
#define SL_TESTS_UNIT_DPDK_PORT_SPAWN_H

#include "tests/unit/dpdk/port_end.h"

#include <stdbool.h>
#include <sys/types.h>

struct port_spawned {
    pid_t pid;
    int to, from; /* its standard input and output */
    struct port_hello hello;
};

/* program: the path of port_peer. */
void port_spawn(struct port_spawned *out, const char *program, const char *list, const char *mode,
                unsigned port);
/* Its hello, after its ports are open; then it gets end's, and end is connected to it. */
bool port_spawn_meet(struct port_spawned *peer, struct port_end *end, uint16_t source_port);
/* Lets it end: its exit status. */
int port_spawn_end(struct port_spawned *peer);
void port_spawn_kill(struct port_spawned *peer);

#endif
