/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the fake libibverbs share. */
#ifndef SL_TESTS_FAKE_IBV_INSIDE_H
#define SL_TESTS_FAKE_IBV_INSIDE_H

#include "tests/fake/fake_ibv.h"

#include "core/rng.h"

#define FAKE_DEVICES 32
#define FAKE_MAGIC 0x51u
#define FAKE_QPN_FIRST 0x11u
#define FAKE_CHAOS_WAITS 64
#define FAKE_WINDOW_KEY (1u << 27) /* in a key: a window's, and no region's */

struct fake_device;

/* What every object has behind its public struct. Stays readable after its destruction, so that
 * its use is noticed. */
struct fake_obj {
    struct fake_obj *next; /* of all that were ever made */
    void *memory, *base;
    struct fake_device *dev;
    unsigned generation; /* of the device: one that was removed keeps its objects dead */
    enum fake_ibv_kind kind;
    bool alive;
    unsigned users;        /* objects that need this one */
    uint32_t events_given; /* async */
};

struct fake_device {
    struct ibv_device ibv;
    struct fake_ibv *fake;
    unsigned number;
    struct fake_ibv_device params;
    bool fatal, removed;
    uint32_t lag_down; /* bit of a port's number: it is */
    unsigned generation;
    struct fake_qp **qps; /* by number - FAKE_QPN_FIRST */
    unsigned qp_count, qp_cap;
    struct fake_mr **mrs; /* by index in the key */
    unsigned mr_count, mr_cap;
    struct fake_mw **mws; /* by index in the key */
    unsigned mw_count, mw_cap;
    uint64_t locked;
    unsigned live[FAKE_IBV_KIND_COUNT];
};

struct fake_async {
    struct fake_async *next;
    struct ibv_async_event event;
    struct fake_obj *about; /* NULL: the device or a port */
    uint64_t ready_at;
    bool is_told; /* async_fd counts it: it can be read */
};

struct fake_context {
    struct ibv_context ibv;
    struct fake_obj obj;
    struct fake_async *events;
};

struct fake_td {
    struct ibv_td ibv;
    struct fake_obj obj;
};

struct fake_pd {
    struct ibv_pd ibv;
    struct fake_obj obj;
    struct fake_pd *of; /* a parent domain: whose memory it is about */
    struct fake_td *td; /* and its thread domain */
};

struct fake_mr {
    struct ibv_mr ibv;
    struct fake_obj obj;
    uint64_t iova;
    uint8_t *host;
    size_t mapped; /* bytes of a dmabuf that were mapped here; 0: ordinary memory */
    unsigned access;
    unsigned windows; /* bound to it */
};

/* A memory window of type 1. rkey is as the NIC has it: ibv.rkey runs ahead while a bind is
 * queued. */
struct fake_mw {
    struct ibv_mw ibv;
    struct fake_obj obj;
    uint32_t rkey;
    struct fake_mr *mr; /* NULL: bound to nothing */
    uint64_t addr, len;
    unsigned access;
};

/* What a queued bind is to do. */
struct fake_bind {
    struct fake_mw *mw;
    struct fake_mr *mr;
    uint32_t old_key, new_key;
    uint64_t addr, len;
    unsigned access;
};

struct fake_note {
    struct fake_note *next;
    struct fake_cq *cq;
};

struct fake_channel {
    struct ibv_comp_channel ibv;
    struct fake_obj obj;
    struct fake_note *notes;
};

struct fake_cqe {
    struct ibv_wc wc;
    struct fake_qp *qp;
    struct fake_srq *srq;
    uint64_t ready_at;
    uint64_t releases; /* send queue: this position and all before it */
    bool is_recv;
    bool wakes_solicited;
};

struct fake_cq {
    struct ibv_cq ibv;
    struct fake_obj obj;
    struct fake_cqe *ring;
    unsigned cap, first, count, visible;
    bool armed, solicited_only, broken, hold, poll_fails;
    bool single; /* threaded */
    int vector;
    uint32_t notes_given;
};

struct fake_recv {
    uint64_t wr_id;
    int sge_count;
    struct ibv_sge *sge;
};

/* A receive queue, of a QP or shared. */
struct fake_rq {
    struct fake_recv *ring;
    struct ibv_sge *sges;
    unsigned cap, sge_cap;
    unsigned first, count; /* not consumed */
    unsigned held;         /* posted, and its completion not polled */
};

struct fake_srq {
    struct ibv_srq ibv;
    struct fake_obj obj;
    struct fake_rq rq;
    unsigned limit;
};

struct fake_wqe {
    uint64_t wr_id;
    enum ibv_wr_opcode opcode;
    unsigned flags;
    __be32 imm;
    uint64_t remote_addr;
    uint32_t rkey;
    int sge_count;
    struct ibv_sge *sge;
    uint8_t *inlined;
    uint64_t len;
    uint64_t hash; /* of the payload when it was posted */
    bool hashed;
    bool is_local; /* its end needs nothing of the peer */
    enum ibv_wc_status status;
    uint64_t placed;    /* bytes of a write that are already in the peer's memory */
    uint8_t *read_data; /* of a READ that was executed */
    struct fake_bind bind;
};

struct fake_qp {
    struct ibv_qp ibv;
    struct fake_obj obj;
    enum ibv_qp_state state;
    struct ibv_qp_init_attr init;
    struct ibv_qp_attr attr;
    struct fake_wqe *wqes;
    struct ibv_sge *sges;
    uint8_t *inlines;
    uint64_t head, ack, exec, tail; /* polled <= acked <= executed <= posted */
    uint64_t ack_sent;              /* acks under way when the peer died: up to here */
    struct fake_qp *peer;           /* who executed what is not acked yet, … */
    unsigned peer_epoch;            /* … in which of its lives */
    unsigned epoch;                 /* counts RESETs */
    bool has_av;
    uint32_t sgid_type;
    bool stopped; /* a work request failed; its completion comes in its turn */
    struct fake_rq rq;
    uint32_t sq_psn, rq_psn;
    uint64_t retry_at, rnr_until;
    unsigned tries, rnr_tries;
    bool cut;       /* nothing leaves */
    bool has_ahead; /* in ERR: a receive of the shared queue that was taken before */
    uint64_t ahead_wr_id, ahead_at; /* and when it is flushed */
    bool comm_est, last_wqe_due, drain_due, waits_for_receive;
    unsigned reads_out;
    uint64_t arrived, posts;
    uint16_t udp_sport;
    uint8_t lag_port;
    uint32_t ece_set, ece; /* asked for; in use, from RTR on */
};

/* One message on its way to a responder. */
struct fake_msg {
    enum ibv_wr_opcode opcode;
    bool solicited;
    __be32 imm;
    uint64_t remote_addr;
    uint32_t rkey;
    uint64_t len;
    const uint8_t *data;
    uint64_t placed;
    uint32_t psn;
    uint32_t src_qpn;
};

struct fake_late {
    struct fake_late *next;
    struct fake_msg msg;
    uint8_t *data;
    struct fake_device *to;
    uint32_t to_qpn;
    union ibv_gid from_gid;
};

struct fake_wait {
    uint64_t at;           /* 0: free */
    struct fake_qp *qp;    /* mend this one, or … */
    unsigned device, port; /* … raise this port */
};

struct fake_ibv {
    struct sl_ibv table;
    struct sl_mlx5dv mlx5;
    struct sl_rng rng;
    struct fake_device *devices[FAKE_DEVICES];
    unsigned device_count;
    struct fake_obj *all;
    struct fake_obj *all_windows; /* apart: they are many, and nothing happens to them in a step */
    unsigned live[FAKE_IBV_KIND_COUNT];
    uint64_t now;
    char misuse[256];
    unsigned fail_nth[FAKE_IBV_CALL_COUNT + 1];
    int fail_error[FAKE_IBV_CALL_COUNT + 1];
    uint64_t calls[FAKE_IBV_CALL_COUNT + 1];
    struct fake_late *late;
    uint32_t longest[FAKE_DEVICES][FAKE_IBV_PORTS][FAKE_DEVICES][FAKE_IBV_PORTS]; /* 0: any */
    uint8_t lost[FAKE_DEVICES][FAKE_IBV_PORTS][FAKE_DEVICES][FAKE_IBV_PORTS];     /* [from][to] */
    unsigned routes;
    uint32_t routes_lost;
    uint8_t lids_lost[(UINT16_MAX + 1) / 8]; /* a bit each */
    unsigned delay, event_delay, timeout_steps, rnr_steps;
    unsigned repeats, mixes, disorder; /* one in so many */
    unsigned timeout_most;
    uint64_t overtook;   /* packets, because of disorder */
    unsigned bind_fails; /* in how many binds from now; 0: none */
    struct fake_ibv_chaos chaos;
    uint8_t *(*peer_memory)(const void *addr);
    struct fake_wait waits[FAKE_CHAOS_WAITS];
};

/* The one there is. */
extern struct fake_ibv *fake_ibv_the;

#define FAKE_OF(type, pointer) ((struct type *)(void *)(pointer))

/* Until the function returns, no other thread is in here. Whatever is called from outside begins
 * with it; it may call others that do. */
#define FAKE_ALONE __attribute__((cleanup(fake_leave), unused)) const int alone = fake_enter_alone()
int fake_enter_alone(void);
void fake_leave(const int *alone);

/* fake_ibv.c */
__attribute__((format(printf, 2, 3))) void fake_misuse(struct fake_ibv *fake, const char *fmt, ...);
void *fake_obj_new(struct fake_device *dev, enum fake_ibv_kind kind, size_t size, size_t obj_off);
/* With so many bytes before it. */
void *fake_obj_new_behind(struct fake_device *dev, enum fake_ibv_kind kind, size_t lead,
                          size_t size, size_t obj_off);
void fake_obj_end(struct fake_obj *obj);
/* Misuse if obj is not alive; EIO if its device is gone; then the error that was asked for, if
 * any. */
int fake_enter(struct fake_obj *obj, enum fake_ibv_call call);
/* For calls that cannot be made to fail: alive, and is the device there? EINVAL, EIO. */
int fake_enter_plain(struct fake_obj *obj, const char *call);
int fake_fault(struct fake_ibv *fake, enum fake_ibv_call call);
bool fake_obj_gone(const struct fake_obj *obj);

/* fake_ibv_device.c */
void fake_table_device(struct sl_ibv *t);
/* The port (1, …) of an entry with that GID; NULL: none. */
struct fake_device *fake_gid_find(struct fake_ibv *fake, const union ibv_gid *gid, uint32_t type,
                                  unsigned *port);
const struct fake_ibv_gid *fake_gid_at(const struct fake_device *dev, unsigned port,
                                       unsigned index);
/* From which of its port's LIDs it sends. */
uint16_t fake_slid(const struct fake_qp *qp);
uint16_t fake_pkey_at(const struct fake_device *dev, unsigned port, unsigned index);

/* fake_ibv_object.c */
void fake_table_object(struct sl_ibv *t);
void fake_table_domain(struct verbs_context *t);
/* The bytes that a key gives access to, or NULL. */
uint8_t *fake_key_at(struct fake_device *dev, struct ibv_pd *pd, bool remote, uint32_t key,
                     uint64_t addr, uint64_t len, unsigned access);

/* fake_ibv_window.c */
void fake_table_window(struct ibv_context *context);
/* A queued bind has its turn. */
enum ibv_wc_status fake_window_bind(struct fake_ibv *fake, const struct fake_bind *bind);
/* As fake_key_at(), of a key that a window has. */
uint8_t *fake_window_at(struct fake_device *dev, struct ibv_pd *pd, uint32_t key, uint64_t addr,
                        uint64_t len, unsigned access);

/* fake_ibv_cq.c */
void fake_table_cq(struct sl_ibv *t);
struct ibv_cq_ex *fake_create_cq_ex(struct ibv_context *ibv, struct ibv_cq_init_attr_ex *attr);
void fake_channel_free(struct fake_channel *channel);
int fake_poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *wc);
int fake_req_notify_cq(struct ibv_cq *cq, int solicited_only);
void fake_cq_push(struct fake_cq *cq, const struct fake_cqe *cqe);
void fake_cq_forget(struct fake_cq *cq, const struct fake_qp *qp);
void fake_cq_reveal(struct fake_cq *cq);
/* Are all completions of qp that it has visible? */
bool fake_cq_shows(struct ibv_cq *cq, const struct fake_qp *qp);
/* Has completions that are not visible yet and will be by themselves. */
bool fake_cq_waits(const struct fake_cq *cq);

/* fake_ibv_event.c */
void fake_table_event(struct sl_ibv *t);
void fake_event_raise(struct fake_context *context, enum ibv_event_type type,
                      struct fake_obj *about, int port);
void fake_event_device(struct fake_device *dev, enum ibv_event_type type, int port);
/* Takes back what was not read yet; misuse if what was read was not acked. */
void fake_event_forget(struct fake_context *context, struct fake_obj *about, uint32_t acked);
void fake_event_close(struct fake_context *context);
/* Those whose time has come can be read. */
void fake_event_reveal(struct fake_context *context);
bool fake_event_waits(const struct fake_context *context);

/* fake_ibv_qp.c */
void fake_table_qp(struct sl_ibv *t);
void fake_table_mlx5(struct sl_mlx5dv *t);
/* The port of the bond that stands for the wanted one; 0: none is up. */
uint8_t fake_lag_active(const struct fake_device *dev, uint8_t wanted);
void fake_qp_free(struct fake_qp *qp);
struct fake_qp *fake_qp_find(struct fake_device *dev, uint32_t qpn);
/* Who would be at the other end, alive or not able to hear; NULL: nobody. */
struct fake_qp *fake_qp_partner(struct fake_qp *qp);
/* The NIC takes the queue pair to ERR; what is outstanding is flushed in later steps. */
void fake_qp_error(struct fake_qp *qp);
/* The same for what other ends await from it: acks get lost. */
void fake_qp_acks_die(struct fake_qp *qp);
struct fake_wqe *fake_wqe_at(struct fake_qp *qp, uint64_t position);

/* fake_ibv_post.c */
int fake_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int fake_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int fake_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int fake_rq_init(struct fake_rq *rq, unsigned cap, unsigned sge_cap);
void fake_rq_fini(struct fake_rq *rq);
/* Queues it; its key counts from when the NIC has come to it. */
int fake_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);
struct fake_recv *fake_rq_pop(struct fake_rq *rq);
/* False: some of it lies in memory that its key does not give. */
bool fake_wqe_gather(struct fake_qp *qp, const struct fake_wqe *wqe, uint8_t *out);
uint64_t fake_hash(uint64_t hash, const void *bytes, size_t len);

/* fake_ibv_wire.c: the requester. fake_ibv_respond.c: the responder. */
bool fake_wire_open(struct fake_qp *qp, struct fake_qp **peer);
/* Do the ports lose such packets (FAKE_IBV_LOSE_...) of one to the other? */
bool fake_wire_loses(const struct fake_qp *from, const struct fake_qp *to, unsigned what);
/* And the peer's answers come back. */
bool fake_wire_answers(struct fake_qp *qp);
bool fake_wire_execute(struct fake_qp *qp);
bool fake_wire_ack(struct fake_qp *qp);
void fake_wire_fail(struct fake_qp *qp, enum ibv_wc_status status);
struct fake_late *fake_wire_snapshot(struct fake_qp *qp, struct fake_qp *peer, uint64_t position,
                                     uint32_t psn);
void fake_late_drop(struct fake_late *late);
/* The next late packet arrives, whatever it finds there. */
bool fake_late_arrive(struct fake_ibv *fake);
void fake_wire_flush(struct fake_qp *qp);
uint32_t fake_packets(const struct fake_qp *qp, uint64_t len);

enum fake_answer { FAKE_ACK, FAKE_RNR, FAKE_NAK };
/* Executes msg at qp. FAKE_NAK: *status is what the requester gets, and qp is in ERR. */
enum fake_answer fake_respond(struct fake_qp *qp, const struct fake_msg *msg,
                              enum ibv_wc_status *status);
/* Writes bytes [from, to) of a write, without its end. False: not allowed. */
bool fake_respond_place(struct fake_qp *qp, const struct fake_msg *msg, uint64_t from, uint64_t to);
void fake_respond_flush(struct fake_qp *qp);
/* The NIC takes a receive of the shared queue for what never comes; and flushes it. */
void fake_respond_take(struct fake_qp *qp);
void fake_respond_flush_taken(struct fake_qp *qp);
bool fake_has_receive(struct fake_qp *qp);

/* fake_ibv_fault.c */
void fake_chaos_step(struct fake_ibv *fake);

#endif
