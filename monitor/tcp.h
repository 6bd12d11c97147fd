/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TCP connections of this host, as the kernel lists them (inet_diag), and what two lists say.
 *
 *     sl_mon_tcp_begin() --> sl_mon_tcp_flow() of each --> sl_mon_tcp_end(): samples
 *
 * Connections to one address over one interface are a peer, "eth0 to 10.0.0.2"; it becomes a
 * subject once it was sent SL_MON_TCP_SUBJECT bytes in a second. Who is to blame is told apart by
 * what the sender's kernel waits for: acknowledgements that do not come (nothing arrives), holes in
 * them (loss), a window that is closed (the receiver), or nothing at all (this host). No I/O.
 */
#ifndef SL_MONITOR_TCP_H
#define SL_MONITOR_TCP_H

#include "monitor/engine.h"

#define SL_MON_TCP_FLOWS_MAX 8192 /* connections that are compared; more are left out */
#define SL_MON_TCP_PEERS_MAX 512
#define SL_MON_TCP_NETIFS_MAX 64
#define SL_MON_TCP_SUBJECT (1u << 20)

struct nlmsghdr;

/* One connection, of one message. Times in µs, counts since it began. */
struct sl_mon_tcp_flow {
    uint64_t cookie;           /* the socket's, never used again */
    uint8_t local[16];         /* IPv6, or IPv4 in it (::ffff:10.0.0.2) */
    uint8_t remote[16];        /* the same */
    uint16_t ports[2];         /* local, remote */
    bool in_loss, has_rtos;    /* it waits after a timeout; rtos is known (Linux 6.7) */
    uint8_t backoff;           /* timeouts in a row */
    uint32_t rtt, unacked;     /* unacked: segments */
    uint32_t window;           /* what the receiver takes, bytes; UINT32_MAX: not known */
    uint32_t segments, again;  /* with data; sent again */
    uint32_t twice;            /* the receiver had it already (DSACK) */
    uint32_t rtos;             /* timeouts */
    uint64_t acked;            /* bytes */
    uint64_t busy, closed_for; /* had something to send; and the receiver's window was closed */
};

/* False: it is no connection, or says too little of it. */
bool sl_mon_tcp_parse(const struct nlmsghdr *message, size_t len, struct sl_mon_tcp_flow *out);
/* An address of this host: RTM_NEWADDR. */
bool sl_mon_tcp_parse_own(const struct nlmsghdr *message, size_t len, uint8_t address[16],
                          unsigned *ifindex);
/* "10.0.0.2", "fe80::1". */
void sl_mon_tcp_address(const uint8_t address[16], char *out, size_t cap);

/*
 * Counters of the whole host (of a network namespace): /proc/net/snmp and /proc/net/netstat.
 *
 * X(id, protocol, its name there, kind in sluice_tcp_events_total)
 */
#define SL_MON_TCP_COUNTERS(X)                                                                     \
    X(IN, "Tcp", "InSegs", "received")                                                             \
    X(OUT, "Tcp", "OutSegs", "sent")                                                               \
    X(AGAIN, "Tcp", "RetransSegs", "sent_again")                                                   \
    X(DAMAGED, "Tcp", "InCsumErrors", "damaged")                                                   \
    X(TIMEOUTS, "TcpExt", "TCPTimeouts", "timeout")                                                \
    X(SACK_RECOVERY, "TcpExt", "TCPSackRecovery", "recovery")                                      \
    X(RENO_RECOVERY, "TcpExt", "TCPRenoRecovery", "recovery_without_sack")                         \
    X(AGAIN_BY_RECOVERY, "TcpExt", "TCPFastRetrans", "sent_again_by_recovery")                     \
    X(AGAIN_BY_TIMEOUT, "TcpExt", "TCPSlowStartRetrans", "sent_again_after_timeout")               \
    X(LOST_AGAIN, "TcpExt", "TCPLostRetransmit", "lost_again")                                     \
    X(TWICE, "TcpExt", "TCPDSACKRecv", "spurious")                                                 \
    X(REORDERED, "TcpExt", "TCPSACKReorder", "reordered")                                          \
    X(CLOSED, "TcpExt", "TCPToZeroWindowAdv", "window_closed")                                     \
    X(QUEUE_DROPS, "TcpExt", "TCPRcvQDrop", "receive_queue_drop")                                  \
    X(BACKLOG_DROPS, "TcpExt", "TCPBacklogDrop", "backlog_drop")                                   \
    X(LISTEN_DROPS, "TcpExt", "ListenDrops", "listen_drop")                                        \
    X(MEMORY, "TcpExt", "TCPAbortOnMemory", "abort_on_memory")

enum sl_mon_tcp_counter {
#define X(id, ...) SL_MON_TCP_##id,
    SL_MON_TCP_COUNTERS(X)
#undef X
        SL_MON_TCP_COUNTER_COUNT
};

struct sl_mon_tcp_counters {
    uint32_t has; /* a bit each */
    uint64_t values[SL_MON_TCP_COUNTER_COUNT];
};

const char *sl_mon_tcp_counter_kind(enum sl_mon_tcp_counter counter);
/* Adds what one of the two files says; text ends. */
void sl_mon_tcp_read_counters(const char *text, struct sl_mon_tcp_counters *io);

struct sl_mon_tcp;

int sl_mon_tcp_create(struct sl_mon *mon, struct sl_mon_tcp **out);
void sl_mon_tcp_destroy(struct sl_mon_tcp *tcp);

/* A list begins, at the monitor's time. */
void sl_mon_tcp_begin(struct sl_mon_tcp *tcp);
/* netif: over which it goes; those to this host itself are not to be given. */
void sl_mon_tcp_flow(struct sl_mon_tcp *tcp, const char *netif, const struct sl_mon_tcp_flow *flow);
void sl_mon_tcp_end(struct sl_mon_tcp *tcp, const struct sl_mon_tcp_counters *host);

uint64_t sl_mon_tcp_left_out(const struct sl_mon_tcp *tcp); /* connections and peers, in all */
unsigned sl_mon_tcp_flows(const struct sl_mon_tcp *tcp);    /* of the latest list */

/* What the latest two lists say of one peer, per second. */
struct sl_mon_tcp_view {
    const char *name;
    unsigned flows;
    double acked_bytes, again, twice, best_bytes;
    uint32_t rtt_us;
};
/* False: there is no such place. Those that are no subject yet have no name (""). */
bool sl_mon_tcp_view(const struct sl_mon_tcp *tcp, unsigned i, struct sl_mon_tcp_view *out);
/* Since it was made. */
const uint64_t *sl_mon_tcp_totals(const struct sl_mon_tcp *tcp);

#endif
