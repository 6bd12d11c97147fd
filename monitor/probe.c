/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/probe.h"

#include "monitor/probe_bytes.h"

#include "core/err.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC "SLPB"
#define VERSION 1
#define SIGNED 96 /* bytes that the proof is of */
#define PROOF 16

/* ---- packets ---- */

int sl_probe_key(const char *secret, size_t len, uint8_t out[SL_DIGEST_BYTES])
{
    return sl_key_derive(secret, len, "", 0, "probes of node agents", out);
}

static int prove(const uint8_t *bytes, size_t len, const uint8_t *key, uint8_t out[SL_DIGEST_BYTES])
{
    const struct sl_part parts[] = {{.bytes = bytes, .len = SIGNED},
                                    {.bytes = bytes + SL_PROBE_LEAST, .len = len - SL_PROBE_LEAST}};
    bool has_body = bytes[5] == SL_PROBE_FIND || bytes[5] == SL_PROBE_FOUND;

    return sl_hmac(key, SL_DIGEST_BYTES, parts, has_body ? 2 : 1, out);
}

int sl_probe_write(const struct sl_probe_packet *packet, const uint8_t key[SL_DIGEST_BYTES],
                   uint8_t *out)
{
    return sl_probe_write_body(packet, NULL, 0, key, out);
}

int sl_probe_write_body(const struct sl_probe_packet *packet, const void *body, size_t body_len,
                        const uint8_t key[SL_DIGEST_BYTES], uint8_t *out)
{
    uint8_t proof[SL_DIGEST_BYTES];
    int err;

    sl_assert(packet->len >= SL_PROBE_LEAST && packet->len <= SL_PROBE_MOST);
    sl_assert(body_len <= packet->len - SL_PROBE_LEAST);
    memset(out, 0, packet->len);
    memcpy(out, MAGIC, 4);
    out[4] = VERSION;
    out[5] = (uint8_t)packet->kind;
    sl_probe_put(out + 6, packet->len, 2);
    sl_probe_put(out + 8, packet->session, 8);
    sl_probe_put(out + 16, packet->number, 4);
    sl_probe_put(out + 20, packet->seen, 4);
    sl_probe_put(out + 24, packet->sent_ns, 8);
    sl_probe_put(out + 32, packet->came_ns, 8);
    sl_probe_put(out + 40, packet->answered_ns, 8);
    memcpy(out + 48, packet->host, strnlen(packet->host, SL_PROBE_HOST - 1));
    if (body_len > 0)
        memcpy(out + SL_PROBE_LEAST, body, body_len);
    err = prove(out, packet->len, key, proof);
    memcpy(out + SIGNED, proof, PROOF);
    return err;
}

int sl_probe_read(const uint8_t *bytes, size_t len, const uint8_t key[SL_DIGEST_BYTES],
                  struct sl_probe_packet *out)
{
    uint8_t proof[SL_DIGEST_BYTES];

    if (len < SL_PROBE_LEAST || len > SL_PROBE_MOST || memcmp(bytes, MAGIC, 4) != 0 ||
        bytes[4] != VERSION || bytes[5] < SL_PROBE_ASK || bytes[5] > SL_PROBE_FOUND ||
        sl_probe_take(bytes + 6, 2) != len || !sl_probe_is_text(bytes + 48, SL_PROBE_HOST, 0, '!'))
        return -EBADMSG;
    if (prove(bytes, len, key, proof) != 0 || !sl_digest_equal(proof, bytes + SIGNED, PROOF))
        return -EBADMSG;
    *out = (struct sl_probe_packet){.kind = (enum sl_probe_kind)bytes[5],
                                    .len = (uint32_t)len,
                                    .session = sl_probe_take(bytes + 8, 8),
                                    .number = (uint32_t)sl_probe_take(bytes + 16, 4),
                                    .seen = (uint32_t)sl_probe_take(bytes + 20, 4),
                                    .sent_ns = sl_probe_take(bytes + 24, 8),
                                    .came_ns = sl_probe_take(bytes + 32, 8),
                                    .answered_ns = sl_probe_take(bytes + 40, 8)};
    memcpy(out->host, bytes + 48, SL_PROBE_HOST);
    return 0;
}

/* ---- how many are answered ---- */

#define PACKET UINT64_C(1000000000)

void sl_probe_bucket_init(struct sl_probe_bucket *bucket, uint64_t rate, uint64_t now_ns)
{
    *bucket = (struct sl_probe_bucket){.rate = rate, .at_ns = now_ns};
    bucket->filled = (rate / 4 + 1) * PACKET;
}

bool sl_probe_bucket_take(struct sl_probe_bucket *bucket, uint64_t now_ns)
{
    uint64_t most = (bucket->rate / 4 + 1) * PACKET;
    uint64_t passed = now_ns > bucket->at_ns ? now_ns - bucket->at_ns : 0;

    bucket->filled += (passed < PACKET ? passed : PACKET) * bucket->rate;
    bucket->filled = bucket->filled < most ? bucket->filled : most;
    bucket->at_ns = now_ns;
    if (bucket->filled < PACKET)
        return false;
    bucket->filled -= PACKET;
    return true;
}

uint32_t sl_probe_seen(struct sl_probe_sessions *sessions, uint64_t session, uint64_t now_ns)
{
    unsigned oldest = 0;

    for (unsigned i = 0; i < SL_PROBE_SESSIONS; i++) {
        if (sessions->list[i].at_ns != 0 && sessions->list[i].session == session) {
            sessions->list[i].at_ns = now_ns;
            return ++sessions->list[i].seen;
        }
        if (sessions->list[i].at_ns < sessions->list[oldest].at_ns)
            oldest = i;
    }
    sessions->list[oldest].session = session;
    sessions->list[oldest].at_ns = now_ns;
    sessions->list[oldest].seen = 1;
    return 1;
}

/* ---- what follows ---- */

static int compare(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;

    return (a > b) - (a < b);
}

/* base: what is taken off each; INT64_MIN: the least. */
static void spread(int64_t *values, uint32_t count, bool is_above_least,
                   struct sl_probe_spread *out)
{
    double sum = 0;
    int64_t base;

    if (count == 0)
        return;
    qsort(values, count, sizeof(*values), compare);
    base = is_above_least ? values[0] : 0;
    for (uint32_t i = 0; i < count; i++)
        sum += (double)(values[i] - base);
    *out = (struct sl_probe_spread){.least_ns = values[0] - base,
                                    .mean_ns = (int64_t)(sum / count),
                                    .p50_ns = values[count / 2] - base,
                                    .p99_ns = values[(uint64_t)count * 99 / 100] - base,
                                    .most_ns = values[count - 1] - base};
}

/* How many of those that were sent up to the last answer came there. */
static void count_lost(const struct sl_probe_time *times, uint32_t sent,
                       struct sl_probe_result *out)
{
    uint32_t last = sent, lost = 0;

    for (uint32_t i = 0; i < sent; i++)
        if (times[i].is_answered)
            last = i;
    if (last == sent)
        return;
    for (uint32_t i = 0; i < last; i++)
        lost += !times[i].is_answered;
    if (times[last].seen <= last)
        out->lost_there = last + 1 - times[last].seen;
    out->lost_there = out->lost_there < lost ? out->lost_there : lost;
    out->lost_back = lost - out->lost_there;
}

int sl_probe_judge(const struct sl_probe_time *times, uint32_t sent, struct sl_probe_result *out)
{
    int64_t *values = calloc((size_t)sent + 1, sizeof(*values));
    struct sl_probe_spread *spreads[] = {&out->rtt, &out->there, &out->back};

    if (values == NULL)
        return sl_fail(-ENOMEM, "no memory for the times of a probe");
    *out = (struct sl_probe_result){.sent = sent};
    for (unsigned which = 0; which < 3; which++) {
        uint32_t count = 0;

        for (uint32_t i = 0; i < sent; i++)
            if (times[i].is_answered)
                values[count++] = which == 0   ? times[i].rtt_ns
                                  : which == 1 ? times[i].there_ns
                                               : times[i].back_ns;
        out->answered = count;
        spread(values, count, which != 0, spreads[which]);
    }
    count_lost(times, sent, out);
    free(values);
    return 0;
}
