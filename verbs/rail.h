/* SPDX-License-Identifier: Apache-2.0 */
/* An open port: its queues, what arrives there, and the receive buffers that wait at the NIC. */
#ifndef SL_VERBS_RAIL_H
#define SL_VERBS_RAIL_H

#include "core/err.h"
#include "verbs/device.h"
#include "verbs/open_device.h"
#include "multipath/lane.h"

#include <stdbool.h>

struct sl_verbs_iface;
struct sl_verbs_mr;
struct sl_verbs_path;
struct sl_verbs_rejoin;
struct sl_verbs_leaving;

#define SL_VERBS_SPARE_SLOTS 128 /* receive buffers besides those: for CTS, writes, credits */
#define SL_VERBS_FULL_EPS 64     /* connections with a buffer per credit; further ones share more */
#define SL_VERBS_SHARED_SLOTS 4  /* and add so many */
#define SL_VERBS_OWN_SLOTS 96    /* of a queue pair: more than its peer may have under way */
#define SL_VERBS_OWN_SLOTS_MIN 16 /* once the completion queue has room for few more */
#define SL_VERBS_FIRST_PATHS 4    /* for so many the last places of queues are kept */
#define SL_VERBS_BLOCK_SLOTS 64
#define SL_VERBS_RETURN_NS (500 * SL_NS_PER_MS) /* between attempts to have a lost one back */

/* An entry of the hash from a queue pair number to its path. */
struct sl_verbs_qpn {
    uint32_t qpn; /* 0: empty */
    struct sl_verbs_path *path;
};

#define SL_VERBS_SLOT_BIT (UINT64_C(1) << 63) /* in wr_id: a receive */
#define SL_VERBS_OWN_BIT (UINT64_C(1) << 62)  /* one of a queue pair's own */
#define SL_VERBS_SLOT_SHARED UINT32_MAX
#define SL_VERBS_SLOT_FREE (UINT32_MAX - 1)
#define SL_VERBS_SLOT_LEFT (UINT32_MAX - 2) /* in somebody's hands, and its queue pair is gone */

/* A receive buffer. */
struct sl_verbs_slot {
    /* place in iface->paths of the one whose queue it waits in, or one of the above */
    uint32_t owner;
    uint32_t stay; /* counts its times at the NIC */
    bool at_nic;
};

struct sl_verbs_rail {
    struct sl_mp_rail base;
    struct sl_verbs_iface *iface;
    bool is_soft; /* soft-RoCE */
    bool is_lost; /* its queues are, or its device: nothing is asked of them any more */
    /* In reserve, and as yet without device and queues; is_lost as well, while base.usable says
     * how its port was when it was listed. */
    bool is_asleep;
    bool takes_dmabuf;
    /* What users register is registered here, as there is a path, or was; and what they had before
     * is being so. */
    bool has_memory, is_joining;
    struct sl_verbs_device *device;
    struct sl_verbs_listener listener;
    struct sl_verbs_memory *memory; /* the device's, by the settings */
    struct ibv_td *td;              /* NULL: the driver locks its queues itself */
    struct ibv_pd *domain;          /* of queues: the device's, or one of td */
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    unsigned cq_most, cq_taken; /* entries that it can have, and that may come to be needed */
    struct ibv_srq *srq;
    unsigned cq_events;
    struct sl_verbs_port port;
    struct sl_verbs_gid gid;
    struct sl_verbs_pkey pkey;
    uint64_t reread_at_ns; /* not usable: when to read the port again, or try to open it again */
    uint64_t retry_ns;     /* lost: between attempts, longer with each one that fails */
    struct sl_verbs_rejoin *rejoin;   /* on its way back */
    struct sl_verbs_leaving *leaving; /* queue pairs without a path, until they can be destroyed */
    /* receive buffers */
    struct sl_verbs_block {
        uint8_t *bytes;
        struct ibv_mr *mr;
        struct sl_verbs_slot *slots;
    } * blocks;
    unsigned block_count, shared_blocks;
    unsigned srq_room;   /* places in the queue that queue pairs share; 0: each has its own */
    unsigned slots_free; /* at the NIC, in the shared queue */
    unsigned slots_lost; /* of that queue: the NIC did not take them back */
    /* places in queues of queue pairs' own: how many there may be, are, and of one */
    unsigned own_room, own_count, own_most;
    unsigned own_in_hands; /* buffers of those that arrived and are not back */
    uint32_t *free_slots;  /* in no queue, and in nobody's hands */
    unsigned free_count;
    struct sl_verbs_qpn *qpns;
    uint32_t qpn_mask, qpn_count;
};

/* rail_open.c */
/* Device, queues and events of a rail that is closed and has iface, port and base: the first time
 * or again. Whether the port is usable, sl_verbs_rail_refresh() finds out. */
int sl_verbs_rail_open(struct sl_verbs_rail *rail);
void sl_verbs_rail_close(struct sl_verbs_rail *rail);
/* One that is closed sleeps until a path needs it. Asks its device, which the caller keeps open,
 * for what has to be known before; the error of ibv_open_device(). */
int sl_verbs_rail_rest(struct sl_verbs_rail *rail);

/* rejoin.c */
/* A path is to be made there: opens it, if it sleeps. -ENETDOWN: its port turns out to be of no
 * use; or what opening it says: then it is lost, and tried again. */
int sl_verbs_rail_wake(struct sl_verbs_rail *rail);
/* One is made: what users have registered comes to it, while messages go by others. -ENOMEM. */
int sl_verbs_rail_use(struct sl_verbs_rail *rail);
/* Tries to have a lost rail back, a step with each call. */
void sl_verbs_rail_rejoin(struct sl_verbs_rail *rail, uint64_t now_ns);
/* Stops, and waits for the one registration that the device is at. */
void sl_verbs_rejoin_end(struct sl_verbs_rail *rail);
/* What it registers for that region must not be used any more. */
void sl_verbs_rejoin_forget(struct sl_verbs_rail *rail, const struct sl_verbs_mr *mr);

/* cq.c */
/* Domain, completion channel and queue, of so many entries at first. What fails half-way is for
 * sl_verbs_cq_close(). */
int sl_verbs_cq_open(struct sl_verbs_rail *rail, unsigned entries, unsigned most);
/* After all that uses them. */
void sl_verbs_cq_close(struct sl_verbs_rail *rail);
/* Places for what may complete from now on. False: there are not so many. */
bool sl_verbs_cq_take(struct sl_verbs_rail *rail, unsigned places);
/* The same, and leaves those that are kept for connections without a path. */
bool sl_verbs_cq_take_further(struct sl_verbs_rail *rail, unsigned places);
/* Those of a queue pair with so many receives of its own: how many sends it may have; 0: none.
 * is_first: its connection has no other path. */
unsigned sl_verbs_cq_take_sends(struct sl_verbs_rail *rail, unsigned receives, bool is_first);
void sl_verbs_cq_give(struct sl_verbs_rail *rail, unsigned places);

/* leave.c */
/* A queue pair in ERR that shares the receive queue, and is nobody's any more: destroyed once it
 * has given back what it took of that queue, and its places in the completion queue with it. */
void sl_verbs_leave(struct sl_verbs_rail *rail, struct ibv_qp *qp, unsigned places);
/* Its device says that it has taken the last one, and given it back. */
void sl_verbs_leave_reached(struct sl_verbs_rail *rail, uint32_t qpn);
void sl_verbs_leave_timers(struct sl_verbs_rail *rail, uint64_t now_ns);
/* Destroys them at once. */
void sl_verbs_leave_now(struct sl_verbs_rail *rail);

/* rail.c */
/* Its queues or its device are gone: its paths end, and nothing else does. */
void sl_verbs_rail_lose(struct sl_verbs_rail *rail, const char *why);
/* Is it lost, or, as a call to its device has just failed, does it turn out to be? */
bool sl_verbs_rail_is_gone(struct sl_verbs_rail *rail);
/* Handles up to budget completions; how many. */
unsigned sl_verbs_rail_poll(struct sl_verbs_rail *rail, unsigned budget);
/* Has it ring when something completes, unless it is lost. */
void sl_verbs_rail_arm(struct sl_verbs_rail *rail);
void sl_verbs_rail_disarm(struct sl_verbs_rail *rail);
/* Asynchronous events, and ports that are awaited; how many things happened. */
int sl_verbs_rail_events(struct sl_verbs_rail *rail);
/* Reads the port again: usable or not, which GID. Tells the connections what changed. */
void sl_verbs_rail_refresh(struct sl_verbs_rail *rail);
/* Whether it is usable, and by which GID and P_Key, by what was read of its port last. */
void sl_verbs_rail_judge(struct sl_verbs_rail *rail);
int sl_verbs_qpn_add(struct sl_verbs_rail *rail, uint32_t qpn, struct sl_verbs_path *path);
void sl_verbs_qpn_remove(struct sl_verbs_rail *rail, uint32_t qpn);

/* slots.c */
/* Receive buffers for so many connections, where they share them. */
int sl_verbs_rail_provide(struct sl_verbs_rail *rail, unsigned eps);
/* Gives a receive buffer back: to the NIC, unless its queue pair is gone. */
void sl_verbs_slot_put(struct sl_verbs_rail *rail, uint32_t slot);
const uint8_t *sl_verbs_slot_bytes(const struct sl_verbs_rail *rail, uint32_t slot);
/* The buffer of a completion is in the caller's hands now. False: the completion is of a stay that
 * is over. */
bool sl_verbs_own_take(struct sl_verbs_rail *rail, uint64_t wr_id);
static inline bool sl_verbs_slot_take(struct sl_verbs_rail *rail, uint64_t wr_id)
{
    if (SL_UNLIKELY((wr_id & SL_VERBS_OWN_BIT) != 0))
        return sl_verbs_own_take(rail, wr_id);
    rail->slots_free--;
    return true;
}
/* Has any that arrived not come back? */
bool sl_verbs_slots_in_hands(const struct sl_verbs_rail *rail);
/* As sl_verbs_slot_put(), for one that came back from a queue pair which takes nothing any more. */
void sl_verbs_slot_flushed(struct sl_verbs_rail *rail, uint32_t slot);
/* How many receive buffers a new queue pair is to have of its own; 0: it shares, or there is no
 * room. */
unsigned sl_verbs_own_receives(const struct sl_verbs_rail *rail, bool is_first);
/* Posts path->own_slots of them to its new queue pair. What fails half-way is for
 * sl_verbs_own_leave(). */
int sl_verbs_own_fill(struct sl_verbs_path *path);
/* Its queue pair is gone. */
void sl_verbs_own_leave(struct sl_verbs_path *path);
/* Are so few left at the NIC that a frame which has to wait should be copied out of its own? */
bool sl_verbs_few_receives(const struct sl_verbs_path *path);
void sl_verbs_slots_close(struct sl_verbs_rail *rail);

#endif
