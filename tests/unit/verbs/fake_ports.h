/* SPDX-License-Identifier: Apache-2.0 */
/* A table of libibverbs with what verbs/device.c calls: devices, ports and GIDs as a test sets
 * them. */
#ifndef SL_TESTS_UNIT_VERBS_FAKE_PORTS_H
#define SL_TESTS_UNIT_VERBS_FAKE_PORTS_H

#include "verbs/device.h"

#define FAKE_DEVICES_MAX 6
#define FAKE_PORTS_MAX 3
#define FAKE_GIDS_MAX 100
#define FAKE_PKEYS_MAX 4

struct fake_port {
    struct ibv_port_attr attr;
    int query_error; /* what ibv_query_port returns */
    struct ibv_gid_entry gids[FAKE_GIDS_MAX];
    uint16_t pkeys[FAKE_PKEYS_MAX];
};

struct fake_device {
    struct ibv_device device; /* first: the library's pointer is ours */
    struct ibv_context context;
    int open_error; /* errno of ibv_open_device */
    unsigned open_count;
    uint8_t port_count;
    struct fake_port ports[FAKE_PORTS_MAX];
};

extern struct fake_device fake_devices[FAKE_DEVICES_MAX];
extern int fake_device_count;
extern unsigned fake_lists_open; /* got from ibv_get_device_list and not freed */

/* Whether the limit of locked memory of the machine counts; tests run on any. */
extern bool fake_limit_counts;

/* Forgets all devices; sl_ibv_get() gives the fake. without_ex: a library without
 * _ibv_query_gid_ex. */
void fake_ports_start(bool without_ex);

/* A device with one active Ethernet port of 4 x 25 Gbit/s and no GID. */
struct fake_device *fake_device_add(const char *name);

/* Fills entry index from text ("192.0.2.1", "fe80::1"). */
void fake_gid_set(struct fake_port *port, unsigned index, enum ibv_gid_type type,
                  const char *address);

#endif
