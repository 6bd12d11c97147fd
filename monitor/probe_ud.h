/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An unreliable datagram queue pair at a port of an RDMA device, with libibverbs opened at run
 * time: what is lost on the way stays lost, and so can be counted. For a process of its own, as
 * to open a device asks its firmware, which may hang.
 *
 * Registers 128 receive and 64 send buffers, each of an MTU: 0.8 MB at 4,096 bytes.
 */
#ifndef SL_MONITOR_PROBE_UD_H
#define SL_MONITOR_PROBE_UD_H

#include "monitor/probe_rail.h"

struct sl_probe_ud;     /* the queue pair */
struct sl_probe_ud_way; /* where packets go: an address handle */
struct ibv_grh;
struct ibv_wc;

/* A packet that came; valid during the call. */
struct sl_probe_ud_packet {
    const uint8_t *bytes;
    uint32_t len;
    uint32_t qpn; /* who sent it */
    struct ibv_wc *wc;
    struct ibv_grh *grh;
};

/* library: "libibverbs.so.1". -ENOTSUP: not installed, or not built with; -ENODEV: no such device;
 * -EACCES, -ENOMEM and others, with a sentence that says what to do. */
int sl_probe_ud_open(const char *library, const struct sl_probe_rail *rail, uint32_t qkey,
                     struct sl_probe_ud **out);
void sl_probe_ud_close(struct sl_probe_ud *ud); /* takes NULL; its ways were closed before */
uint32_t sl_probe_ud_qpn(const struct sl_probe_ud *ud);
unsigned sl_probe_ud_mtu(const struct sl_probe_ud *ud);
/* To wait for; readable after something came since the last sl_probe_ud_poll(). */
int sl_probe_ud_fd(const struct sl_probe_ud *ud);

/* traffic_class: of the packets; gid: of ours, from which they go. May take seconds where an
 * address has to be found. With a sentence. */
int sl_probe_ud_way(struct sl_probe_ud *ud, const struct sl_probe_rail_gid *gid,
                    const struct sl_probe_port *to, uint8_t traffic_class,
                    struct sl_probe_ud_way **out);
/* Back to where a packet came from. */
int sl_probe_ud_way_back(struct sl_probe_ud *ud, const struct sl_probe_ud_packet *packet,
                         struct sl_probe_ud_way **out);
void sl_probe_ud_way_close(struct sl_probe_ud *ud, struct sl_probe_ud_way *way); /* takes NULL */

/* len: at most an MTU. -EAGAIN: all buffers are under way. */
int sl_probe_ud_send(struct sl_probe_ud *ud, struct sl_probe_ud_way *way, uint32_t qpn,
                     uint32_t qkey, const uint8_t *bytes, uint32_t len);
/* Gives all that has come, about `most` of it, to take(), which may send. How many completions
 * there were: with `most` or more it is to be called again before waiting. -EIO: the queue
 * pair does not work any more, with a sentence. */
int sl_probe_ud_poll(struct sl_probe_ud *ud, unsigned most,
                     void (*take)(void *arg, const struct sl_probe_ud_packet *packet), void *arg);

#endif
