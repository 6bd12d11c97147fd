/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An Ethernet port driven by DPDK: opened once per process, shared by all engines (workers) of it.
 * Whoever polls a port takes what came for all of them, and leaves the others' packets in their
 * inboxes. Nothing here knows the protocol but for the flow number, by which packets find their
 * engine.
 *
 *   engine A -- burst --+                        +-- inbox of A
 *                       +--> port (lock) <--> NIC
 *   engine B -- burst --+                        +-- inbox of B
 */
#ifndef SL_DPDK_PORT_PORT_H
#define SL_DPDK_PORT_PORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SL_DPDK_PORTS_MAX 16

struct sl_dpdk_port;
struct sl_dpdk_user;

/* As the peer needs it to reach the port: 18 bytes of struct sl_mp_rail_info are for it. */
struct sl_dpdk_address {
    uint8_t mac[6];
    uint8_t ip[4];  /* IPv4; chosen by MAC (169.254/16) where none is given */
    uint8_t prefix; /* of its subnet */
    uint8_t spare;
    uint16_t udp_port; /* destination port of what comes here */
    uint32_t segment;  /* hash of the wire's name: ports of one segment reach each other */
};

struct sl_dpdk_port_info {
    char name[80];   /* "net_memif0", "0000:3b:00.0" */
    char driver[32]; /* "net_memif", "mlx5_pci" */
    struct sl_dpdk_address address;
    uint64_t speed;      /* bytes per second, 0: unknown */
    uint32_t frame_most; /* bytes of the largest frame that passes, Ethernet header included */
    int numa_node;
    bool sends_segments; /* payload goes out of the user's memory without a copy */
    bool has_interrupts; /* a sleeper can be woken */
    bool is_up;          /* link */
};

/* ---- process ---- */

/* Starts EAL at the first call, on a thread of its own so that the caller's affinity stays, with no
 * more than is asked for. Opens, or finds, the ports that `list` (SLUICE_DPDK_PORTS) names.
 * -ENODEV, -EINVAL, -ENOTSUP with a sentence. */
int sl_dpdk_ports_get(const char *list, struct sl_dpdk_port **out, size_t cap, size_t *count);
void sl_dpdk_ports_put(struct sl_dpdk_port **ports, size_t count);
void sl_dpdk_port_info(const struct sl_dpdk_port *port, struct sl_dpdk_port_info *out);

/* ---- one engine's use of ports ---- */

/* A packet of the user's flow came; bytes from the UDP payload on, borrowed. From
 * sl_dpdk_user_poll() only. */
typedef void (*sl_dpdk_packet_fn)(void *arg, struct sl_dpdk_port *port, uint32_t flow,
                                  const void *bytes, size_t len, bool is_marked);
/* Payload of a packet that sl_dpdk_send() kept is not read any more; cookie is what was given. From
 * sl_dpdk_user_poll() or sl_dpdk_send() only. */
typedef void (*sl_dpdk_sent_fn)(void *arg, uint64_t cookie);

int sl_dpdk_user_open(sl_dpdk_packet_fn packet, sl_dpdk_sent_fn sent, void *arg,
                      struct sl_dpdk_user **out);
void sl_dpdk_user_close(struct sl_dpdk_user *user);
/* A flow number of this process for that user, on all of its ports; never 0, and not one that was
 * in use a short while ago. -ENOMEM. */
int sl_dpdk_flow_number(struct sl_dpdk_user *user, uint32_t *out);
void sl_dpdk_flow_forget(struct sl_dpdk_user *user, uint32_t number);

/* Takes what came on the port, up to budget packets; hands over this user's. How many came, for
 * anyone. Does not wait when another user polls it: then only the inbox is emptied. */
unsigned sl_dpdk_user_poll(struct sl_dpdk_user *user, struct sl_dpdk_port *port, unsigned budget);

/* What all packets to one peer's port by one route share: made once, 42 bytes of headers. */
struct sl_dpdk_way {
    uint8_t head[42]; /* Ethernet, IPv4 (ECT(0)), UDP */
};
/* -EAGAIN: the neighbour's MAC is not known yet, and is asked for. */
int sl_dpdk_way_make(struct sl_dpdk_port *port, const struct sl_dpdk_address *peer,
                     uint16_t source_port, uint8_t traffic_class, struct sl_dpdk_way *out);

/* Collects a packet: head, then payload, then tail. 0: taken, and copied. 1: taken, payload is read
 * until sent(cookie) (zero-copy, only if may_keep). -EAGAIN: full. Leaves with the next flush, or
 * when a burst is full. */
int sl_dpdk_send(struct sl_dpdk_user *user, struct sl_dpdk_port *port,
                 const struct sl_dpdk_way *way, const void *head, size_t head_len,
                 const void *payload, size_t len, const uint32_t *tail, bool may_keep,
                 uint64_t cookie);
/* How many packets the port took now. Never spins: what it does not take stays collected. */
unsigned sl_dpdk_flush(struct sl_dpdk_user *user, struct sl_dpdk_port *port);

/* Readable when packets come; -1: the driver has no interrupts. */
int sl_dpdk_port_fd(struct sl_dpdk_port *port);
int sl_dpdk_port_arm(struct sl_dpdk_port *port);
void sl_dpdk_port_disarm(struct sl_dpdk_port *port);

#endif
