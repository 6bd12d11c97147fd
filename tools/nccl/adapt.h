/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts that the files of the NCCL network plugin share; for its design see
 * docs/design/0010-nccl.md.
 *
 *   plugin.c   the tables of each version, over the functions below
 *   context.c  contexts and engines: made, driven, freed · device.c the devices for NCCL
 *   listen.c   accepting · dial.c connecting · wire.c the bytes
 *   link.c     callbacks of wire-up · flow.c endpoints that connections share
 *   data.c     isend, irecv, test · memory.c registrations
 *
 * A *context* is one of NCCL's communicators. An *engine* is one device of the process: a worker,
 * and an interface of each transport that its connections use. Contexts with equal settings share
 * it where the device itself moves the bytes (SL_TRAIT_OFFLOAD); elsewhere each has its own, as two
 * threads that copy would wait for each other. NCCL calls from two threads of a context at a time,
 * one that moves data and one that connects, registers and closes, so an engine has a lock.
 *
 * Functions return 0 or a negative errno with its sentence, as everywhere; plugin.c makes NCCL's
 * codes of them.
 */
#ifndef SL_NCCL_ADAPT_H
#define SL_NCCL_ADAPT_H

#include "core/config.h"
#include "core/err.h"
#include "core/fork.h"
#include "core/runtime.h"
#include "core/list.h"
#include "core/registry.h"
#include "core/transport.h"
#include "tools/nccl/abi.h"
#include "tools/nccl/wire.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define SL_NCCL_DEVICES_MAX 32
#define SL_NCCL_RECVS SL_NCCL_REQUESTS
#define SL_NCCL_SENDS (SL_NCCL_REQUESTS * SL_NCCL_GROUP_MAX)
#define SL_NCCL_CALLS SL_NCCL_REQUESTS            /* announcements that may be on their way */
#define SL_NCCL_BYTES_MAX (INT64_C(1) << 30)      /* of one message: sizes are ints */
#define SL_NCCL_WAYS_HERE (SL_TRANSPORTS_MAX + 1) /* candidates of an engine */
#define SL_NCCL_PEER_NAME 64
/* The way by the device that NCCL chose, with its own transport: no transport has this number. */
#define SL_NCCL_BY_DEVICE 0
_Static_assert(SL_TRANSPORT_NUMBERS <= 32, "ways are bits of wire-up's mask");

/* ---- devices ---- */

struct sl_nccl_device {
    struct sl_device found;
    const struct sl_transport_ops *ops; /* that found it */
    uint64_t guid;                      /* never 0 */
    int speed_mbit, port;
    bool takes_gpu; /* its transport registers GPU memory */
};

struct sl_nccl_device_list {
    unsigned count;
    struct sl_nccl_device items[SL_NCCL_DEVICES_MAX];
};

/* device.c: the devices of the first transport of SLUICE_TRANSPORT that has any, shm last.
 * -ENODEV. */
int sl_nccl_devices_find(const struct sl_config *config, struct sl_nccl_device_list *out);

/* ---- contexts and engines ---- */

struct sl_nccl_ctx {
    struct sl_node link; /* of all contexts */
    uint64_t number;     /* from 1, used once */
    uint64_t life;       /* of the process that made it: core/fork.h */
    struct sl_config config;
    int traffic_class;
    sl_nccl_profiler_callback *profiler; /* NULL: NCCL has none */
};

/* A transport candidate: one that connections of an engine may use; opened when the first one
 * does. */
struct sl_nccl_way {
    uint8_t id; /* as peers say it: the transport's number, or SL_NCCL_BY_DEVICE */
    const struct sl_transport_ops *ops;
    const struct sl_device *device; /* the engine's; NULL: the transport's own choice */
    struct sl_iface *iface;
    bool out; /* could not be opened */
};

struct sl_nccl_engine {
    struct sl_node link; /* of all engines */
    uint64_t only;       /* number of the context whose it is; 0: of all with these settings */
    uint64_t life;       /* of the process, as its contexts' */
    unsigned dev;
    int traffic_class;
    struct sl_config settings; /* of its contexts */
    unsigned users;            /* comms and listeners; by the lock of contexts */
    pthread_mutex_t lock;      /* of the members below */
    struct sl_config config;   /* the settings, with the device preferred */
    struct sl_worker worker;
    const struct sl_transport_ops *ops;         /* of the device */
    struct sl_device device;                    /* the one that it is of */
    bool takes_gpu;                             /* NCCL was told so of the device */
    struct sl_nccl_way ways[SL_NCCL_WAYS_HERE]; /* the preferred first */
    unsigned way_count;
    uint32_t by_device; /* the transport of SL_NCCL_BY_DEVICE; 0: there is no such way */
    struct sl_node comms, listens, flows;
    struct sl_node saying;      /* flows with something to say */
    struct sl_wireup *wireup;   /* while a comm dials or listens, or a flow comes about */
    struct sl_wireup_addr addr; /* its id stays, and is the engine's name for peers */
    unsigned wireup_users;
    uint32_t last_number;
    struct sl_node backlog; /* comms with something that a transport did not take yet */
    uint64_t looks;         /* polls of the transports, so far */
    /* polls while no caller does: to repair paths, and to answer peers in time */
    struct sl_errand errand, timely;
    uint64_t kept_looks, timely_looks; /* polls when they last did */
    uint64_t timely_traffic;           /* bytes of its interfaces then */
    _Atomic int error;                 /* of an interface that is lost */
    char *why;                         /* of it (sl_text_set) */
};

/* ---- connections ---- */

/* A registration. */
struct sl_nccl_mr {
    struct sl_node link; /* comm->mrs */
    struct sl_nccl_comm *comm;
    uintptr_t addr;
    size_t len;
    struct sl_iface *iface; /* of mr */
    struct sl_mr *mr;       /* NULL: the transport has no use for one */
    bool is_gpu;            /* never to be touched by the processor */
    unsigned uses;          /* by requests that are not over */
};

enum sl_nccl_req_kind { SL_NCCL_REQ_SEND, SL_NCCL_REQ_RECV };

/* The object behind NCCL's handle; the first members of both kinds. */
struct sl_nccl_req {
    enum sl_nccl_req_kind kind;
    struct sl_nccl_comm *comm;
    unsigned left;       /* parts that are not over */
    uint64_t looks;      /* of its engine, when it was last asked about */
    struct sl_node link; /* free, or in a queue of requests to be posted */
};

struct sl_nccl_send {
    struct sl_nccl_req base;
    struct sl_req req;
    struct sl_buf buf;
    uint64_t tag;
    struct sl_nccl_mr *mr;
    void *event; /* of the profiler, NULL: none */
};

struct sl_nccl_recv {
    struct sl_nccl_req base;
    unsigned count, posted;
    struct sl_req reqs[SL_NCCL_GROUP_MAX];
    struct sl_sink sinks[SL_NCCL_GROUP_MAX];
    struct sl_nccl_mr *mrs[SL_NCCL_GROUP_MAX];
    void *events[SL_NCCL_GROUP_MAX]; /* as sl_nccl_send's */
};

/* A group that the receiver announced. */
struct sl_nccl_called {
    struct sl_req req;
    struct sl_sink sink;
    bool here;
    uint8_t bytes[SL_NCCL_CALL_BYTES];
};

/* An announcement of ours until the transport is through with its bytes. */
struct sl_nccl_calling {
    struct sl_req req;
    bool busy;
    uint16_t len;
    uint64_t tag;
    uint8_t bytes[SL_NCCL_CALL_BYTES];
};

struct sl_nccl_send_side {
    struct sl_nccl_called called[SL_NCCL_CALLS];
    uint64_t group; /* the oldest that is not complete */
    bool is_open;   /* its announcement was read: */
    struct sl_nccl_call call;
    struct sl_nccl_send *slots[SL_NCCL_GROUP_MAX]; /* matched */
    bool taken[SL_NCCL_GROUP_MAX];
    unsigned given;       /* slots that went to the queue */
    uint64_t message;     /* number of the next one */
    unsigned under_way;   /* sends that the transport is not through with */
    struct sl_node queue; /* to be posted, in order */
    struct sl_node free;
    struct sl_nccl_send sends[SL_NCCL_SENDS];
};

struct sl_nccl_recv_side {
    struct sl_nccl_calling calling[SL_NCCL_CALLS];
    uint64_t group;     /* of the next irecv */
    uint64_t announced; /* of the next announcement to be sent */
    uint64_t message;
    struct sl_node queue;
    struct sl_node free;
    struct sl_nccl_recv recvs[SL_NCCL_RECVS];
};

struct sl_nccl_comm {
    struct sl_node link;    /* engine->comms */
    struct sl_node waiting; /* engine->backlog */
    bool is_waiting, is_send;
    uint64_t looks;                   /* as sl_nccl_req's: of an isend that found no announcement */
    uint64_t closed_ns, closed_looks; /* when it was first seen closed by the peer; 0: not yet */
    struct sl_nccl_engine *engine;
    /* While it comes about: */
    const struct sl_nccl_ctx *ctx;
    bool dials, asked, accepted; /* the peer was asked for the channel; it has agreed */
    struct sl_nccl_handle to;
    uint64_t deadline_ns, next_ns; /* of the dial; of the next try, when lost is set */
    struct sl_nccl_flow *flow;     /* flow.h; NULL: none yet, or none any more */
    struct sl_node on_flow;        /* flow->comms */
    uint32_t channel;              /* of the flow's endpoint: */
    struct sl_ep *ep;              /* NULL: none yet, or none any more */
    int lost;                      /* 0, or the errno that ended it */
    bool told;                     /* ... and a line of NCCL's log says so */
    char *why;                     /* of it (sl_text_set) */
    const char *transport;         /* of ep: its name, which outlives it */
    sl_nccl_profiler_callback *profiler;
    /* NCCL does not say which rank it is: "the peer at 192.0.2.7" */
    char peer_name[SL_NCCL_PEER_NAME];
    struct sl_node mrs;
    union {
        struct sl_nccl_send_side send;
        struct sl_nccl_recv_side recv;
    };
};

/* context.c */
/* logger NULL: lines go to stderr. */
int sl_nccl_ctx_open(sl_nccl_logger *logger, int traffic_class, struct sl_nccl_ctx **out);
/* Takes NULL: the context of callers that have none. */
void sl_nccl_ctx_close(struct sl_nccl_ctx *ctx);
/* Of the version without contexts, and of NULL. */
int sl_nccl_ctx_default(sl_nccl_logger *logger, struct sl_nccl_ctx **out);
int sl_nccl_devices(unsigned *count);
/* Borrowed until the last context closes and another opens. -EINVAL. */
int sl_nccl_device(int dev, const struct sl_nccl_device **out);
/* The engine of that device, made if need be, with one more user. */
int sl_nccl_engine_get(struct sl_nccl_ctx *ctx, int dev, int traffic_class,
                       struct sl_nccl_engine **out);
/* One more user, and one less; not while it is locked. */
void sl_nccl_engine_hold(struct sl_nccl_engine *engine);
void sl_nccl_engine_put(struct sl_nccl_engine *engine);
/* The candidate of that id with its interface, opened if need be. */
int sl_nccl_way_open(struct sl_nccl_engine *engine, uint8_t id, struct sl_nccl_way **out);
/* Bits, by id, of candidates that this engine may use with a peer, whose by_device that is. */
uint32_t sl_nccl_ways(const struct sl_nccl_engine *engine, bool same_host, uint32_t by_device);
void sl_nccl_progress(struct sl_nccl_engine *engine);
/* The same for one of many callers in turn: only if no other one has polled since *looks was last
 * kept. So a round of calls costs one poll, not one for each. */
void sl_nccl_progress_once(struct sl_nccl_engine *engine, uint64_t *looks);

/* listen.c, dial.c: handles are of SL_NCCL_HANDLE_BYTES. *out is NULL while it takes time. */
struct sl_nccl_listen;
int sl_nccl_listen(struct sl_nccl_ctx *ctx, int dev, void *handle, struct sl_nccl_listen **out);
int sl_nccl_accept(struct sl_nccl_listen *listen, struct sl_nccl_comm **out);
/* Takes one that finalize has closed. */
void sl_nccl_listen_close(struct sl_nccl_listen *listen);
int sl_nccl_connect(struct sl_nccl_ctx *ctx, int dev, int traffic_class, void *handle,
                    struct sl_nccl_comm **out);
/* For context.c: the engine is locked. Those of that context. */
void sl_nccl_listens_drop(struct sl_nccl_engine *engine, const struct sl_nccl_ctx *ctx);
void sl_nccl_dials_drop(struct sl_nccl_engine *engine, const struct sl_nccl_ctx *ctx);

/* data.c: the engine is locked where it takes a comm that is being made. */
int sl_nccl_comm_new(struct sl_nccl_engine *engine, const struct sl_nccl_ctx *ctx, bool is_send,
                     struct sl_nccl_comm **out);
/* Its endpoint is connected: posts the receives of the data path. */
int sl_nccl_comm_start(struct sl_nccl_comm *comm);
void sl_nccl_comm_lose(struct sl_nccl_comm *comm, int status, const char *why);
/* Ends the endpoint: from then on the transport touches no memory of its requests. */
void sl_nccl_comm_cut(struct sl_nccl_comm *comm);
void sl_nccl_comm_free(struct sl_nccl_comm *comm);
/* Is an error of this connection to be logged? A loss is, once: NCCL may go on asking. */
bool sl_nccl_comm_tells(struct sl_nccl_comm *comm);
/* Hands waiting requests to the transport. */
void sl_nccl_comm_push(struct sl_nccl_comm *comm);

int sl_nccl_isend(struct sl_nccl_comm *comm, void *data, size_t len, int tag, struct sl_nccl_mr *mr,
                  struct sl_nccl_req **out);
int sl_nccl_irecv(struct sl_nccl_comm *comm, unsigned count, void **data, const size_t *lens,
                  const int *tags, struct sl_nccl_mr **mrs, struct sl_nccl_req **out);
/* 1 when it is over: it is dead then, and sizes, which may be NULL, are filled. */
int sl_nccl_test(struct sl_nccl_req *req, int *sizes);
void sl_nccl_close(struct sl_nccl_comm *comm);

/* memory.c */
int sl_nccl_reg(struct sl_nccl_comm *comm, const struct sl_mem *mem, struct sl_nccl_mr **out);
int sl_nccl_dereg(struct sl_nccl_comm *comm, struct sl_nccl_mr *mr);
/* The same; the engine is locked. */
void sl_nccl_mr_end(struct sl_nccl_mr *mr);

static inline void sl_nccl_lock(struct sl_nccl_engine *engine)
{
    pthread_mutex_lock(&engine->lock);
}

static inline void sl_nccl_unlock(struct sl_nccl_engine *engine)
{
    pthread_mutex_unlock(&engine->lock);
}

#endif
