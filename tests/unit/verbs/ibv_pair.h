/* SPDX-License-Identifier: Apache-2.0 */
/* Two ends over the fake libibverbs, each with a device, one registered buffer and a queue pair. */
#ifndef SL_TESTS_IBV_PAIR_H
#define SL_TESTS_IBV_PAIR_H

#include "tests/fake/fake_ibv.h"

#define PAIR_BUF 65536
#define PAIR_DEPTH 8

struct ibv_end {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_mr *mr;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_srq *srq;
    struct ibv_qp *qp;
    uint8_t *buf; /* PAIR_BUF bytes */
};

struct ibv_pair {
    struct fake_ibv *fake;
    const struct sl_ibv *ibv;
    struct ibv_end end[2];
};

struct pair_options {
    uint64_t seed;
    int cqe;           /* 0: 64 */
    bool srq;          /* shared receive queues */
    bool apart;        /* not connected: both in RESET */
    uint8_t rnr_retry; /* as given; pair_open() takes NULL for 7 */
    uint8_t timeout;
    unsigned access; /* of queue pair and region */
};

struct pair_options pair_defaults(void);
/* Would poll() call it readable? */
bool pair_readable(int fd);

/* options NULL: the defaults. */
void pair_open(struct ibv_pair *pair, const struct pair_options *options);
/* Destroys everything, and expects no misuse and nothing alive. */
void pair_close(struct ibv_pair *pair);
/* Brings both to RTS with this first packet number of either side. */
void pair_connect(struct ibv_pair *pair, const struct pair_options *options, uint32_t psn);

/* To the states one after the other; 0 or errno. */
int end_init(struct ibv_pair *pair, unsigned which, const struct pair_options *options);
int end_rtr(struct ibv_pair *pair, unsigned which, uint32_t psn);
int end_rts(struct ibv_pair *pair, unsigned which, const struct pair_options *options,
            uint32_t psn);
int end_state(struct ibv_pair *pair, unsigned which, enum ibv_qp_state state);

/* One request over bytes [off, off + len) of the end's buffer; 0 or errno. remote: where in the
 * peer's. */
int end_post(struct ibv_pair *pair, unsigned which, enum ibv_wr_opcode opcode, uint64_t wr_id,
             uint32_t off, uint32_t len, uint32_t remote, unsigned flags);
int end_recv(struct ibv_pair *pair, unsigned which, uint64_t wr_id, uint32_t off, uint32_t len);
/* One completion; false: none there. */
bool end_poll(struct ibv_pair *pair, unsigned which, struct ibv_wc *wc);
/* The next completion, after steps as needed; fails the test when none comes. */
struct ibv_wc end_wait(struct ibv_pair *pair, unsigned which);
/* Is the next event of that type? Fetches and acks it. */
bool end_event(struct ibv_pair *pair, unsigned which, enum ibv_event_type type);

#endif
