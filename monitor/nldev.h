/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Resources of RDMA devices, as RDMA netlink (nldev) lists them: how many there are, and each queue
 * pair with its state and its process. Messages in, samples out; no I/O.
 */
#ifndef SL_MONITOR_NLDEV_H
#define SL_MONITOR_NLDEV_H

#include "monitor/engine.h"

#define SL_MON_NLDEVS_MAX 64
#define SL_MON_NLDEV_BROKEN_MAX 256 /* queue pairs in error that are remembered, of a device */

struct nlmsghdr;

/* States of a queue pair (enum ib_qp_state). */
#define SL_MON_QP_STATES(X)                                                                        \
    X(RESET, "reset")                                                                              \
    X(INIT, "init")                                                                                \
    X(RTR, "rtr")                                                                                  \
    X(RTS, "rts")                                                                                  \
    X(SQD, "sqd")                                                                                  \
    X(SQE, "sqe")                                                                                  \
    X(ERR, "err")

enum sl_mon_qp_state {
#define X(id, ...) SL_MON_QP_##id,
    SL_MON_QP_STATES(X)
#undef X
        SL_MON_QP_STATE_COUNT
};

const char *sl_mon_qp_state_name(enum sl_mon_qp_state state);

/* What is counted of a device: X(id, the kernel's name) */
#define SL_MON_NLDEV_KINDS(X)                                                                      \
    X(QP, "qp")                                                                                    \
    X(CQ, "cq")                                                                                    \
    X(MR, "mr")                                                                                    \
    X(PD, "pd")                                                                                    \
    X(CM, "cm_id")                                                                                 \
    X(SRQ, "srq")                                                                                  \
    X(CTX, "ctx")

enum sl_mon_nldev_kind {
#define X(id, ...) SL_MON_NLDEV_##id,
    SL_MON_NLDEV_KINDS(X)
#undef X
        SL_MON_NLDEV_KIND_COUNT
};

const char *sl_mon_nldev_kind_name(enum sl_mon_nldev_kind kind);

struct sl_mon_qp {
    uint32_t number, peer, port, pid; /* pid 0: the kernel's, or another namespace's */
    uint8_t state;                    /* enum sl_mon_qp_state */
    bool is_kernel;
};

/* A device: its name, and its number of resources of each kind. False: the message is of none. */
bool sl_mon_nldev_parse(const struct nlmsghdr *message, size_t len, uint32_t *index,
                        char name[SL_MON_NAME], uint64_t counts[SL_MON_NLDEV_KIND_COUNT]);
/* Each queue pair that a message has. */
void sl_mon_nldev_qps(const struct nlmsghdr *message, size_t len,
                      void (*take)(void *arg, const struct sl_mon_qp *qp), void *arg);

struct sl_mon_nldev {
    char name[SL_MON_NAME]; /* "mlx5_0" */
    uint64_t counts[SL_MON_NLDEV_KIND_COUNT];
    uint32_t states[SL_MON_QP_STATE_COUNT];
    /* In error, of processes: now, and in the list before. */
    struct sl_mon_qp broken[2][SL_MON_NLDEV_BROKEN_MAX];
    unsigned broken_count[2], now; /* which of the two is being filled */
    bool is_told[2][SL_MON_NLDEV_BROKEN_MAX];
    uint64_t left_out;
};

/* A list: begin, its queue pairs, end. */
void sl_mon_nldev_begin(struct sl_mon_nldev *device);
void sl_mon_nldev_qp(struct sl_mon *mon, struct sl_mon_nldev *device, const struct sl_mon_qp *qp);
/* A queue pair that is in error in two lists in a row is a bad sample of its port: a program that
 * takes its queue pairs down sets them to that state too, for a moment. */
void sl_mon_nldev_end(struct sl_mon *mon, struct sl_mon_nldev *device);

#endif
