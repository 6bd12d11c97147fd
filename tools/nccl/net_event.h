/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The event of each request for NCCL's profiler (ncclProfileNetPlugin): a start
 * when it is taken, with this, and a stop when it is over. A profiler knows the layout by the
 * number.
 */
#ifndef SL_NCCL_NET_EVENT_H
#define SL_NCCL_NET_EVENT_H

#include <stdint.h>

/* NCCL's form: the kind of plugin above bit 16 (NCCL's own are 1 and 2), the version of the layout
 * below. */
#define SL_NCCL_NET_EVENT_ID (INT64_C(0x534c) << 16 | 1)

struct sl_nccl_net_event {
    uint8_t is_send;
    uint8_t spare[3];
    int32_t tag;
    uint64_t len;      /* bytes; of a receive at most */
    char transport[8]; /* shm, verbs, tcp */
    char peer[64];     /* its address */
};

#endif
