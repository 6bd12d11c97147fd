/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the transport within one process share. */
#ifndef SL_TESTS_FAKE_LOOP_INSIDE_H
#define SL_TESTS_FAKE_LOOP_INSIDE_H

#include "tests/fake/loop.h"

#include "core/channel.h"
#include "core/list.h"
#include "core/rng.h"

#define NOBODY UINT32_MAX
#define EAGER_MAX                                                                                  \
    65536 /* up to here a send ends when it has arrived; larger ones with the receive */

struct message {
    struct sl_node link; /* of the inbox */
    struct sl_req *req;  /* the sender's while pending */
    const void *lent;    /* its bytes then */
    uint32_t from, channel;
    uint32_t connection; /* of its sender */
    bool bye;            /* no message: its sender has closed the channel */
    uint64_t at_ns, tag;
    size_t len;
    uint8_t bytes[];
};

struct loop_channel {
    struct sl_channel base; /* posted: of recvs */
    struct sl_node recvs;
    unsigned taken; /* of its own, that have not arrived */
};

struct loop_ep {
    struct sl_ep base;
    uint32_t idx, peer;
    struct sl_node link, inbox, ctrls;
    struct sl_node
        orphans; /* its own messages that a peer which ended has left: sends are pending */
    struct sl_channels channels;
    struct sl_req *connect;
    bool connected, told;
    bool redials, matched,
        fails;            /* matched: with a peer that redials, too; connect is about to end */
    bool dead;            /* its process is */
    unsigned ctrls_taken; /* of its own, that have not arrived */
    uint64_t connect_limit_ns, last_ns; /* last_ns: when its latest message arrives */
    uint64_t stall_until_ns;
    uint64_t lost_at_ns; /* SL_NEVER: not lost */
    bool abrupt;
    int lost_status;
};

struct loop_iface {
    struct sl_iface base;
    struct loop *loop;
    struct sl_node link, eps;
    struct sl_transport_ops ops;
    int fd;
    bool armed;
};

struct loop {
    struct sl_clock clock; /* first: the clock's owner is found by cast */
    struct sl_rng rng;
    uint64_t now_ns, latency_ns, jitter_ns;
    uint32_t eagain_in, redial_fails_in;
    void (*look)(void *arg);
    void *look_arg;
    bool looking, takes_at_once;
    struct sl_node ifaces;
    struct loop_ep **eps; /* by number; NULL: destroyed */
    unsigned ep_count, ep_cap, live;
    char misuse[160];
};

extern struct loop *loop_world; /* NULL: there is none */

static inline struct loop_ep *ep_of(struct sl_ep *ep)
{
    return (struct loop_ep *)ep;
}

static inline struct loop_iface *iface_of(struct sl_iface *iface)
{
    return (struct loop_iface *)iface;
}

static inline struct loop_ep *ep_find(const struct loop *loop, uint32_t idx)
{
    return idx < loop->ep_count ? loop->eps[idx] : NULL;
}

static inline struct loop_channel *channel_of(struct loop_ep *ep, uint32_t id)
{
    return (struct loop_channel *)sl_channels_find(&ep->channels, id);
}

/* loop.c */
void loop_note_misuse(struct loop *loop, const char *what);
bool loop_is_due(const struct loop *loop, const struct loop_ep *ep, const struct sl_node *list);
bool loop_is_takeable(struct loop_ep *ep);
bool loop_iface_has_work(const struct loop_iface *iface);
void loop_lose_ep(struct loop *loop, struct loop_ep *ep, int status, uint64_t at_ns, bool abrupt);

/* loop_ep.c */
int loop_probe(const struct sl_config *config, struct sl_device *out, size_t cap, size_t *count);
int loop_open(struct sl_worker *worker, const struct sl_device *dev,
              const struct sl_handler *handler, struct sl_iface **out);
void loop_close(struct sl_iface *base);
int loop_ep_create(struct sl_iface *base, struct sl_ep **out);
int loop_ep_addr(struct sl_ep *base, struct sl_addr *out);
int loop_ep_connect(struct sl_ep *base, const struct sl_addr *addr, struct sl_req *req);
void loop_ep_destroy(struct sl_ep *base);
int loop_ep_redial(struct sl_ep *base, struct sl_req *req, struct sl_ep **out);
bool loop_redial_ends(struct loop *loop, struct loop_ep *ep);
bool loop_connect_try(struct loop *loop, struct loop_ep *ep);
void loop_check_lent(struct loop *loop, const struct message *m);
/* Takes a message off its list; its sender's request ends with status. */
void loop_message_over(struct loop *loop, struct message *m, int status, bool is_ctrl);
void loop_inbox_clear(struct loop *loop, struct loop_ep *ep);
struct sl_req *loop_recv_take(struct loop_ep *ep, struct loop_channel *channel);
void loop_end_recvs(struct loop_ep *ep, struct loop_channel *channel, int status);
/* Ends what ep has pending. */
void loop_end_all(struct loop *loop, struct loop_ep *ep, int status);

#endif
