/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The source of RDMA ports: their state and counters in sysfs, read once a second from descriptors
 * that stay open. It needs no privilege, and works where nothing else does.
 *
 * 8 ports of 40 counters are 320 calls of pread() a second, some 0.3 ms.
 */
#ifndef SL_MONITOR_RDMA_H
#define SL_MONITOR_RDMA_H

#include "monitor/port.h"

#define SL_MON_RDMA_PORTS_MAX 64

struct sl_mon_rdma;

struct sl_mon_rdma_port {
    char name[SL_MON_NAME];   /* "mlx5_0:1" */
    char device[SL_MON_NAME]; /* "mlx5_0" */
    unsigned num;
    char pci[32];   /* "0000:0c:00.0"; "": a software device */
    char netif[16]; /* of RoCE; "" */
};

/* root: "/sys/class/infiniband", or a tree like it. That it is not there is no error: there are no
 * ports. -ENOMEM. */
int sl_mon_rdma_open(const char *root, struct sl_mon_rdma **out);
void sl_mon_rdma_close(struct sl_mon_rdma *rdma);

/* Lists the ports again: those that are new are opened, those that are gone closed. Returns how
 * many there are; their numbers are those of sl_mon_rdma_port() until the next scan. -EIO: the list
 * cannot be read, and the old one stays. */
int sl_mon_rdma_scan(struct sl_mon_rdma *rdma);
const struct sl_mon_rdma_port *sl_mon_rdma_port(const struct sl_mon_rdma *rdma, unsigned i);
/* -ENODEV: it is gone. A counter that cannot be read is one that it has not. */
int sl_mon_rdma_read(struct sl_mon_rdma *rdma, unsigned i, struct sl_mon_reading *out);

/* "4: ACTIVE" and "400 Gb/sec (4X NDR)", whatever stands there. False: it is neither. */
bool sl_mon_rdma_state(const char *text, bool *is_up);
bool sl_mon_rdma_rate(const char *text, uint64_t *bits);

#endif
