/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asynchronous events of RDMA devices: records of a process that waits for them, and what they say.
 * A port tells within milliseconds that its link went or a GID of it changed. No I/O.
 */
#ifndef SL_MONITOR_ASYNC_H
#define SL_MONITOR_ASYNC_H

#include "monitor/engine.h"

#define SL_MON_ASYNC_MAGIC 0x534c4156
#define SL_MON_ASYNC_PORTS_MAX 64
#define SL_MON_GIDS_MAX 256 /* of a port */

enum sl_mon_async_type {
    SL_MON_ASYNC_ABSENT = 1, /* libibverbs cannot be had; text says why. The process ends. */
    SL_MON_ASYNC_OPENED,     /* events of this device are waited for; port is how many it has */
    SL_MON_ASYNC_EVENT,
    SL_MON_ASYNC_ALIVE, /* nothing happened */
};

/* enum ibv_event_type, as far as it is used. */
enum sl_mon_async_event {
    SL_MON_ASYNC_DEVICE_FATAL = 8,
    SL_MON_ASYNC_PORT_ACTIVE = 9,
    SL_MON_ASYNC_PORT_ERR = 10,
    SL_MON_ASYNC_GID_CHANGE = 18,
};

struct sl_mon_async_record {
    uint32_t magic, type; /* enum sl_mon_async_type */
    uint32_t event, port;
    char device[64]; /* "mlx5_0" */
    char pci[16];    /* "0000:0c:00.0"; "": none */
    char text[112];
};

/* False: it is none. Texts end, and have no odd characters. */
bool sl_mon_async_parse(const void *bytes, size_t len, struct sl_mon_async_record *out);

/* GIDs of a port that are not zero, as sysfs writes them. */
struct sl_mon_gids {
    unsigned count;
    char gids[SL_MON_GIDS_MAX][40];
};

/* A port whose device is open. */
struct sl_mon_async_port {
    char device[64], pci[16];
    uint32_t num;            /* 0: this place is free */
    uint64_t down_ns;        /* when it said that it lost its link; 0: it did not, or has it back */
    struct sl_mon_gids gids; /* that it had */
};

/* An event of the port; gids: what it has now, for SL_MON_ASYNC_GID_CHANGE. */
void sl_mon_async_judge(struct sl_mon *mon, struct sl_mon_async_port *port, uint32_t event,
                        const struct sl_mon_gids *gids);

#endif
