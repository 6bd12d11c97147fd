/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An active probe between two agents: packets that one sends and the other sends back, with the
 * times at which each left and came, and what follows from them. Pure: bytes and numbers.
 *
 * A packet says under a secret that all agents share who made it: nobody else is answered. An
 * answer is as long as what it answers, so nobody gains by sending in another's name.
 *
 *     0 "SLPB"   4 version 1   5 kind   6 length of it all   8 session   16 number   20 seen
 *     24 sent   32 came   40 answered   48 host of who answers   96 proof   112 zeros, or a body
 *
 * Numbers are big-endian; times are ns of CLOCK_REALTIME of whoever took them. FIND and FOUND are
 * about where probes over RDMA go (probe_list.h): the proof is of their bodies, too.
 */
#ifndef SL_MONITOR_PROBE_H
#define SL_MONITOR_PROBE_H

#include "core/secret.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SL_PROBE_LEAST 112u /* bytes of a packet */
#define SL_PROBE_MOST 8972u /* what a packet of 9,000 bytes holds */
#define SL_PROBE_HOST 48
#define SL_PROBE_COUNT_MAX 10000u /* packets of a probe */

enum sl_probe_kind { SL_PROBE_ASK = 1, SL_PROBE_ANSWER = 2, SL_PROBE_FIND = 3, SL_PROBE_FOUND = 4 };

struct sl_probe_packet {
    enum sl_probe_kind kind;
    uint32_t len;
    uint64_t session;
    uint32_t number;
    uint32_t seen; /* answer: packets of that session that came so far, with this one */
    uint64_t sent_ns, came_ns, answered_ns;
    char host[SL_PROBE_HOST];
};

/* The key of all packets. secret: a text. -ENOMEM. */
int sl_probe_key(const char *secret, size_t len, uint8_t out[SL_DIGEST_BYTES]);
/* Into packet->len bytes. -ENOMEM: its proof could not be made. */
int sl_probe_write(const struct sl_probe_packet *packet, const uint8_t key[SL_DIGEST_BYTES],
                   uint8_t *out);
/* The same with bytes after the head; body_len is at most packet->len - SL_PROBE_LEAST. Only the
 * body of FIND and FOUND is proved. */
int sl_probe_write_body(const struct sl_probe_packet *packet, const void *body, size_t body_len,
                        const uint8_t key[SL_DIGEST_BYTES], uint8_t *out);
/* -EBADMSG: it is none of ours. Sets no error's sentence, as anybody may send anything. */
int sl_probe_read(const uint8_t *bytes, size_t len, const uint8_t key[SL_DIGEST_BYTES],
                  struct sl_probe_packet *out);

/* ---- how many are answered ---- */

/* What may be answered within a second, at once a quarter of that. */
struct sl_probe_bucket {
    uint64_t rate; /* a second */
    uint64_t at_ns;
    uint64_t filled; /* in packets times 1e9 */
};

void sl_probe_bucket_init(struct sl_probe_bucket *bucket, uint64_t rate, uint64_t now_ns);
bool sl_probe_bucket_take(struct sl_probe_bucket *bucket, uint64_t now_ns);

/* How many packets of a session came; the sessions that were heard of last. */
#define SL_PROBE_SESSIONS 64

struct sl_probe_sessions {
    struct {
        uint64_t session, at_ns;
        uint32_t seen;
    } list[SL_PROBE_SESSIONS];
};

uint32_t sl_probe_seen(struct sl_probe_sessions *sessions, uint64_t session, uint64_t now_ns);

/* ---- what follows ---- */

/* Of one packet, by its number. */
struct sl_probe_time {
    int64_t rtt_ns;   /* without the time in the other agent */
    int64_t there_ns; /* its clock's arrival against this one's departure: offset and delay */
    int64_t back_ns;  /* and of the answer */
    uint32_t seen;    /* as the answer said */
    bool is_answered;
};

struct sl_probe_spread {
    int64_t least_ns, mean_ns, p50_ns, p99_ns, most_ns;
};

struct sl_probe_result {
    uint32_t sent, answered;
    uint32_t lost_there, lost_back; /* those after the last answer are in neither */
    struct sl_probe_spread rtt;
    struct sl_probe_spread there, back; /* above the least: what queues on the way add */
};

/* times[0..sent) is sorted about. -ENOMEM. */
int sl_probe_judge(const struct sl_probe_time *times, uint32_t sent, struct sl_probe_result *out);

#endif
