/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where an agent answers probes over RDMA: the queue pairs of its ports, a page of them in each
 * answer to a FIND. Pure: bytes and numbers.
 *
 *     0 state   1 ports here   2 ports in all   4 zeros   8 ports of 64 bytes, or a reason
 *
 *     of a port:   0 GID   16 queue pair   20 Q_Key   24 LID   26 MTU in bytes   28 kind of GID
 *                  29 zeros   32 name
 *
 * A question is as long as its answer. Its number is that of the page, from 0 on.
 */
#ifndef SL_MONITOR_PROBE_LIST_H
#define SL_MONITOR_PROBE_LIST_H

#include "monitor/probe.h"

#define SL_PROBE_PAGE 16u  /* ports of an answer */
#define SL_PROBE_PORTS 64u /* of a host, at most */
#define SL_PROBE_PORT_NAME 32
#define SL_PROBE_WHY 160
#define SL_PROBE_LIST_BYTES (SL_PROBE_LEAST + 8u + 64u * SL_PROBE_PAGE) /* of FIND and FOUND */

/* Only ports whose GIDs are of one kind can talk to each other. */
enum sl_probe_gid {
    SL_PROBE_GID_V2_IP4 = 1, /* RoCE v2 */
    SL_PROBE_GID_V2_IP6,
    SL_PROBE_GID_V2_LINK, /* fe80:: */
    SL_PROBE_GID_V1,
    SL_PROBE_GID_IB, /* InfiniBand */
    SL_PROBE_GID_KINDS = SL_PROBE_GID_IB
};

struct sl_probe_port {
    uint8_t gid[16];
    uint32_t qpn, qkey;
    uint16_t lid, mtu;
    uint8_t kind;                  /* enum sl_probe_gid */
    char name[SL_PROBE_PORT_NAME]; /* "mlx5_0:1" */
};

enum sl_probe_state {
    SL_PROBE_READY,
    SL_PROBE_SOON, /* its devices are being opened: ask again */
    SL_PROBE_NONE  /* and why */
};

struct sl_probe_page {
    enum sl_probe_state state;
    uint16_t total; /* of all pages */
    unsigned count;
    struct sl_probe_port ports[SL_PROBE_PAGE];
    char why[SL_PROBE_WHY];
};

/* Into SL_PROBE_LIST_BYTES; packet: a FOUND of that length. */
int sl_probe_page_write(const struct sl_probe_packet *packet, const struct sl_probe_page *page,
                        const uint8_t key[SL_DIGEST_BYTES], uint8_t *out);
/* Of a packet that sl_probe_read() took. -EBADMSG: it is no page. Sets no error's sentence. */
int sl_probe_page_read(const uint8_t *bytes, const struct sl_probe_packet *packet,
                       struct sl_probe_page *out);

#endif
