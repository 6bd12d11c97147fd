/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract between the collectives and the transports: verbs, dpdk, tcp, shm, sim.
 *
 * Layers: an interface (sl_iface) is one open device on one worker; an endpoint (sl_ep) is a
 * connection to one peer, with channels on it. A backend embeds both structs as first members of
 * its own.
 *
 * How the draft in the house rules changed, and why: docs/design/0001-transport-contract.md.
 */
#ifndef SL_CORE_TRANSPORT_H
#define SL_CORE_TRANSPORT_H

#include "core/mem.h"
#include "core/req.h"
#include "core/worker.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SL_TRANSPORT_ABI 7
#define SL_ADDR_MAX 318  /* bytes of an endpoint's address */
#define SL_KEY_MAX 30    /* bytes of a registered region's key */
#define SL_CTRL_MAX 192  /* bytes of a control message */
#define SL_CTRL_ROOM 256 /* what tcp takes: room for a transport that wraps messages (verbs) */
#define SL_TRANSPORT_NUMBERS 32 /* that may be given: from 1 on */

enum sl_cap {
    SL_CAP_MAP = 1u << 0,    /* mem_alloc, map: peers can share memory */
    SL_CAP_READ = 1u << 1,   /* read: from any memory of the peer, unregistered too */
    SL_CAP_WAKEUP = 1u << 2, /* fd, arm: a waiter can sleep */
    SL_CAP_LOCAL = 1u << 3,  /* reaches only ranks of the same host */
    SL_CAP_GPU = 1u << 4,    /* mr_reg takes GPU memory (SL_MEM_CUDA, SL_MEM_DMABUF) */
    /* A failed path is recovered by both ends: peers need progress here though nothing is under way
     * here. */
    SL_CAP_REPAIRS = 1u << 5,
    SL_CAP_CHANNELS = 1u << 6, /* channel_*: several orders on one endpoint */
    /* Its peers wait for answers that progress alone gives (acknowledgements): it needs progress
     * within some milliseconds whatever its owner does. */
    SL_CAP_TIMELY = 1u << 7,
};

/* Properties of a transport that others need before they open it. */
enum sl_trait {
    /* Reaches any host by any interface, is opened without a device and has control messages: other
     * transports may set up and repair their connections over it. */
    SL_TRAIT_SIDEBAND = 1u << 0,
    SL_TRAIT_LOCAL = 1u << 1, /* reaches only ranks of the same host: SL_CAP_LOCAL when open */
    /* Devices move the bytes, so threads that share an interface do not wait for each other's
     * copies. */
    SL_TRAIT_OFFLOAD = 1u << 2,
};

/* The peers that a device reaches. */
enum sl_reach {
    SL_REACH_NETWORK, /* other hosts, too */
    SL_REACH_HOST,    /* this host alone: loopback, shared memory */
};

/* One thing that open() accepts, as probe() found it; or, when why is not empty, one that it would
 * not. */
struct sl_device {
    char name[80];    /* "lo", "eth0", "shm0", "mlx5_0:1" */
    char detail[192]; /* for people: addresses, state, engine */
    uint64_t speed;   /* bytes per second, 0 when unknown */
    char why[256];    /* it is here, but out, and why: a sentence part */
    char more[2048];  /* further lines for people, each with its newline: what can be chosen from */

    /* For programs that choose devices by distance. */
    enum sl_reach reach;
    char pci_path[256]; /* of its PCI device in sysfs; "": it is on no bus */
    uint64_t guid;      /* equal for what is one piece of hardware; 0: it has none */
    int port;           /* of that hardware, from 1; 0: it has no ports */
    int numa_node;      /* that its PCI device is on; -1: not known */
};

struct sl_addr {
    uint16_t len;
    uint8_t bytes[SL_ADDR_MAX];
};

/* The key for a peer to reach a registered region. Sent as bytes, so: fixed layout, no pointers. */
struct sl_key {
    uint16_t len;
    uint8_t bytes[SL_KEY_MAX];
};

struct sl_iface;
struct sl_ep;
struct sl_mr; /* a backend's own */

/* Bytes to send. mr may be NULL: the transport then copies, or registers by itself. addr is memory
 * that the processor may touch, unless mr (or, without one, a live registration of that range) is
 * of GPU memory: then no byte is read but by the device. */
struct sl_buf {
    const void *addr;
    size_t len;
    struct sl_mr *mr;
    uint32_t channel;
};

/*
 * Where a message goes. consume, when set, is called from progress (or inside recv) with the bytes
 * in order, each piece once, the pieces' sizes multiples of granule but for the last; the bytes are
 * borrowed for the call. It lets a reduction read straight out of a ring slot or a socket buffer.
 * Without consume the bytes are copied to dst, or placed there by hardware.
 *
 * A transport that must place bytes before it can hand them over places them at dst, then calls
 * consume with pointers into dst: so dst, when not NULL, has room for len bytes even with consume.
 * With dst NULL the transport uses memory of its own.
 *
 * With shorter set len is room: the message may have any length up to it, 0 too, which req->len
 * tells, and no byte of dst behind its end is touched. consume then gets so many bytes, none of an
 * empty message.
 *
 * dst may be GPU memory when mr says so, and has no consume then: the bytes are visible to the GPU
 * when the request is done.
 */
struct sl_sink {
    void *dst;
    size_t len;   /* exactly what the message must have, or the most of it */
    uint64_t tag; /* exactly what the message must carry */
    uint32_t channel;
    uint32_t granule;
    bool shorter;
    struct sl_mr *mr; /* of dst, or NULL */
    void (*consume)(const struct sl_sink *sink, const void *bytes, size_t off, size_t len);
};

/* May a message of len bytes go there? */
static inline bool sl_sink_takes(const struct sl_sink *sink, uint64_t len)
{
    return len == sink->len || (len < sink->len && sink->shorter);
}

/* Callbacks of an interface to its owner, from progress only. */
struct sl_handler {
    /* A control message came. msg is borrowed. */
    void (*ctrl)(void *arg, struct sl_ep *ep, const void *msg, size_t len);
    /* The endpoint is lost for good: once per endpoint, also when nothing was pending on it, before
     * its pending requests end. why is a borrowed sentence part: "connection reset by peer". */
    void (*down)(void *arg, struct sl_ep *ep, int status, const char *why);
    void *arg;
    /* SL_TRAIT_SIDEBAND: control messages are all that goes; nothing is sent or received beside. */
    bool ctrl_only;
};

struct sl_config;
struct sl_config_section;
struct sl_event_set;
struct sl_state_path;

struct sl_transport_ops {
    /* These two lie here in every version. */
    uint32_t abi;     /* SL_TRANSPORT_ABI; what was built for another cannot be opened */
    const char *name; /* as written in SLUICE_TRANSPORT; static storage */

    /* From 1 to SL_TRANSPORT_NUMBERS - 1, and never another one: peers name the transport by it,
     * and its events count from it. docs/architecture.md lists those that are given. */
    uint32_t number;
    int32_t place;   /* in the order of SLUICE_TRANSPORT=auto, the lowest first */
    uint32_t traits; /* SL_TRAIT_* */

    /* Its variables, registered with it: core/config.h. NULL: it has none. */
    struct sl_config_section *config;

    /* Its kinds of events, registered with it: core/event.h. NULL: it has none. */
    const struct sl_event_set *events;

    /* For a program that spreads its connections over devices itself: sets in config that an
     * interface opened with it, without a device, has its connections on dev as long as it can,
     * with that traffic class (-1: none is asked for). NULL: such an interface is opened on dev. */
    void (*prefer)(struct sl_config *config, const struct sl_device *dev, int traffic_class);

    /* Fills out[0..cap) with devices that can be opened, and with those that cannot (why); *count
     * is how many exist, maybe more than cap. Leaves nothing open. -ENODEV: none here. -ENOTSUP:
     * its library or permission is absent. */
    int (*probe)(const struct sl_config *config, struct sl_device *out, size_t cap, size_t *count);

    /* handler is copied. dev NULL: the transport's own choice. */
    int (*open)(struct sl_worker *worker, const struct sl_device *dev,
                const struct sl_handler *handler, struct sl_iface **out);
    void (*close)(struct sl_iface *iface);

    /* SL_CAP_MAP. Memory that peers can map once it is registered; page aligned. Its first `backed`
     * bytes are there, and zero; behind them are addresses, which nobody may touch before
     * mem_back(). */
    int (*mem_alloc)(struct sl_iface *iface, size_t len, size_t backed, struct sl_mem *out);
    /* Makes [off, off+len) usable, here and where it is mapped: zero where it was not. off is a
     * multiple of pages. -ENOMEM. */
    int (*mem_back)(struct sl_iface *iface, const struct sl_mem *mem, size_t off, size_t len);
    /* Gives it back to the system: nobody touches it until it is backed again. Whole pages. */
    void (*mem_unback)(struct sl_iface *iface, const struct sl_mem *mem, size_t off, size_t len);
    void (*mem_free)(struct sl_iface *iface, struct sl_mem *mem);

    /* Makes mem usable by iface; mem must outlive the region. May take milliseconds, so never per
     * message. key, which may be NULL, is for peers to pass to map(). -ENOTSUP: not this kind of
     * memory, or no use in registering it. */
    int (*mr_reg)(struct sl_iface *iface, const struct sl_mem *mem, struct sl_mr **out,
                  struct sl_key *key);
    void (*mr_dereg)(struct sl_iface *iface, struct sl_mr *mr);

    /* [addr, addr+len) is about to leave the process, registered or not: forgets all that was kept
     * of it. Returns how many of the caller's own regions lay there, which are dead now but still
     * have to be given to mr_dereg: more than 0 is a mistake of the caller that frees the memory.
     * Called often, so quick when nothing is known of that range. */
    unsigned (*mem_gone)(struct sl_iface *iface, void *addr, size_t len);

    /* SL_CAP_MAP. A pointer through which this process reads and writes the peer's registered
     * region, until unmap, ep_destroy, or the peer's mr_dereg. -EAGAIN: the region is not here
     * yet; progress and call again. -ENOTSUP: it cannot be mapped; use send and recv. len is what
     * the caller is going to touch of it: -EPROTO when the region has less. */
    int (*map)(struct sl_ep *ep, const struct sl_key *key, size_t len, void **out);
    void (*unmap)(struct sl_ep *ep, void *ptr);

    /* Each side creates, swaps addresses through an exchange, then connects; none of them blocks.
     * req is done when data may flow, or with -ETIMEDOUT, -ECONNREFUSED, -EPROTO (version),
     * -EHOSTUNREACH. */
    int (*ep_create)(struct sl_iface *iface, struct sl_ep **out);
    int (*ep_addr)(struct sl_ep *ep, struct sl_addr *out);
    int (*ep_connect)(struct sl_ep *ep, const struct sl_addr *peer, struct sl_req *req);
    /* All pending requests are done with -ECANCELED before this returns. Takes NULL. */
    void (*ep_destroy)(struct sl_ep *ep);
    /* SL_TRAIT_SIDEBAND. A fresh endpoint in the place of one that was connected, to the same peer,
     * whose owner does the same there; ep is destroyed, without a farewell. Nothing that was under
     * way arrives any more, and channels begin anew. req is done as that of ep_connect, and with
     * -ECONNREFUSED only where the peer's process, or its endpoint, is no more: otherwise it may be
     * called again. -ENOMEM: ep stays, and its pending requests are done with -ECANCELED. */
    int (*ep_redial)(struct sl_ep *ep, struct sl_req *req, struct sl_ep **out);

    /*
     * SL_CAP_CHANNELS. Each end opens a channel by itself before it sends or receives there, in any
     * order of the two; channel 0 is open from the start. Numbers are the owners', and never used
     * twice on an endpoint. A channel does not wait for another one: a message that has no receive
     * yet, or whose channel is not open here yet, is kept in memory when the receive of another
     * channel waits (core/channel.h), and holds the peer back until then.
     * -EINVAL: it is open or was; -ENOMEM.
     */
    int (*channel_open)(struct sl_ep *ep, uint32_t channel);
    /* All requests pending there are done with -ECANCELED before this returns, and its memory is
     * the caller's again; other channels go on. Messages of the peer there are dropped. The peer's
     * owner is not told: that is its owners' matter. Not for channel 0. */
    void (*channel_close)(struct sl_ep *ep, uint32_t channel);
    /* Payload bytes of the channel's messages that have moved so far, either way, each once. Rises
     * while a long message is under way, as far as this end knows of its pieces. 0: the channel is
     * not known here. */
    uint64_t (*channel_traffic)(const struct sl_ep *ep, uint32_t channel);
    /* A receive is posted there that no message will ever meet: the peer has closed the channel,
     * and all that it sent before is here. */
    bool (*channel_starves)(const struct sl_ep *ep, uint32_t channel);

    /* All endpoints of iface that will ever be are connected: closes its listeners, which
     * only strangers could still find. Further connects may fail. */
    void (*stop_listening)(struct sl_iface *iface);

    /*
     * Data path: no allocation, no lock. Messages on one channel of an endpoint arrive whole and in
     * order: the n-th send meets the n-th recv, whose tag and length must be the same (or the room
     * enough, where the sink takes shorter ones); otherwise that recv ends with -EPROTO (tag) or
     * -EMSGSIZE (length), its message is dropped, and the endpoint goes on. Either way req->tag and
     * req->len of the recv have the values of its sender, also when it is done at once.
     *
     * 1: done at once, req->status is 0 and done() will not be called. 0: taken, req->status is
     * SL_PENDING; the bytes, the sink and what it names are lent until req is done. -EAGAIN: queue
     * full, nothing was taken, progress and call again. Other codes: the endpoint is lost, nothing
     * was taken, and the handler's down() has come or will.
     */
    int (*send)(struct sl_ep *ep, const struct sl_buf *buf, uint64_t tag, struct sl_req *req);
    /* Messages that were kept whole when the endpoint was lost are received after down(), too:
     * recv() returns 1, or 0 and a later progress ends its request with status 0. When its channel
     * has none, recv() returns the code of the loss. Claims of messages that were kept in part end
     * with that code. */
    int (*recv)(struct sl_ep *ep, const struct sl_sink *sink, struct sl_req *req);

    /* SL_CAP_READ. Copies len bytes of the peer's memory at addr, which the peer has lent. Returns
     * as send does. */
    int (*read)(struct sl_ep *ep, uint64_t addr, void *dst, size_t len, struct sl_req *req);

    /* A small message outside the order of sends: status, aborts. Arrives whole or not at all, in
     * the order of these calls; the handler at the peer gets it. Copied. -EAGAIN: no room, nothing
     * was taken. Other codes: as of send. */
    int (*ctrl)(struct sl_ep *ep, const void *msg, size_t len);

    /* Finishes at most budget requests, calling each one's done(). Returns how many things moved
     * (requests, pieces, control messages), so that 0 means "nothing to do"; negative only when the
     * whole iface is lost. Deadlines do not go by it but by traffic: bells and statuses are no
     * progress. */
    int (*progress)(struct sl_iface *iface, unsigned budget);

    /* SL_CAP_WAKEUP. fd is readable when there is work. arm() returns 0: it is safe to sleep;
     * -EAGAIN: work slipped in first, progress again. disarm() after waking up. */
    int (*fd)(struct sl_iface *iface);
    int (*arm)(struct sl_iface *iface);
    void (*disarm)(struct sl_iface *iface);

    /* Wakes the peer when it sleeps: after a store into memory that it watches (map). Called
     * through sl_ep_wake() only. */
    void (*wake)(struct sl_ep *ep);

    /* One line for reports: how this endpoint reaches its peer, bytes either way. Cuts at cap. */
    void (*ep_describe)(const struct sl_ep *ep, char *out, size_t cap);

    /* What each path of this endpoint has done, for the state page: up to cap records, of which
     * the first three fields are the caller's. Returns how many there are, 0 where an endpoint has
     * no paths to speak of. */
    size_t (*ep_stats)(const struct sl_ep *ep, struct sl_state_path *out, size_t cap);

    /* What the interface's links deliver now, in thousandths of what they do when all are up; at
     * least 1. Schedules share vectors by it. NULL: it is always all. */
    uint32_t (*delivers)(const struct sl_iface *iface);
};

struct sl_iface {
    const struct sl_transport_ops *ops;
    struct sl_worker *worker;
    struct sl_handler handler;
    uint32_t caps;    /* SL_CAP_* */
    size_t eager_max; /* sends up to this many bytes are copied at once when there is room */
    uint64_t traffic; /* payload bytes moved so far, either way: rises while data flows */
    /* for a connection under way: should it fail, later and for another reason, this is why */
    bool lacked_memory;
};

/* Passes on the result of a call that a connection under way needed. */
static inline int sl_iface_note_memory(struct sl_iface *iface, int err)
{
    iface->lacked_memory |= err == -ENOMEM;
    return err;
}

struct sl_ep {
    struct sl_iface *iface;
    const _Atomic uint32_t *peer_asleep; /* SL_CAP_MAP: not 0 while the peer sleeps; or NULL */
    void *owner;                         /* the creator's: handed back through handler calls */
    int peer;                            /* its rank; set by the creator, -1: not known, or none */
    /* SL_TRAIT_SIDEBAND: the number of the connection that is up, the same at both ends; greater
     * after each redial. */
    uint32_t connection;
    bool left; /* the peer has closed its endpoint, and said so; what it sent may come yet */
    const char *peer_name; /* in sentences, instead of "rank 3"; the creator's; or NULL */
};

/* The peer's name, for a sentence; until this thread asks again. */
const char *sl_ep_peer_name(const struct sl_ep *ep);

/* Points every op left NULL at one that returns -ENOTSUP (or does nothing), so that callers never
 * test for NULL. Of a transport for another SL_TRANSPORT_ABI only the name is kept: probe and open
 * say so with -ENOTSUP. Returns out. */
const struct sl_transport_ops *sl_transport_complete(const struct sl_transport_ops *ops,
                                                     struct sl_transport_ops *out);

/* After a store to memory that the peer waits for: shm/park.c says why no fence of the processor is
 * needed. */
static inline void sl_ep_wake(struct sl_ep *ep)
{
    atomic_signal_fence(memory_order_seq_cst);
    if (ep->peer_asleep != 0 &&
        __builtin_expect(atomic_load_explicit(ep->peer_asleep, memory_order_relaxed) != 0, 0))
        ep->iface->ops->wake(ep);
}

#endif
