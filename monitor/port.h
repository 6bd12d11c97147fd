/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A network or RDMA port: what its readings say.
 *
 * A reading is what sysfs, netlink or an event told at one time; two of them make samples. Counters
 * only say something by their difference, over the time and the traffic between. One that went
 * back was reset, or wrapped: what is not certain is no evidence.
 */
#ifndef SL_MONITOR_PORT_H
#define SL_MONITOR_PORT_H

#include "monitor/engine.h"

/*
 * X(id, name below counters/ or hw_counters/, also known as, bits after which it wraps, class in
 * sluice_port_errors_total; "" where it is none)
 *
 * Names: InfiniBand's port counters (IBTA 16.1.3.5), mlx5's hw_counters, and soft-RoCE's.
 */
#define SL_MON_COUNTERS(X)                                                                         \
    X(TRANSMIT_WORDS, "port_xmit_data", "", 64, "")                                                \
    X(RECEIVE_WORDS, "port_rcv_data", "", 64, "")                                                  \
    X(TRANSMIT_PACKETS, "port_xmit_packets", "sent_pkts", 64, "")                                  \
    X(RECEIVE_PACKETS, "port_rcv_packets", "rcvd_pkts", 64, "")                                    \
    X(TRANSMIT_WAIT, "port_xmit_wait", "", 64, "")                                                 \
    X(LINK_DOWNED, "link_downed", "", 64, "")                                                      \
    X(SYMBOL, "symbol_error", "", 64, "symbol")                                                    \
    X(RECOVERY, "link_error_recovery", "", 64, "link_recovery")                                    \
    X(INTEGRITY, "local_link_integrity_errors", "", 64, "link_integrity")                          \
    X(OVERRUN, "excessive_buffer_overrun_errors", "", 64, "buffer_overrun")                        \
    X(RECEIVE_ERRORS, "port_rcv_errors", "", 64, "receive")                                        \
    X(DISCARDS, "port_xmit_discards", "", 64, "transmit_discard")                                  \
    X(ACK_TIMEOUT, "local_ack_timeout_err", "completer_retry_err", 32, "ack_timeout")              \
    X(OUT_OF_SEQUENCE, "out_of_sequence", "out_of_seq_request", 32, "out_of_sequence")             \
    X(PACKET_SEQ, "packet_seq_err", "rcvd_seq_err", 32, "packet_sequence")                         \
    X(IMPLIED_NAK, "implied_nak_seq_err", "", 32, "implied_nak")                                   \
    X(DUPLICATE, "duplicate_request", "duplicate_request", 32, "duplicate")                        \
    X(RNR, "rnr_nak_retry_err", "retry_rnr_exceeded_err", 32, "receiver_not_ready")                \
    X(OUT_OF_BUFFER, "out_of_buffer", "send_rnr_err", 32, "out_of_buffer")                         \
    X(ADAPTIVE, "roce_adp_retrans", "", 32, "adaptive_retransmit")                                 \
    X(SLOW_RESTART, "roce_slow_restart", "", 32, "slow_restart")                                   \
    X(CNP_SENT, "np_cnp_sent", "", 32, "cnp_sent")                                                 \
    X(CNP_HANDLED, "rp_cnp_handled", "", 32, "cnp_handled")                                        \
    X(ECN, "np_ecn_marked_roce_packets", "", 32, "ecn_marked")                                     \
    X(CQE_ERRORS, "req_cqe_error", "", 32, "request_error")                                        \
    X(ICRC, "rx_icrc_encapsulated", "", 32, "icrc")

enum sl_mon_counter {
#define X(id, ...) SL_MON_COUNTER_##id,
    SL_MON_COUNTERS(X)
#undef X
        SL_MON_COUNTER_COUNT
};

struct sl_mon_counter_row {
    const char *name, *alias, *kind;
    unsigned bits;
};

extern const struct sl_mon_counter_row sl_mon_counters[SL_MON_COUNTER_COUNT];

struct sl_mon_reading {
    uint64_t has; /* counters that were read, a bit each */
    uint64_t counters[SL_MON_COUNTER_COUNT];
    bool has_state, is_up;
    uint64_t speed; /* bits a second; 0: not known */
    uint32_t downs; /* times that the carrier went; has_downs */
    bool has_downs;
    uint64_t sent, received; /* bytes, of a network interface; has_bytes */
    bool has_bytes;
};

#define SL_MON_FLAP_BUCKETS 6

/* What is remembered of a port between readings. */
struct sl_mon_port {
    struct sl_mon_subject *subject; /* borrowed */
    struct sl_mon_reading last;
    uint64_t last_ns;                      /* 0: there was none */
    uint64_t best_speed;                   /* so far; a source may set what it knows of before */
    uint32_t clears;                       /* of its subject, up to the last reading */
    double hourly[SL_MON_COUNTER_COUNT];   /* increments; those of an hour ago count 1/e */
    uint64_t totals[SL_MON_COUNTER_COUNT]; /* increments since the agent began */
    uint64_t sent, received;               /* bytes */
    uint64_t flaps, resets;
    uint64_t flaps_lasted[SL_MON_FLAP_BUCKETS]; /* up to 10 ms, 100 ms, 1 s, 10 s, 1 min, more */
    uint64_t flapped_ns;                        /* all of these together */
};

void sl_mon_port_init(struct sl_mon_port *port, struct sl_mon_subject *subject);

/* One more reading, at the monitor's time: gives its samples. */
void sl_mon_port_read(struct sl_mon *mon, struct sl_mon_port *port, const char *source,
                      const struct sl_mon_reading *reading);

/* The link went down and is back: told by an event, for how long if that is known (else 0). */
void sl_mon_port_flapped(struct sl_mon *mon, struct sl_mon_port *port, const char *source,
                         uint32_t times, uint64_t down_ns);

/* How far a counter went from one reading to the next. False: it was reset, or nobody can tell. */
bool sl_mon_counter_delta(enum sl_mon_counter counter, uint64_t before, uint64_t after,
                          uint64_t *out);

#endif
