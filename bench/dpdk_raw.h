/* SPDX-License-Identifier: Apache-2.0 */
/* Two processes that exchange raw frames by DPDK: what bench_dpdk_raw.c asks of dpdk_raw_end.c. */
#ifndef SL_BENCH_DPDK_RAW_H
#define SL_BENCH_DPDK_RAW_H

#include <stdbool.h>
#include <stdint.h>

enum raw_payload {
    RAW_NONE,     /* frames as they lie in the pool */
    RAW_COPIED,   /* out of a user's buffer at the sender, into one at the receiver */
    RAW_EXTERNAL, /* sent from the user's buffer, copied at the receiver */
};

/* One kind of port between two processes. */
struct raw_wire {
    const char *name;
    const char *device; /* printf format of the --vdev string: place (a path or an interface) */
    enum raw_payload payload;
    bool by_veth;
    bool by_switch;
    unsigned room; /* bytes of a frame buffer */
    unsigned sizes[4];
};

/* From the parent to an end. */
enum raw_order {
    RAW_RECEIVE = 'r',
    RAW_SEND = 's',
    RAW_ECHO = 'e',
    RAW_PING = 'p',
    RAW_STOP = 'x'
};

struct raw_task {
    enum raw_order order;
    unsigned frame;
    unsigned answers; /* 0, or one frame back for so many, as a reliable transport has */
    uint64_t ns;
    uint8_t peer[6];
};

struct raw_result {
    int status;
    uint8_t mac[6];
    uint64_t frames, bytes, ns;
    uint64_t p50_ns, p99_ns, lost;
};

/* Runs tasks that come by fd until it closes; the first result is sent when the port is up. number:
 * 0 or 1, which has cores of its own, as in bench_p2p. device: the whole --vdev string. net: file
 * of a network namespace, or NULL. Does not return. */
_Noreturn void raw_end(int fd, unsigned number, const struct raw_wire *wire, const char *device,
                       const char *net);

#endif
