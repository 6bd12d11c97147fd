/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A deterministic libibverbs in one process: devices, objects and a wire that moves when told to.
 * It is as strict as the strictest NIC, and remembers what a caller should not have done.
 *
 *     struct fake_ibv *fake = fake_ibv_create(seed);
 *     fake_ibv_device_init(&params, "mlx5_0");
 *     fake_ibv_device_add(fake, &params);
 *     sl_ibv_replace(fake_ibv_table(fake), fake_ibv_mlx5(fake));
 *     …                                   posts only queue
 *     fake_ibv_run(fake, 100);            the wire moves
 *     assert_null(fake_ibv_misuse(fake));
 *     assert_int_equal(fake_ibv_live(fake), 0);
 *     fake_ibv_destroy(fake);
 *
 * One fake at a time; any thread, as with the real one, where the order of calls counts. Time is a
 * count of steps. Fields of a completion that verbs leaves undefined are filled with rubbish.
 * Numbers of queue pairs repeat from device to device, keys do not. ibv_qp.state is what libibverbs
 * last told the kernel, not what the NIC made of it. A queue pair in ERR is flushed in later steps,
 * not at once. A dma-buf is a file whose position says where in it the exported range starts
 * (fake_cuda.h).
 */
#ifndef SL_TESTS_FAKE_IBV_H
#define SL_TESTS_FAKE_IBV_H

#include "verbs/ibv_dl.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAKE_IBV_PORTS 4
#define FAKE_IBV_GIDS 16
#define FAKE_IBV_PKEYS 8
#define FAKE_IBV_ANY UINT32_MAX /* drawn from the seed */

struct fake_ibv;

struct fake_ibv_gid {
    union ibv_gid gid; /* all zero: no such entry */
    uint32_t type;     /* enum ibv_gid_type */
    uint32_t ifindex;
};

struct fake_ibv_device {
    char name[IBV_SYSFS_NAME_MAX];
    enum ibv_node_type node_type;
    struct ibv_device_attr attr; /* the limits that calls are held to */
    uint32_t max_inline;
    uint64_t max_locked; /* bytes that can be registered; 0: any */
    /* completions outlive their queue pair, as with soft-RoCE; else they go with it unseen */
    bool keeps_wcs;
    /* a queue pair that goes to ERR has taken one receive of its shared queue already, and flushes
     * it up to so many steps later, maybe after its sends; 0: it has not */
    unsigned ahead_steps;
    int comp_vectors;
    bool thread_domains; /* and parent domains, and completion queues for one thread */
    bool resize_cq;
    bool dmabuf;        /* ibv_reg_dmabuf_mr() */
    uint8_t lag_ports;  /* of a bond; needs mlx5 */
    bool mlx5;          /* mlx5dv_is_supported() */
    struct ibv_ece ece; /* ibv_query_ece(); options 0: none */
    bool one_rate;      /* queue pairs send at the port's speed, and at no other */
    struct {
        struct ibv_port_attr attr;
        struct fake_ibv_gid gids[FAKE_IBV_GIDS];
        uint16_t pkeys[FAKE_IBV_PKEYS]; /* 0: no such entry; none at all: the default one */
    } ports[FAKE_IBV_PORTS];            /* [0] is port 1; attr.phys_port_cnt of them */
};

/* Calls that can be made to fail. */
#define FAKE_IBV_CALLS(X)                                                                          \
    X(GET_DEVICE_LIST, "ibv_get_device_list")                                                      \
    X(OPEN_DEVICE, "ibv_open_device")                                                              \
    X(QUERY_DEVICE, "ibv_query_device")                                                            \
    X(QUERY_PORT, "ibv_query_port")                                                                \
    X(QUERY_PKEY, "ibv_query_pkey")                                                                \
    X(QUERY_GID, "ibv_query_gid")                                                                  \
    X(ALLOC_PD, "ibv_alloc_pd")                                                                    \
    X(REG_MR, "ibv_reg_mr")                                                                        \
    X(ALLOC_MW, "ibv_alloc_mw")                                                                    \
    X(BIND_MW, "ibv_bind_mw")                                                                      \
    X(CREATE_CHANNEL, "ibv_create_comp_channel")                                                   \
    X(CREATE_CQ, "ibv_create_cq")                                                                  \
    X(RESIZE_CQ, "ibv_resize_cq")                                                                  \
    X(ALLOC_TD, "ibv_alloc_td")                                                                    \
    X(ALLOC_PARENT, "ibv_alloc_parent_domain")                                                     \
    X(CREATE_SRQ, "ibv_create_srq")                                                                \
    X(CREATE_QP, "ibv_create_qp")                                                                  \
    X(MODIFY_QP, "ibv_modify_qp")                                                                  \
    X(QUERY_QP, "ibv_query_qp")                                                                    \
    X(QUERY_ECE, "ibv_query_ece")                                                                  \
    X(SET_ECE, "ibv_set_ece")                                                                      \
    X(REQ_NOTIFY, "ibv_req_notify_cq")                                                             \
    X(POST_SEND, "ibv_post_send")                                                                  \
    X(POST_RECV, "ibv_post_recv")                                                                  \
    X(POST_SRQ_RECV, "ibv_post_srq_recv")

enum fake_ibv_call {
#define FAKE_IBV_CALL(id, name) FAKE_IBV_##id,
    FAKE_IBV_CALLS(FAKE_IBV_CALL)
#undef FAKE_IBV_CALL
        FAKE_IBV_CALL_COUNT
};

enum fake_ibv_kind {
    FAKE_IBV_LIST,
    FAKE_IBV_CONTEXT,
    FAKE_IBV_TD,
    FAKE_IBV_PD, /* parent domains, too */
    FAKE_IBV_MR,
    FAKE_IBV_MW,
    FAKE_IBV_CHANNEL,
    FAKE_IBV_CQ,
    FAKE_IBV_SRQ,
    FAKE_IBV_QP,
    FAKE_IBV_KIND_COUNT
};

struct fake_ibv *fake_ibv_create(uint64_t seed);
/* Also frees what was left alive, and what was destroyed: until now that memory served to
 * notice its use. */
void fake_ibv_destroy(struct fake_ibv *fake);

/* RC over RoCE, one active port, 100 Gbit/s, generous limits. If no GID is set,
 * fake_ibv_device_add() fills index 0 to 3: fe80:: and 10.0.port.device (port from 0, device
 * from 1), each as v1 and v2. */
void fake_ibv_device_init(struct fake_ibv_device *params, const char *name);
/* Memory that ordinary registration finds though nobody may touch it (nvidia_peermem): bytes gives
 * its bytes, or NULL. bytes NULL: takes it back. */
void fake_ibv_peer_memory(struct fake_ibv *fake, uint8_t *(*bytes)(const void *addr));
/* Its number: 0, 1, … */
unsigned fake_ibv_device_add(struct fake_ibv *fake, const struct fake_ibv_device *params);
union ibv_gid fake_ibv_gid_v4(uint8_t a, uint8_t b, uint8_t c, uint8_t d);

/* May be changed before it is used (an old library: set what is optional to NULL). */
struct sl_ibv *fake_ibv_table(struct fake_ibv *fake);
struct sl_mlx5dv *fake_ibv_mlx5(struct fake_ibv *fake);

/* One step: some of the queue pairs that can do something do one thing each; the seed says
 * which, and what. Returns how many things happened. */
unsigned fake_ibv_step(struct fake_ibv *fake);
void fake_ibv_run(struct fake_ibv *fake, unsigned steps);
/* Steps until nothing is going on or waiting for its time (a QP that waits for a receive at
 * rnr_retry 7 waits for somebody else), at most `steps`. False: still busy then. */
bool fake_ibv_settle(struct fake_ibv *fake, unsigned steps);
uint64_t fake_ibv_now(const struct fake_ibv *fake);

/* The first thing that was done wrong, or NULL. */
const char *fake_ibv_misuse(const struct fake_ibv *fake);
void fake_ibv_misuse_clear(struct fake_ibv *fake);
/* Objects alive, of all kinds and of one. */
unsigned fake_ibv_live(const struct fake_ibv *fake);
unsigned fake_ibv_live_of(const struct fake_ibv *fake, enum fake_ibv_kind kind);

/* The nth call of that kind from now (1: the next) fails with error, once. For
 * FAKE_IBV_CALL_COUNT the calls of all kinds are counted. nth 0 takes it back. */
void fake_ibv_fail(struct fake_ibv *fake, enum fake_ibv_call call, unsigned nth, int error);
/* How often was it called? FAKE_IBV_CALL_COUNT: all. */
uint64_t fake_ibv_calls(const struct fake_ibv *fake, enum fake_ibv_call call);

/* Faults of the path between a queue pair and its peer. */
/* Nothing that qp sends arrives, answers of its NIC included; the other direction works. */
void fake_ibv_cut_outgoing(struct fake_ibv *fake, struct ibv_qp *qp, bool cut);
/* Both directions. */
void fake_ibv_cut(struct fake_ibv *fake, struct ibv_qp *qp, bool cut);
/* Cuts both, at once and for good: of the operations that are not done, `executed` more are
 * executed by the peer's NIC, then `acked` of all that were executed are completed, the next
 * one ends with IBV_WC_RETRY_EXC_ERR, and the rest is flushed. The packets of `late` further
 * ones are still under way: they execute in some later step, if the peer's queue pair still
 * takes them then. FAKE_IBV_ANY: as the seed says. */
void fake_ibv_kill(struct fake_ibv *fake, struct ibv_qp *qp, uint32_t executed, uint32_t acked,
                   uint32_t late);
unsigned fake_ibv_late_count(const struct fake_ibv *fake);
/* What of the packets from one port to another is lost from now on: 0, or any of these. */
#define FAKE_IBV_LOSE_REQUESTS 1u /* sends and writes */
#define FAKE_IBV_LOSE_ANSWERS 2u  /* acknowledges */
#define FAKE_IBV_LOSE_ALL (FAKE_IBV_LOSE_REQUESTS | FAKE_IBV_LOSE_ANSWERS)
void fake_ibv_lose(struct fake_ibv *fake, unsigned from_device, unsigned from_port,
                   unsigned to_device, unsigned to_port, unsigned what);
/* Packets longer than this are lost between these ports, in both directions; 0: none is. */
void fake_ibv_lose_longer(struct fake_ibv *fake, unsigned device_a, unsigned port_a,
                          unsigned device_b, unsigned port_b, uint32_t bytes);
/* Between any two ports the fabric has so many equal routes (0: one), which are taken by UDP source
 * port, as it follows from the flow label; those in the mask lose what goes by them. */
void fake_ibv_routes(struct fake_ibv *fake, unsigned routes, uint32_t lost);
/* InfiniBand: what is sent to that LID is lost. A port has 2^lmc of them, and each has a route. */
void fake_ibv_lose_lid(struct fake_ibv *fake, uint16_t lid, bool lost);
/* No packet between these ports, in both directions. */
void fake_ibv_block(struct fake_ibv *fake, unsigned device_a, unsigned port_a, unsigned device_b,
                    unsigned port_b, bool blocked);

/* Faults of ports and devices, each with its event. */
void fake_ibv_port_set(struct fake_ibv *fake, unsigned device, unsigned port,
                       enum ibv_port_state state);
/* gid NULL: takes the entry out. */
void fake_ibv_gid_set(struct fake_ibv *fake, unsigned device, unsigned port, unsigned index,
                      const struct fake_ibv_gid *gid);
void fake_ibv_gid_move(struct fake_ibv *fake, unsigned device, unsigned port, unsigned from,
                       unsigned to);
/* key 0: takes the entry out. */
void fake_ibv_pkey_set(struct fake_ibv *fake, unsigned device, unsigned port, unsigned index,
                       uint16_t key);
/* InfiniBand: the subnet manager gives the port another LID, or 2^lmc of them from there on. */
void fake_ibv_lid_set(struct fake_ibv *fake, unsigned device, unsigned port, uint16_t lid,
                      uint8_t lmc);
/* DEVICE_FATAL: nothing moves any more, calls still work. */
void fake_ibv_device_fatal(struct fake_ibv *fake, unsigned device);
/* Besides, every call but close fails (EIO, or ENODEV where it asks for the device), polling
 * finds nothing, the device is not listed any more. A destroy that fails with EIO has freed the
 * object all the same. */
void fake_ibv_device_remove(struct fake_ibv *fake, unsigned device);
/* Back again, as a new device under the old number. Contexts that were open before stay dead. */
void fake_ibv_device_return(struct fake_ibv *fake, unsigned device);

void fake_ibv_qp_fatal(struct fake_ibv *fake, struct ibv_qp *qp);
void fake_ibv_cq_error(struct fake_ibv *fake, struct ibv_cq *cq);
/* Polling it fails from now on, without any event. */
void fake_ibv_cq_unreadable(struct fake_ibv *fake, struct ibv_cq *cq);
/* The nth bind of a memory window from now (1: the next) fails at the NIC, once, and takes its
 * queue pair with it. nth 0 takes it back. */
void fake_ibv_bind_fails(struct fake_ibv *fake, unsigned nth);
/* Windows by which a peer may write now, on all devices that are there. */
unsigned fake_ibv_bound(const struct fake_ibv *fake);
/* One SRQ_LIMIT_REACHED when fewer than limit receives are left. */
void fake_ibv_srq_arm(struct fake_ibv *fake, struct ibv_srq *srq, unsigned limit);

/* Of one_in messages one is delivered twice, the second time as it was or empty; 0: none. No device
 * should; soft-RoCE does. */
void fake_ibv_repeats(struct fake_ibv *fake, unsigned one_in);
/* Of one_in messages of four packets or more one arrives with a packet from its midst in the place
 * of the next one too, and nobody notices; 0: none. No device should; soft-RoCE does. */
void fake_ibv_mixes(struct fake_ibv *fake, unsigned one_in);
/* Of one_in chances one is taken to write packets of a message before those that go before them,
 * of this message or of an earlier one, as devices do that repeat selectively; 0: none.
 * Completions keep their order. */
void fake_ibv_disorder(struct fake_ibv *fake, unsigned one_in);
/* Completions become visible up to that many steps late. */
void fake_ibv_delay(struct fake_ibv *fake, unsigned steps);
/* Asynchronous events can be read up to that many steps late: after their subject has been asked
 * about them, or has stopped. */
void fake_ibv_event_delay(struct fake_ibv *fake, unsigned steps);
/* Not visible at all while held. */
void fake_ibv_cq_hold(struct fake_ibv *fake, struct ibv_cq *cq, bool hold);
/* Steps between two retries after a timeout (default 4), and after a "receiver not ready"
 * (default 2). */
void fake_ibv_retry_steps(struct fake_ibv *fake, unsigned timeout, unsigned rnr);
/* A device may wait up to so many times as long as it was told (4, by the specification) before
 * each retry; 1 (default): it does not. */
void fake_ibv_timeout_most(struct fake_ibv *fake, unsigned most);
/* A port of a bond, from 1 on: those of its queue pairs use another meanwhile, without any event.
 * With none up nothing passes. */
void fake_ibv_lag_port_set(struct fake_ibv *fake, unsigned device, unsigned port, bool up);

/* Faults drawn from the seed: 1 in N steps each, 0: never. */
struct fake_ibv_chaos {
    unsigned kill_in; /* fake_ibv_kill() of a queue pair, everything drawn */
    unsigned cut_in;  /* fake_ibv_cut(), mended after up to cut_steps */
    unsigned cut_steps;
    unsigned flap_in; /* a port goes down, and up after up to flap_steps */
    unsigned flap_steps;
    unsigned gid_in; /* a GID moves to a free index */
};
void fake_ibv_chaos(struct fake_ibv *fake, const struct fake_ibv_chaos *chaos);

struct fake_ibv_qp_info {
    enum ibv_qp_state state;          /* the NIC's */
    uint64_t posted, executed, acked; /* work requests, since the last RESET */
    uint64_t arrived;                 /* receive completions */
    uint64_t posts;                   /* calls of ibv_post_send(): doorbells */
    uint16_t udp_sport;               /* mlx5dv_modify_qp_udp_sport(); 0: not set */
    uint32_t flow_label;              /* of its address vector */
    uint8_t lag_port;                 /* mlx5dv_modify_qp_lag_port(); 0: not set */
    uint16_t pkey_index;
    uint8_t static_rate; /* enum ibv_rate */
    uint32_t ece;        /* options in use */
    uint16_t slid, dlid; /* InfiniBand: from which it sends, to which */
    struct ibv_qp *peer; /* NULL: none there that answers to this one */
};
void fake_ibv_qp_info(struct fake_ibv *fake, struct ibv_qp *qp, struct fake_ibv_qp_info *out);
/* All queue pairs alive, in the order of their creation; up to cap. Returns how many there are. */
unsigned fake_ibv_qps(struct fake_ibv *fake, struct ibv_qp **out, unsigned cap);
unsigned fake_ibv_device_of(struct ibv_context *context);

#endif
