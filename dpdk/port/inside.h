/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of dpdk/port share. DPDK's own headers are included by the .c files that need
 * them, so that this one compiles alone.
 *
 * Locks, in their order: control (ports come and go, link state), then a port's rx, then its tx.
 * The data path only ever tries the last two.
 */
#ifndef SL_DPDK_PORT_INSIDE_H
#define SL_DPDK_PORT_INSIDE_H

#include "core/err.h"
#include "dpdk/port/lock.h"
#include "dpdk/port/port.h"
#include "dpdk/port/ports.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define SL_DPDK_BURST 32
#define SL_DPDK_SMALL_ROOM 512 /* of a small buffer: headers, answers and short messages */
#define SL_DPDK_COPY_MOST 256  /* payload up to this is copied: cheaper than a second buffer */
#define SL_DPDK_INBOX 1024     /* packets that wait for another engine */
#define SL_DPDK_KEPT_MOST 2048 /* packets of an engine whose payload is lent */
#define SL_DPDK_NEIGHBOURS 64

struct rte_mbuf;
struct rte_mempool;
struct rte_ring;
struct sl_dpdk_inject;

/* A MAC that ARP or neighbour discovery told. */
struct sl_dpdk_neighbour {
    uint8_t ip[16], mac[6]; /* of IPv4: ::ffff:a.b.c.d */
    bool is_known;
    bool is_open;      /* it was asked, and has not answered yet */
    uint64_t asked_ns; /* last */
};

/* What a driver needs, and may be trusted with: driver.c. */
struct sl_dpdk_traits {
    bool takes_lent;     /* payload of any memory, as a second segment */
    bool large_heads;    /* the first segment has to be of the pool of large buffers: driver.c */
    bool own_pool;       /* its pool is its ring: all that it sends must lie there */
    bool is_gated;       /* its control thread unmaps what rx and tx read: gate.c */
    bool holds_buffers;  /* its rings hold buffers: the pool has to have so many more */
    uint32_t frame_most; /* that it passes; 0: by its MTU */
    uint32_t room;       /* of a buffer, headroom included; 0: as the frame needs */
};

struct sl_dpdk_port {
    uint16_t id;         /* DPDK's */
    uint16_t idx;        /* ours */
    _Atomic bool is_up;  /* link.c's; read by the data path without a lock, as a hint */
    bool has_interrupts; /* the driver took the wish */
    int sleep_fd;        /* -1: and has none */
    bool has_started;    /* changed under rx and tx: a burst before it is an error of DPDK's */
    /* Of a memif client: a frame took several buffers, and what comes behind it may be damaged: no
     * burst more until the gate has started the port again. Set under rx. */
    _Atomic bool is_spoiled;
    _Atomic uint32_t spoiled_by; /* that frame's length */
    struct sl_dpdk_traits traits;
    struct sl_dpdk_address address;
    uint8_t gateway[4], gateway6[16]; /* all 0: none */
    uint32_t frame_most;
    struct rte_mempool *small, *large; /* buffers for what is sent; large: and received */
    struct sl_dpdk_inject *inject;

    struct sl_dpdk_lock rx __attribute__((aligned(SL_CACHE_LINE)));
    uint64_t received, received_bytes, foreign, unknown, inbox_full, split; /* under rx */
    /* Types of Ethernet as frames have them, that the port's addresses are of; 0xffff: it has none
     * of that family. */
    uint16_t ip4_type, ip6_type;
    uint16_t udp_port;               /* as frames have it */
    pthread_mutex_t neighbours_lock; /* rare: ways are made, ARP or neighbour discovery comes */
    struct sl_dpdk_neighbour neighbours[SL_DPDK_NEIGHBOURS];
    unsigned neighbour_next; /* place that is given up when all are taken */

    struct sl_dpdk_lock tx __attribute__((aligned(SL_CACHE_LINE)));
    uint64_t sent, sent_bytes; /* under tx */
    bool sums;                 /* the NIC computes UDP's checksum of IPv6 */
    _Atomic uint64_t down_dropped, no_memory, damaged;

    /* ---- under control ---- */
    struct sl_dpdk_spec spec;
    char driver[32], name[SL_DPDK_NAME_MAX];
    bool was_there; /* before us: not ours to remove */
    unsigned users;
    bool is_fresh;  /* of memif: has new sockets since it is up */
    bool is_client; /* of memif: started again when it finds no server */
    /* Of a client: its start takes longer, and DPDK's port is not to be touched: start.c. */
    bool is_starting;
    _Atomic bool is_refused; /* and so long that the server takes no connection; read by anyone */
    uint64_t starting_ns;    /* since then */
    int socket_fd;           /* of a client's connection, the driver's */
    uint64_t socket_inode;
    int xdp_fd;      /* of af_xdp: reserves its interface; -1: none */
    int group_fd;    /* keeps the kernel's interface in the port's IPv6 group; -1: none */
    int drop_fds[2]; /* spare the kernel the port's packets, of IPv4 and of IPv6; -1: none */
    uint64_t restart_ns, restart_wait_ns, hurry_until_ns;
    _Atomic uint64_t restarts;
};

/* Packets of a user that wait for a flush. */
struct sl_dpdk_collected {
    uint16_t count;
    struct rte_mbuf *packets[SL_DPDK_BURST];
};

struct sl_dpdk_user {
    sl_dpdk_packet_fn packet;
    sl_dpdk_sent_fn sent;
    void *arg;
    struct rte_ring *inbox; /* its packets that others took; put in under the port's rx */
    struct rte_ring *done;  /* cookies of payload that was read, from any thread */
    unsigned kept;          /* cookies that have not come back; the owner's alone */
    uint8_t *line;          /* a packet of several segments, in one */
    struct sl_dpdk_collected out[SL_DPDK_PORTS_MAX];
};

/* ---- port.c ---- */

/* Every port that is open, by its idx; NULL: none. Changed under control and the
 * port's locks. */
extern struct sl_dpdk_port *_Atomic sl_dpdk_open_ports[SL_DPDK_PORTS_MAX];

/* ---- driver.c ---- */

/* Arguments that the device needs where none are given, before it is probed. */
int sl_dpdk_driver_args(struct sl_dpdk_spec *spec);
/* A MAC of this port's own: random, administered locally. */
void sl_dpdk_random_mac(uint8_t mac[6]);
/* By the driver's name and the spec. */
void sl_dpdk_driver_traits(const char *driver, const struct sl_dpdk_spec *spec,
                           struct sl_dpdk_traits *out);

/* ---- xdp.c ---- */

/* Reserves the interface of a port of af_xdp until *out is closed. -EBUSY. Under control. */
int sl_dpdk_xdp_reserve(const struct sl_dpdk_spec *spec, int *out);

/* ---- kernel.c ---- */

/* Of a port of af_packet: the kernel, which has a copy of each packet, looks at the port's no more,
 * where it lets programs of BPF say so. Does nothing for others. */
void sl_dpdk_kernel_drop(struct sl_dpdk_port *port);
void sl_dpdk_kernel_drop_end(struct sl_dpdk_port *port);

/* ---- pool.c ---- */

int sl_dpdk_pools_get(struct sl_dpdk_port *port, unsigned descriptors);
void sl_dpdk_pools_put(struct sl_dpdk_port *port);

/* ---- demux.c ---- */

/* Where a packet belongs that came on the port: the user; or NULL, and the caller frees it. Then
 * the packet starts with its UDP payload, and its hash has the flow's number and a note. Under
 * rx. */
#define SL_DPDK_NOTE_MARK 1u /* congestion experienced */
/* The sum over the payload and the upper half of the note, that of the headers, is to be 0xffff. */
#define SL_DPDK_NOTE_SUM 2u
struct sl_dpdk_user *sl_dpdk_demux(struct sl_dpdk_port *port, struct rte_mbuf *packet);

/* ---- flows.c ---- */

/* The user of the flow of that number, or NULL. */
struct sl_dpdk_user *sl_dpdk_flow_user(uint32_t number);
void sl_dpdk_flows_forget(struct sl_dpdk_user *user);

/* ---- burst.c ---- */

/* Tells the user what lent payload was read. */
void sl_dpdk_user_done(struct sl_dpdk_user *user);

/* ---- neighbours.c ---- */

/* The MAC of a neighbour, if the port knows it; *asks: it is to be asked now, and the first answer
 * within its time counts. */
bool sl_dpdk_neighbour_find(struct sl_dpdk_port *port, const uint8_t ip[16], uint8_t mac[6],
                            bool *asks);
/* Somebody says so: kept if the port has asked. */
void sl_dpdk_neighbour_learn(struct sl_dpdk_port *port, const uint8_t ip[16], const uint8_t mac[6]);
/* A frame of one buffer, now or never. */
void sl_dpdk_neighbour_send(struct sl_dpdk_port *port, const void *frame, size_t len);

/* ---- nd.c ---- */

/* An ICMPv6 packet came, borrowed. False: it is none of neighbour discovery. Under rx. */
bool sl_dpdk_nd_receive(struct sl_dpdk_port *port, struct rte_mbuf *packet);
/* As sl_dpdk_arp_find(). */
int sl_dpdk_nd_find(struct sl_dpdk_port *port, const uint8_t ip[16], uint8_t mac[6]);

/* ---- group.c ---- */

/* The port receives what is sent to the group in which its IPv6 address is asked for, if it has
 * one. It is no error where that cannot be had: peers of the subnet need no answer. */
void sl_dpdk_group_join(struct sl_dpdk_port *port);
void sl_dpdk_group_leave(struct sl_dpdk_port *port);

/* ---- arp.c ---- */

/* A packet of ARP came, borrowed. Under rx. */
void sl_dpdk_arp_receive(struct sl_dpdk_port *port, struct rte_mbuf *packet);
/* The MAC of an address of the port's subnet. -EAGAIN: it is asked for. */
int sl_dpdk_arp_find(struct sl_dpdk_port *port, const uint8_t ip[4], uint8_t mac[6]);

/* ---- sleep.c ---- */

/* After the port was started; before it is stopped. */
void sl_dpdk_port_sleep_open(struct sl_dpdk_port *port);
void sl_dpdk_port_sleep_close(struct sl_dpdk_port *port);

/* ---- gate.c ---- */

/* Everything that changes ports, and DPDK's own control thread while it is not in the gate. */
bool sl_dpdk_control_lock(void); /* false, with a sentence: that thread hangs for seconds */
void sl_dpdk_control_unlock(void);
/* From now on DPDK's control thread runs only while no gated port is received from or sent by. Once
 * a process. Called under control. */
int sl_dpdk_gate_install(void);
/* The control thread looks at links soon. Under control. */
void sl_dpdk_gate_hurry(void);

/* ---- start.c ---- */

/* Who opens or closes a port waits so long for a client's start, which takes microseconds, or on a
 * loaded host as long as a new thread has to wait for a core. */
#define SL_DPDK_START_MS 500
/* Starts a memif client's port of DPDK; waits for so long. -EINPROGRESS: its server takes no
 * connection now, and the start goes on. Under control. */
int sl_dpdk_client_start(uint16_t id, unsigned ms);
/* How that ended, told once; -EINPROGRESS: within so long it did not. */
int sl_dpdk_client_started(uint16_t id, unsigned ms);
/* Was it begun, and not told yet how it ended? */
bool sl_dpdk_client_is_left(uint16_t id);

/* ---- link.c ---- */

bool sl_dpdk_link_is_up(const struct sl_dpdk_port *port); /* as the driver has it */
/* A client's start has ended so, or goes on (-EINPROGRESS). Under control. */
void sl_dpdk_client_take(struct sl_dpdk_port *port, int err);
/* Looks at the links of gated ports. Under control and the locks of these ports. */
void sl_dpdk_links_note(uint64_t now_ns);
/* Starts those again that have no peer. Under control. Returns how long it may be until the next
 * call. */
uint64_t sl_dpdk_links_restart(uint64_t now_ns);

/* ---- server.c ---- */

/* Must this port, which nobody uses any more, be left in DPDK, stopped? Under control. */
bool sl_dpdk_server_stays(const struct sl_dpdk_port *port);
/* Of one that was left there: -EBUSY, it is wanted with other arguments. */
int sl_dpdk_server_check(const struct sl_dpdk_spec *spec);
/* Is there one left of that kind? */
bool sl_dpdk_servers_any(bool (*fits)(const struct sl_dpdk_spec *spec, const void *arg),
                         const void *arg);

/* ---- memif.c ---- */

/* Before a server's port is made: a socket that nobody listens to any more goes. */
int sl_dpdk_memif_clear(const struct sl_dpdk_spec *spec);
bool sl_dpdk_memif_serves(const struct sl_dpdk_spec *spec);
/* Takes the name of a server's socket away, if it is a file. */
void sl_dpdk_memif_unname(const struct sl_dpdk_spec *spec);
/* The connection of a client's port that was just started: kept in it. Under control. */
void sl_dpdk_memif_find_socket(struct sl_dpdk_port *port);
/* Does the driver still have it? */
bool sl_dpdk_memif_has_socket(const struct sl_dpdk_port *port);
/* A client's connection that is not up, kept while its port is closed; -1: there is none. Then it
 * goes, once the server has greeted it: one that ends before that ends the server's process. Where
 * the server does not within its time, it stays open as long as this process. Under control. */
int sl_dpdk_memif_hold(const struct sl_dpdk_port *port);
void sl_dpdk_memif_let_go(int fd);
/* A child of fork() or exec() that kept the port's sockets would hide from the peer that this
 * process ended. And a server's socket does not block: its driver would wait in accept(), with all
 * locks, for a client that went between the event and it. */
void sl_dpdk_memif_own_sockets(const struct sl_dpdk_port *port);
/* The wire's number: the same at both ends. */
uint32_t sl_dpdk_memif_segment(const struct sl_dpdk_spec *spec);

#endif
