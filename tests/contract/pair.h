/* SPDX-License-Identifier: Apache-2.0 */
/* Two interfaces, their endpoints and their messages, as every case of the contract test uses
 * them. */
#ifndef SL_TESTS_CONTRACT_PAIR_H
#define SL_TESTS_CONTRACT_PAIR_H

#include "core/transport.h"

#include <stdbool.h>

#define GUARD 64 /* bytes on either side of a receive buffer that must stay as they were */
#define STUCK_NS (20 * SL_NS_PER_S) /* a case that waits longer for one thing has failed */

/* One send or one receive, with what must hold for it. */
struct msg {
    struct sl_req req;
    struct sl_sink sink;
    struct sl_buf buf;
    unsigned ended;    /* how often it ended: must become 1 */
    bool by_done;      /* through done() */
    uint8_t *block;    /* GUARD, room, GUARD */
    uint8_t *got;      /* what consume handed over; NULL without consume */
    size_t room;       /* bytes of memory */
    size_t len, taken; /* of the message; of got */
    struct sl_mr *mr;  /* of the memory, or NULL */
    unsigned pieces;
    struct side *side;
    void (*then)(struct msg *); /* called from done() */
};

/* What one interface's owner sees. */
struct side {
    struct sl_iface *iface;
    struct sl_ep *ep;
    unsigned downs; /* of any endpoint */
    struct sl_ep *down_ep;
    int down_status;
    char why[128];
    unsigned ended_at_down; /* requests that had ended with an error when down came */
    unsigned errors;        /* requests that ended with an error so far */
    unsigned ctrls;
    struct sl_ep *ctrl_ep;
    uint8_t ctrl[SL_CTRL_MAX];
    size_t ctrl_len;
};

struct pair {
    struct side side[2];
    uint64_t since_ns; /* when waiting began */
    bool has[2];       /* sides of this process */
};

/* The transport under test, completed, bare or under faulty.c. */
extern const struct sl_transport_ops *contract_ops;
extern bool contract_is_faulty;

void pair_open(struct pair *p); /* both interfaces */
void pair_open_side(struct pair *p, unsigned i);
void pair_connect(struct pair *p); /* creates and connects p->side[*].ep */
void pair_join(struct pair *p, struct sl_ep **a, struct sl_ep **b); /* two more endpoints */
void pair_close(struct pair *p);                                    /* endpoints, then interfaces */

/* One round of progress on both; lets time pass when nothing moved. */
void pair_pump(struct pair *p);
unsigned pair_progress(struct pair *p);

/* Pumps, and runs the statement that follows, until cond holds; fails the case when it never
 * does. */
void pair_wait_begin(struct pair *p);
void pair_wait_check(struct pair *p, const char *cond, const char *file, int line);
#define PUMP_UNTIL(p, cond)                                                                        \
    for (pair_wait_begin(p); !(cond); pair_wait_check(p, #cond, __FILE__, __LINE__), pair_pump(p))

struct msg *msg_send(struct side *side, size_t len, uint64_t tag);
struct msg *msg_recv(struct side *side, size_t len, uint64_t tag);
/* granule 0: none. with_dst: the sink has a dst as well. */
struct msg *msg_consume(struct side *side, size_t len, uint64_t tag, uint32_t granule,
                        bool with_dst);
/* Makes room of a receive for a message of len bytes: it takes any message that is not longer than
 * the room. */
void msg_expect(struct msg *m, size_t len);
/* Moves a message from channel 0 to another one. Returns m. */
struct msg *msg_on(struct msg *m, uint32_t channel);
/* Registers the memory, where the transport has a use for that. Frees with the endpoint still
 * there. */
void msg_register(struct msg *m);
void msg_free(struct msg *m);

/* Post on ep (NULL: the side's own), pumping while the transport is full. */
void post_send(struct pair *p, struct msg *m, struct sl_ep *ep);
void post_recv(struct pair *p, struct msg *m, struct sl_ep *ep);
/* The same without patience: the transport's answer. */
int try_send(struct msg *m, struct sl_ep *ep);
int try_recv(struct msg *m, struct sl_ep *ep);

/* A receive that ended well has these bytes, length and tag, and touched nothing around them, nor
 * the room left. */
void msg_check_received(const struct msg *m);
/* m has ended once, with status. */
void msg_check_ended(const struct msg *m, int status);

#endif
