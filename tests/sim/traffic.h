/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages and control messages between two sides, over whatever transport: what a seed draws, what
 * each request must come to, and who touched which memory. Of all swarms that run a transport
 * alone.
 */
#ifndef SL_TESTS_SIM_TRAFFIC_H
#define SL_TESTS_SIM_TRAFFIC_H

#include "core/rng.h"
#include "core/transport.h"
#include "core/err.h"

#include <stdbool.h>

#define TRAFFIC_CONNS 3
#define TRAFFIC_MESSAGES 48 /* of a connection, each way */
#define TRAFFIC_CTRLS 40
#define TRAFFIC_CHANNELS 4 /* of a connection, 0 among them */
#define TRAFFIC_GUARD 64

struct traffic;

struct traffic_message {
    /* drawn */
    size_t len, wanted_len; /* sender's; receiver's */
    uint64_t tag, wanted_tag;
    bool send_reg, recv_reg, given, consume, dst, shorter;
    uint32_t granule;
    /* each side: [0] send, [1] recv */
    struct traffic_half {
        struct traffic *traffic;
        struct traffic_message *message;
        struct traffic_queue *queue;
        struct sl_req req;
        bool is_recv, posted, ended;
        int status;
        uint8_t *block; /* guard, bytes, guard */
        size_t block_len;
        uint8_t *got; /* of consume */
        size_t taken;
        struct sl_mr *mr;
    } half[2];
    struct sl_buf buf;
    struct sl_sink sink;
    uint64_t key;
};

/* One direction of a channel. */
struct traffic_queue {
    struct traffic *traffic;
    struct traffic_conn *conn;
    unsigned from; /* side */
    unsigned channel;
    struct traffic_message messages[TRAFFIC_MESSAGES];
    unsigned count, next[2], ended[2]; /* of sends, of recvs */
    unsigned window[2];
    unsigned ctrl_count, ctrl_sent, ctrl_got;
};

struct traffic_channel {
    uint32_t id;
    bool closes; /* some time */
    bool slow;   /* its receives come late: messages wait for them */
    bool open[2], closed[2];
};

struct traffic_conn {
    struct traffic *traffic;
    struct sl_ep *ep[2];
    struct sl_req connect[2];
    struct traffic_channel channels[TRAFFIC_CHANNELS];
    unsigned channel_count;
    struct traffic_queue queue[2 * TRAFFIC_CHANNELS]; /* by channel, then by the side that sends */
    uint64_t ups_at_calm[2];
    unsigned downs[2];
    char
        refused[2]
               [256]; /* why a call on an endpoint was, whose end the handler then has to hear of */
    int down_status[2];
    char why[2][256];
    uint64_t down_ns[2];
    bool left[2]; /* destroyed by its owner */
    bool lost;    /* the sideband was, for good */
};

struct traffic {
    struct sl_rng rng;
    const struct sl_clock *clock;
    struct sl_transport_ops ops;
    struct sl_iface *iface[2];
    struct traffic_conn conns[TRAFFIC_CONNS];
    unsigned conn_count;
    unsigned close_in; /* so many turns on average, until a channel closes that is to */
    bool quiet_ends;   /* channels close when nothing is under way on them */
    char wrong[512];   /* the first thing that was wrong, or "" */
};

/* Connections and messages; eager: around this length much is drawn. */
void traffic_draw(struct traffic *traffic, size_t eager);
void traffic_wrong(struct traffic *traffic, const char *fmt, ...) SL_PRINTF(2, 3);

/* Memory, once the interfaces are open. */
void traffic_open(struct traffic *traffic);
/* Endpoints of both sides, and their connects. */
void traffic_connect(struct traffic *traffic);
/* Have all connects ended? *status: of one that failed, or 0. */
bool traffic_connected(const struct traffic *traffic, int *status);
/* For the interfaces' handler; arg is the traffic. */
void traffic_on_ctrl(void *arg, struct sl_ep *ep, const void *bytes, size_t len);
void traffic_on_down(void *arg, struct sl_ep *ep, int status, const char *why);

/* The next send (0) or recv (1); true: taken. */
bool traffic_post(struct traffic_queue *queue, unsigned which);
/* A receive on a lost endpoint; true: it took what had come before, which is as it must be. */
bool traffic_take(struct traffic_queue *queue);
void traffic_ctrl(struct traffic_queue *queue);
/* Opens or closes channels of a side, if it is drawn. How many. */
unsigned traffic_channels(struct traffic *traffic, unsigned side);

/* One side posts what it may: each post 1 in post_in. How many were taken. */
unsigned traffic_side(struct traffic *traffic, unsigned side, unsigned post_in);

/* Every request has ended or cannot be posted. */
bool traffic_over(const struct traffic *traffic);
void traffic_judge(struct traffic *traffic);
/* Destroys all endpoints, those of one connection with some turns of the world between. */
void traffic_leave(struct traffic *traffic, void (*turn)(void *arg), void *arg);
/* Regions, while the interfaces are open. */
void traffic_close(struct traffic *traffic);
/* Looks at the memory for the last time. */
void traffic_free(struct traffic *traffic);

#endif
