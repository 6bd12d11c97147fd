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

/* As the peer needs it to reach the port: 34 bytes of struct sl_mp_rail_info are for it. */
struct sl_dpdk_address {
    uint8_t mac[6];
    uint8_t ip[4];     /* IPv4, all 0: none; chosen by MAC (169.254/16) where no address is given */
    uint8_t prefix;    /* of its subnet */
    uint8_t prefix6;   /* of ip6's */
    uint16_t udp_port; /* destination port of what comes here */
    uint32_t segment;  /* hash of the wire's name: ports of one reach each other; 0: it has none */
    uint8_t ip6[16];   /* IPv6, all 0: none */
};

static inline bool sl_dpdk_has_ip4(const struct sl_dpdk_address *address)
{
    return address->ip[0] != 0;
}
bool sl_dpdk_has_ip6(const struct sl_dpdk_address *address);
/* Are the first bits of two addresses of one family the same? */
bool sl_dpdk_same_subnet(const uint8_t *a, const uint8_t *b, unsigned bits);
/* For people: the IPv4 address, or the IPv6 one where that is the only one. Returns out. */
#define SL_DPDK_ADDRESS_TEXT 46
const char *sl_dpdk_address_text(const struct sl_dpdk_address *address,
                                 char out[SL_DPDK_ADDRESS_TEXT]);

struct sl_dpdk_port_info {
    char name[80];   /* "net_memif0", "0000:3b:00.0" */
    char driver[32]; /* "net_memif", "mlx5_pci" */
    struct sl_dpdk_address address;
    bool has_gateway, has_gateway6; /* to subnets of that family */
    uint64_t speed;                 /* bytes per second, 0: unknown */
    uint32_t frame_most; /* bytes of the largest frame that passes, Ethernet header included */
    int numa_node;
    bool sends_segments; /* payload goes out of the user's memory without a copy */
    bool has_interrupts; /* a sleeper can be woken */
    bool is_up;          /* link */
    bool is_refused;     /* of memif: the process that listens at its socket takes no connection */
};

/* ---- process ---- */

struct sl_dpdk_port_settings {
    const char *list;    /* SLUICE_DPDK_PORTS; dpdk/port/ports.h has its syntax */
    const char *inject;  /* faults on what ports receive, for tests: inject.h; NULL or "": none */
    uint32_t memory_mib; /* that EAL may take; 0: 64 a port, and at least 256 */
    uint32_t mtu;      /* bytes of the largest IP packet, where the list says none; 0: the port's */
    uint16_t udp_port; /* destination port of what comes; 0: SL_DPDK_UDP_PORT */
    int rank;          /* %r in the list; negative: not known */
    int local_rank;    /* %l in it, and this rank's place in a mesh; negative: not known */
    int local_count;   /* ranks of this host, for a mesh; 0: not known */
};
#define SL_DPDK_UDP_PORT 47809

/* Is the list well formed? %l and %r may be anything. -EINVAL with a sentence. Pure. */
int sl_dpdk_ports_check(const char *list);

/* Starts EAL at the first call, on a thread of its own so that the caller's affinity stays, with no
 * more than is asked for; one that the program has started is used as it is. Opens the ports that
 * the list names, or finds those that are open by name: their settings stay. -ENODEV, -EINVAL,
 * -ENOTSUP, -ENOMEM with a sentence. A port is closed by its last put. EAL stays as long as the
 * process; it is not there in a child of fork(), which must not call anything here. */
int sl_dpdk_ports_get(const struct sl_dpdk_port_settings *settings, struct sl_dpdk_port **out,
                      size_t cap, size_t *count);
void sl_dpdk_ports_put(struct sl_dpdk_port **ports, size_t count);
void sl_dpdk_port_info(const struct sl_dpdk_port *port, struct sl_dpdk_port_info *out);

struct sl_dpdk_port_stats {
    uint64_t received, received_bytes; /* packets of flows of this process */
    uint64_t sent, sent_bytes;         /* that the driver took */
    uint64_t foreign;                  /* received, and not for us */
    uint64_t damaged;                  /* for us, with a wrong UDP checksum: of IPv6 alone */
    uint64_t unknown;                  /* for us, and of no flow that is there */
    uint64_t inbox_full;               /* lost: another engine did not empty its inbox */
    uint64_t split;                    /* frames in several buffers of memif's: link.c */
    uint64_t down_dropped;             /* thrown away since the link was down */
    uint64_t no_memory;                /* buffers that there were none of, either way */
    uint64_t missed;                   /* that the driver counts as lost before we saw them */
    uint64_t restarts;                 /* of the port, to find its peer */
    uint64_t injected;                 /* packets that the injector changed */
};
void sl_dpdk_port_stats(struct sl_dpdk_port *port, struct sl_dpdk_port_stats *out);

/* ---- one engine's use of ports ---- */

/* A packet of the user's flow came; bytes from the UDP payload on, borrowed. From
 * sl_dpdk_user_poll() only. */
typedef void (*sl_dpdk_packet_fn)(void *arg, struct sl_dpdk_port *port, uint32_t flow,
                                  const void *bytes, size_t len, bool is_marked);
/* Payload of a packet that sl_dpdk_send() kept is not read any more; cookie is what was given. From
 * sl_dpdk_user_poll() and sl_dpdk_user_close() only. */
typedef void (*sl_dpdk_sent_fn)(void *arg, uint64_t cookie);

/* A user is its engine's: one thread at a time calls anything with it. */
int sl_dpdk_user_open(sl_dpdk_packet_fn packet, sl_dpdk_sent_fn sent, void *arg,
                      struct sl_dpdk_user **out);
/* Before the ports are put. What is collected is thrown away; all kept payload is told by then. */
void sl_dpdk_user_close(struct sl_dpdk_user *user);
/* A flow number of this process for that user, on all of its ports; never 0, and not one that was
 * in use a short while ago. -ENOMEM. */
int sl_dpdk_flow_number(struct sl_dpdk_user *user, uint32_t *out);
/* Nothing of it is handed over any more, not even what an inbox holds. */
void sl_dpdk_flow_forget(struct sl_dpdk_user *user, uint32_t number);

/* Takes what came on the port, up to budget frames; hands over this user's packets. How many
 * packets came for any user: frames of strangers and for everybody keep no sleeper awake, unless
 * there are so many that the port may have more (then at least 1). Does not wait when another
 * user polls it: then only the inbox is emptied. */
unsigned sl_dpdk_user_poll(struct sl_dpdk_user *user, struct sl_dpdk_port *port, unsigned budget);

/* Bytes of headers around a UDP payload: Ethernet, IP, UDP. */
#define SL_DPDK_WAY_BYTES 42
#define SL_DPDK_WAY6_BYTES 62

/* What all packets to one peer's port by one route share: made once, up to 62 bytes of headers. */
struct sl_dpdk_way {
    uint8_t head[SL_DPDK_WAY6_BYTES]; /* Ethernet, IPv4 or IPv6 (ECT(0)), UDP */
    bool is_ip6;
    uint16_t pseudo; /* of IPv6: the sum over addresses and protocol, which UDP's checksum has */
};
/* Over IPv4 where both have that, else over IPv6: give one address of the peer's alone where it
 * matters. -EAGAIN: the neighbour's MAC is not known yet, and is asked for. */
int sl_dpdk_way_make(struct sl_dpdk_port *port, const struct sl_dpdk_address *peer,
                     uint16_t source_port, uint8_t traffic_class, struct sl_dpdk_way *out);
/* The flow label of what goes by it, 20 bits: IPv6 has one beside the source port. Those who choose
 * among equal links by addresses and label alone (RFC 6438) see routes apart by it. */
static inline void sl_dpdk_way_label(struct sl_dpdk_way *way, uint32_t label)
{
    if (!way->is_ip6)
        return;
    way->head[15] = (uint8_t)((way->head[15] & 0xf0) | (label >> 16 & 0xf));
    way->head[16] = (uint8_t)(label >> 8);
    way->head[17] = (uint8_t)label;
}

/* Collects a packet: head, then payload, then tail. 0: taken, and copied. 1: taken, payload is read
 * until sent(cookie) (zero-copy, only if may_keep). -EAGAIN: full. Leaves with the next flush, or
 * when a burst is full. */
int sl_dpdk_send(struct sl_dpdk_user *user, struct sl_dpdk_port *port,
                 const struct sl_dpdk_way *way, const void *head, size_t head_len,
                 const void *payload, size_t len, const uint32_t *tail, bool may_keep,
                 uint64_t cookie);
/* How many packets the port took now. Never spins: what it does not take stays collected. While the
 * link is down they are lost, as on a wire that was cut. */
unsigned sl_dpdk_flush(struct sl_dpdk_user *user, struct sl_dpdk_port *port);
/* Throws away what is collected: its kept payload is told by the next poll. For a flow that ends
 * while its packets wait for a port that takes none. */
void sl_dpdk_drop(struct sl_dpdk_user *user, struct sl_dpdk_port *port);

/* Readable when packets come while the port is armed; -1: the driver has no interrupts. */
int sl_dpdk_port_fd(struct sl_dpdk_port *port);
/* Poll once more after it: what came before does not wake. -ENOTSUP: no interrupts. */
int sl_dpdk_port_arm(struct sl_dpdk_port *port);
void sl_dpdk_port_disarm(struct sl_dpdk_port *port);

#endif
