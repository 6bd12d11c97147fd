/* SPDX-License-Identifier: Apache-2.0 */
/* Connections: their state, and the sideband beside their paths. */
#ifndef SL_VERBS_ENDPOINT_H
#define SL_VERBS_ENDPOINT_H

#include "core/transport.h"
#include "verbs/message.h"
#include "verbs/path.h"
#include "verbs/record.h"
#include "verbs/talk.h"

struct sl_verbs_iface;
struct sl_verbs_tcp;

enum sl_verbs_ep_state {
    SL_VERBS_EP_NEW,
    SL_VERBS_EP_CONNECTING,
    SL_VERBS_EP_UP,
    SL_VERBS_EP_DOWN
};

struct sl_verbs_ep {
    struct sl_ep base;
    struct sl_verbs_iface *iface;
    struct sl_node link;   /* in iface->eps */
    struct sl_node active; /* in iface->active while progress must look after it */
    struct sl_node timed;  /* in iface->timed while it waits for a time */
    uint64_t due_ns;       /* then: which */
    bool is_timed;
    bool is_active, failing, leads, has_hello, sideband_up;
    bool left; /* the peer is gone: what it sent may still be received */
    uint8_t state;
    uint32_t eager_bytes;
    uint64_t nonce;
    struct sl_ep *sideband;
    struct sl_req sideband_req;
    struct sl_req *connect_req;
    uint64_t connect_deadline_ns, settle_ns;
    int down_status;
    char why[256];

    struct sl_verbs_hello peer;
    struct sl_verbs_path *paths[SL_VERBS_PATHS_MAX];
    unsigned path_count, paths_expected, paths_up;
    struct sl_verbs_path *frame_path; /* carries the frames; NULL: none is up, or see below */
    /* carried them and has failed; the peer has not said what it had */
    struct sl_verbs_path *fencing;
    uint64_t no_path_since_ns; /* 0: there is one */
    uint64_t ping_at_ns;       /* next one by each path; only without a sideband */

    /* frames */
    uint32_t fseq_out, fseq_in;
    unsigned credits;      /* frames that the peer has room for */
    unsigned credits_owed; /* handled here and not told yet */
    struct sl_node repeat; /* frames of a path that ended, in their order */
    /* messages; numbers run free, their place is number % size of the queue */
    uint32_t tx_next;            /* of the next send */
    uint32_t tx_oldest;          /* long message not over, or tx_next */
    uint32_t rx_next, rx_oldest; /* of the next recv; not over, or rx_next */
    struct sl_verbs_tx_msg tx[SL_VERBS_TX_QUEUE];
    struct sl_verbs_rx_msg rx[SL_VERBS_RX_QUEUE];
    struct sl_verbs_rx_grant rx_grants[SL_VERBS_GRANTS];
    struct sl_verbs_tx_grant tx_grants[SL_VERBS_TX_GRANTS];
    uint16_t deal[SL_VERBS_TX_GRANTS]; /* grants with bytes to deal, in the order they came */
    unsigned deal_head, deal_count, early_count, early_gpu_count, unannounced;
    struct sl_verbs_piece redo[SL_VERBS_REDO];
    unsigned redo_count;
    uint32_t drops[SL_VERBS_RX_QUEUE]; /* numbers to DROP */
    unsigned drop_count;
    uint32_t late[SL_VERBS_RX_QUEUE]; /* receives to end in progress */
    unsigned late_count;
    unsigned held; /* frames that wait for their receive, or for the way into its GPU's memory */
    unsigned gpu_waits, gpu_copies; /* of them the latter; copies under way */
    bool wants_staging;

    struct sl_verbs_tcp *tcp; /* NULL: data never goes over the sideband */

    /* Records that the sideband has not taken. */
    struct sl_verbs_record records[SL_VERBS_RECORDS];
    /* by number: what the peer has not told of */
    struct sl_verbs_record unhandled[SL_VERBS_RECORDS];
    bool by_path[SL_VERBS_RECORDS]; /* on one now */
    bool arrived[SL_VERBS_RECORDS]; /* by one */
    unsigned record_head, record_count;
    uint32_t record_out, record_in;                 /* numbers of the next ones */
    uint32_t record_handled;                        /* of ours, by the peer */
    uint32_t record_told;                           /* of the peer's, as it knows */
    uint32_t hello_seq;                             /* of our last HELLO */
    bool hello_due;                                 /* rails have changed since */
    struct sl_verbs_record inbox[SL_VERBS_RECORDS]; /* by number; handled in progress */
    bool in_inbox[SL_VERBS_RECORDS];

    /* Where frames are kept that cannot stay in their buffers: one for each credit, of slot_bytes.
     * The bits say which are in use. Pages that were never used cost nothing. */
    uint32_t copies_used;
    uint8_t copies[];
};

_Static_assert(SL_VERBS_CREDITS < 32, "a bit for each in copies_used");

static inline struct sl_verbs_ep *sl_verbs_ep_of(struct sl_ep *ep)
{
    return (struct sl_verbs_ep *)ep;
}

int sl_verbs_ep_create(struct sl_iface *base, struct sl_ep **out);
int sl_verbs_ep_addr(struct sl_ep *base, struct sl_addr *out);
int sl_verbs_ep_connect(struct sl_ep *base, const struct sl_addr *peer, struct sl_req *req);
void sl_verbs_ep_destroy(struct sl_ep *base);
void sl_verbs_ep_describe(const struct sl_ep *base, char *out, size_t cap);
/* What an interface's sideband calls. */
struct sl_handler sl_verbs_sideband_handler(struct sl_verbs_iface *iface);
/* Notes that the connection is lost; the next progress tells its owner. Returns status. */
int sl_verbs_ep_fail(struct sl_verbs_ep *ep, int status, const char *fmt, ...) SL_PRINTF(3, 4);
/* Ends what was noted so. */
void sl_verbs_ep_lost(struct sl_verbs_ep *ep);
/* Its peer said farewell: notes the loss once all that came before is handled. */
void sl_verbs_ep_leave(struct sl_verbs_ep *ep);
void sl_verbs_ep_activate(struct sl_verbs_ep *ep);
/* It waits for a time: the next look at the clock asks for which. */
void sl_verbs_ep_time(struct sl_verbs_ep *ep);
void sl_verbs_ep_untime(struct sl_verbs_ep *ep);
/* The code and sentence for a call on a connection that is not up. */
int sl_verbs_not_up(const struct sl_verbs_ep *ep);

static inline struct sl_verbs_tx_msg *sl_verbs_tx_at(struct sl_verbs_ep *ep, uint32_t number)
{
    return &ep->tx[number % SL_VERBS_TX_QUEUE];
}

static inline struct sl_verbs_rx_msg *sl_verbs_rx_at(struct sl_verbs_ep *ep, uint32_t number)
{
    return &ep->rx[number % SL_VERBS_RX_QUEUE];
}

#endif
