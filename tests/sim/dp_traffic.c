/* SPDX-License-Identifier: Apache-2.0 */
/* Messages whose bytes are known, and what becomes of them. */
#include "tests/sim/dp_traffic.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATTERN (UINT32_C(1) << 20)
#define MESSAGE_MOST (UINT32_C(4) << 20)
#define SLICE_NS UINT64_C(20000)

static uint8_t pattern[PATTERN + MESSAGE_MOST];
static uint8_t scratch[MESSAGE_MOST];

static const uint8_t *bytes_of(const struct dp_stream *stream, unsigned idx)
{
    uint32_t hash = (idx + 1) * UINT32_C(2654435761) ^ (uint32_t)stream->from->ends.own_number;

    return pattern + hash % PATTERN;
}

void dp_wrong(struct dp_traffic *traffic, const char *fmt, ...)
{
    va_list args;

    if (traffic->wrong[0] != '\0')
        return;
    va_start(args, fmt);
    vsnprintf(traffic->wrong, sizeof(traffic->wrong), fmt, args);
    va_end(args);
}

static struct dp_stream *stream_of(struct dp_end *from, struct dp_traffic **out)
{
    struct dp_traffic *traffic = from->arg;

    *out = traffic;
    return &traffic->stream[from - traffic->wire->end];
}

/* ---- sending ---- */

void dp_message_size(struct dp_stream *stream, unsigned idx, uint32_t len, bool is_write)
{
    sl_assert(len <= MESSAGE_MOST);
    stream->message[idx].len = len;
    stream->message[idx].is_write = is_write;
    stream->message[idx].base = is_write ? 7919 * idx : 0;
}

static uint32_t imm_of(unsigned idx)
{
    return (uint32_t)idx << 16 | (idx * 31 & 0xffff);
}

void dp_stream_pump(struct dp_stream *stream)
{
    struct dp_end *end = stream->from;

    if (end == NULL || end->is_closed || stream->status != 0 || end->node->is_dead)
        return;
    while (stream->posted < stream->count && stream->posted - stream->retired < stream->depth) {
        struct dp_message *message = &stream->message[stream->posted];
        const uint8_t *bytes = bytes_of(stream, stream->posted);

        if (!stream->is_bulk) {
            message->out = malloc(message->len + 1);
            sl_assert(message->out != NULL);
            bytes = memcpy(message->out, bytes, message->len);
        }
        if (stream->sent_ns != NULL)
            stream->sent_ns[stream->posted] = end->node->wire->now_ns;
        stream->posted++;
        sl_dp_engine_tick(&end->node->engine, end->node->wire->now_ns);
        sl_dp_flow_expect(end->flow, stream->posted % 3 != 0); /* whether it is so or not */
        sl_dp_flow_post(end->flow, message->is_write, imm_of(stream->posted - 1), message->base,
                        bytes, message->len);
        dp_node_wake(end->node);
    }
}

static void on_retired(struct dp_end *end, uint32_t ordinal)
{
    struct dp_traffic *traffic;
    struct dp_stream *stream = stream_of(end, &traffic);

    if (ordinal < stream->retired || ordinal >= stream->posted)
        dp_wrong(traffic, "message %u is retired, of %u..%u", ordinal, stream->retired,
                 stream->posted);
    if (ordinal >= stream->arrived && !stream->is_hostile)
        dp_wrong(traffic, "message %u is retired and has not arrived", ordinal);
    while (stream->retired <= ordinal && stream->retired < stream->posted) {
        struct dp_message *message = &stream->message[stream->retired++];

        if (message->out != NULL)
            memset(message->out, 0xee, message->len);
        free(message->out);
        message->out = NULL;
    }
    dp_stream_pump(stream);
}

/* ---- receiving ---- */

static void *on_place(struct dp_end *end, bool is_write, uint32_t imm, uint32_t off, uint32_t len)
{
    struct dp_traffic *traffic;
    struct dp_stream *stream = stream_of(end->peer, &traffic);
    unsigned idx = stream->arrived + (uint16_t)((imm >> 16) - stream->arrived);
    struct dp_message *message = &stream->message[idx];

    if (idx >= stream->posted || imm != imm_of(idx) || message->is_write != is_write ||
        off < message->base || off - message->base > message->len ||
        len > message->len - (off - message->base)) {
        if (!stream->is_hostile)
            dp_wrong(traffic, "%u bytes at %u of imm 0x%x were placed, message %u has %u", len, off,
                     imm, idx, idx < stream->posted ? message->len : 0);
        return NULL;
    }
    if (stream->is_bulk)
        return scratch;
    if (message->in == NULL) {
        /* The one that is next in order gets a buffer at last, or all would wait for it. */
        if (!is_write && stream->frames_most != 0 &&
            (idx == stream->arrived ? sl_rng_chance(&traffic->wire->rng, 8)
                                    : stream->frames >= stream->frames_most)) {
            stream->laters++;
            return SL_DP_LATER;
        }
        stream->frames += !is_write;
        message->in = malloc(message->len + 1);
        sl_assert(message->in != NULL);
        memset(message->in, 0xdd, message->len);
    }
    return message->in + (off - message->base);
}

static void on_arrived(struct dp_end *end, bool is_write, uint32_t imm, uint32_t len)
{
    struct dp_traffic *traffic;
    struct dp_stream *stream = stream_of(end->peer, &traffic);
    unsigned idx = stream->arrived++;
    struct dp_message *message = &stream->message[idx];

    stream->arrived_bytes += len;
    if (stream->took_ns != NULL)
        stream->took_ns[idx] = traffic->wire->now_ns - stream->sent_ns[idx];
    if (stream->arrived == stream->count)
        stream->done_ns = traffic->wire->now_ns;
    if (stream->is_hostile && (idx >= stream->posted || message->in == NULL))
        return;
    /* Who knows the secret can end a message early, and its rest comes as one more: lengths and
     * immediates are checked by whoever asked for them. */
    stream->is_torn |= stream->is_hostile && len < message->len;
    if (!stream->is_torn && (idx >= stream->posted || imm != imm_of(idx) || len != message->len ||
                             is_write != message->is_write))
        dp_wrong(traffic, "%u bytes of imm 0x%x arrived as message %u of %u", len, imm, idx,
                 stream->posted);
    else if (!stream->is_bulk && !stream->is_hostile &&
             (message->in == NULL || memcmp(message->in, bytes_of(stream, idx), len) != 0))
        dp_wrong(traffic, "message %u of %u bytes arrived with other bytes", idx, len);
    if (message->in != NULL)
        stream->frames -= !is_write;
    free(message->in);
    message->in = NULL;
}

static void on_failed(struct dp_end *end, int status, const char *why)
{
    struct dp_traffic *traffic;
    struct dp_stream *stream = stream_of(end, &traffic);

    if (stream->status != 0)
        dp_wrong(traffic, "a flow failed twice: %s", why);
    stream->status = status;
    stream->failed_ns = traffic->wire->now_ns;
}

const struct dp_user dp_traffic_user = {on_place, on_arrived, on_retired, on_failed};

/* ---- life ---- */

void dp_traffic_init(struct dp_traffic *traffic, struct dp_wire *wire)
{
    struct sl_rng rng;

    memset(traffic, 0, sizeof(*traffic));
    traffic->wire = wire;
    if (pattern[0] == 0) {
        sl_rng_init(&rng, 7);
        for (size_t i = 0; i < sizeof(pattern); i++)
            pattern[i] = (uint8_t)(sl_rng_u64(&rng) | (i == 0));
    }
}

struct dp_stream *dp_stream_add(struct dp_traffic *traffic, struct dp_end *from, unsigned count,
                                unsigned depth)
{
    struct dp_stream *stream = &traffic->stream[from - traffic->wire->end];

    from->arg = from->peer->arg = traffic;
    *stream = (struct dp_stream){.from = from, .to = from->peer, .count = count, .depth = depth};
    /* One in vain: what is forged may name it. */
    stream->message = calloc(count + 65536, sizeof(*stream->message));
    sl_assert(stream->message != NULL);
    return stream;
}

static void free_memory(struct dp_stream *stream, bool is_sender)
{
    for (unsigned i = 0; stream->message != NULL && i < stream->count; i++) {
        uint8_t **bytes = is_sender ? &stream->message[i].out : &stream->message[i].in;

        free(*bytes);
        *bytes = NULL;
    }
}

void dp_traffic_close(struct dp_traffic *traffic, struct dp_end *end)
{
    dp_end_close(end);
    free_memory(&traffic->stream[end - traffic->wire->end], true);
    free_memory(&traffic->stream[end->peer - traffic->wire->end], false);
}

void dp_traffic_fini(struct dp_traffic *traffic)
{
    for (unsigned i = 0; i < DP_ENDS_MAX; i++) {
        struct dp_stream *stream = &traffic->stream[i];

        free_memory(stream, true);
        free_memory(stream, false);
        free(stream->message);
        free(stream->sent_ns);
        free(stream->took_ns);
    }
}

bool dp_stream_done(const struct dp_stream *stream)
{
    return stream->count == stream->retired && stream->arrived == stream->count;
}

bool dp_traffic_run(struct dp_traffic *traffic, uint64_t until_ns)
{
    struct dp_wire *wire = traffic->wire;

    while (wire->now_ns < until_ns && traffic->wrong[0] == '\0') {
        bool is_done = true;

        for (unsigned i = 0; i < wire->ends; i++) {
            struct dp_stream *stream = &traffic->stream[i];

            if (stream->from == NULL)
                continue;
            dp_stream_pump(stream);
            is_done &= dp_stream_done(stream);
        }
        if (is_done)
            return true;
        if (!dp_wire_run(wire, wire->now_ns + SLICE_NS))
            break;
    }
    return false;
}
