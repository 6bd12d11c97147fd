/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a software switch does with frames, without I/O and without a clock of its own: forwards by
 * MAC, damages what rules name, and serves each output port at its rate.
 *
 *   sl_fabric_receive() -> faults -> (held back) -> output queues, marks -> ops->send()
 *
 * An output port has two queues: one for the DSCP that it prefers, where it has one, and one for
 * all else. Which of them is next is decided when the wire is free (fabric_port.c).
 *
 * A frame belongs to whoever handed it in until it is received; then to the fabric, which hands it
 * to send() or drop() exactly once.
 */
#ifndef SL_TESTING_DPDK_FABRIC_H
#define SL_TESTING_DPDK_FABRIC_H

#include "core/rng.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define SL_FABRIC_PORTS 32   /* of one DPDK process: RTE_MAX_ETHPORTS */
#define SL_FABRIC_RULES 64   /* faults at once */
#define SL_FABRIC_QUEUE 8192 /* frames of one output queue; a power of two */
#define SL_FABRIC_BURST 32   /* frames that leave at once */
#define SL_FABRIC_HELD 8192  /* frames that are late */
#define SL_FABRIC_MACS 1024  /* a power of two */
#define SL_FABRIC_SHORT 256
#define SL_FABRIC_ANY (-1)

struct sl_fabric_frame {
    void *owner; /* opaque to the fabric: an mbuf */
    uint8_t *bytes;
    uint32_t len;
    uint8_t in, out;
    uint8_t class;    /* of its output queue: SL_FABRIC_PLAIN, SL_FABRIC_HIGH */
    uint64_t came_ns; /* to its output queue */
    uint64_t due_ns;  /* it may leave from then on */
    uint64_t order;   /* of those that are late: equal times keep it */
};

struct sl_fabric_ops {
    /* Takes the first frames of these, in order; how many. */
    unsigned (*send)(void *arg, unsigned port, struct sl_fabric_frame *frames, unsigned count);
    void (*drop)(void *arg, struct sl_fabric_frame *frame);
    /* Another frame with the same bytes; false: no memory. */
    bool (*copy)(void *arg, const struct sl_fabric_frame *frame, struct sl_fabric_frame *out);
};

/* Which frames, and what befalls them. SL_FABRIC_ANY: whichever. Chances are of 2^32. */
struct sl_fabric_rule {
    int in, out, port;      /* port: either of the two */
    int source, source_end; /* UDP source ports */
    int route;              /* as the header behind UDP says (dpdk/proto/wire.h) */
    uint64_t loss, twice, damage, late;
    uint64_t delay_ns; /* of every frame */
    uint64_t late_ns;  /* at most, of those that are late: others overtake them */
};

struct sl_fabric_counts {
    uint64_t in_frames, in_bytes, out_frames, out_bytes;
    uint64_t lost, twice, damaged, late, marked; /* by faults; by the phantom queue */
    uint64_t full;                               /* lost at the end of the queue */
    uint64_t queue_most, queue_sum;              /* bytes that a frame found before it */
    uint64_t phantom_most;
    uint64_t high; /* frames of the preferred class */
    /* ns: of frames up to SL_FABRIC_SHORT bytes, what the queue's rate had them wait; of all, how
     * late after that they left, as this process did not run or the receiver took none. */
    uint64_t short_frames, short_wait_sum, short_wait_most;
    uint64_t behind_sum, behind_most;
};

enum sl_fabric_class { SL_FABRIC_PLAIN, SL_FABRIC_HIGH, SL_FABRIC_CLASSES };

struct sl_fabric_queue {
    unsigned head, tail;
    uint64_t bytes;   /* with those that are leaving */
    uint64_t phantom; /* bytes that would be here at the phantom queue's rate */
    struct sl_fabric_frame *frames;
};

struct sl_fabric_port {
    uint64_t rate;        /* bits per second; 0: whatever the receiver takes */
    uint64_t limit;       /* bytes of each of its queues */
    uint64_t mark;        /* bytes of the phantom queue from which frames are marked; 0: never */
    double phantom_share; /* of the rate, at which the phantom queue is served */
    int high;             /* DSCP of frames that go first; SL_FABRIC_ANY: none do */
    double high_share;    /* of the rate, that frames which go first may take from the others */
    uint64_t free_ns;     /* when the wire is free: all of `leaving` has left */
    uint64_t phantom_ns;  /* when the phantom bytes were counted */
    double credit;        /* bytes that may go first now */
    uint64_t credit_ns;   /* when they were counted */
    struct sl_fabric_queue queues[SL_FABRIC_CLASSES];
    struct sl_fabric_frame leaving[SL_FABRIC_BURST]; /* the wire is theirs, in order */
    unsigned leaving_count;
    struct sl_fabric_counts counts;
    uint64_t from[SL_FABRIC_PORTS]; /* bytes that left here, by the port they came in at */
};

struct sl_fabric_mac {
    uint8_t mac[6];
    uint8_t port;
    bool is_known;
};

struct sl_fabric {
    const struct sl_fabric_ops *ops;
    void *arg;
    unsigned count;
    bool is_lossless; /* nothing is received while a queue is nearly full */
    int mirror;       /* the port that gets a copy of all that others send, or SL_FABRIC_ANY */
    struct sl_rng rng;
    struct sl_fabric_port ports[SL_FABRIC_PORTS];
    struct sl_fabric_rule rules[SL_FABRIC_RULES];
    unsigned rule_count;
    struct sl_fabric_mac macs[SL_FABRIC_MACS];
    struct sl_fabric_frame *held; /* a heap by due_ns */
    unsigned held_count;
    uint64_t held_order;
};

/* -ENOMEM, -EINVAL. Queues hold 4 MiB each, unshaped. */
int sl_fabric_init(struct sl_fabric *fabric, unsigned ports, uint64_t seed,
                   const struct sl_fabric_ops *ops, void *arg);
/* Drops what is left. */
void sl_fabric_fini(struct sl_fabric *fabric);

/* frame has owner, bytes and len. */
void sl_fabric_receive(struct sl_fabric *fabric, unsigned port, struct sl_fabric_frame *frame,
                       uint64_t now_ns);
/* False while a lossless fabric has no room: leave frames where they are. */
bool sl_fabric_has_room(const struct sl_fabric *fabric);
/* Sends what is due. How many frames left. */
unsigned sl_fabric_run(struct sl_fabric *fabric, uint64_t now_ns);
/* When something is due next; UINT64_MAX: nothing waits. */
uint64_t sl_fabric_next(const struct sl_fabric *fabric);

/* A line of control (docs/dpdk.md): fault, cut, heal, shape, lossless, mirror, seed, reset.
 * -EINVAL with a sentence. */
int sl_fabric_command(struct sl_fabric *fabric, const char *line);
/* One line of JSON. up[i]: the port has a peer. */
void sl_fabric_print(const struct sl_fabric *fabric, const bool *up, FILE *out);

#endif
