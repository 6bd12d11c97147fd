/* SPDX-License-Identifier: Apache-2.0 */
/* Encodes and decodes hello, answer and frame headers; little endian, no structs on the wire. */
#include "tcp/frame.h"

#include "core/crc.h"
#include "core/err.h"
#include "core/transport.h"

#include <string.h>

#define HELLO_MAGIC UINT32_C(0x48544c53)  /* "SLTH" */
#define ANSWER_MAGIC UINT32_C(0x41544c53) /* "SLTA" */
#define FRAME_MAGIC UINT16_C(0x4653)      /* "SF" */
#define FLAG_CRC 1u
#define FLAG_TLS 2u /* of a hello */
#define FLAG_KNOCK 4u

/* Numbers travel as they lie in memory: meson.build takes little-endian machines alone. */
static inline void put(uint8_t *p, uint64_t value, size_t bytes)
{
    memcpy(p, &value, bytes);
}

static inline uint64_t get(const uint8_t *p, size_t bytes)
{
    uint64_t value = 0;

    memcpy(&value, p, bytes);
    return value;
}

void sl_tcp_hello_encode(const struct sl_tcp_hello *hello, uint8_t out[SL_TCP_HELLO_BYTES])
{
    memset(out, 0, SL_TCP_HELLO_BYTES);
    put(out, HELLO_MAGIC, 4);
    put(out + 4, hello->version, 2);
    put(out + 6, SL_TCP_HELLO_BYTES, 2);
    out[8] = hello->conn_idx;
    out[9] = hello->conn_count;
    out[10] = (uint8_t)((hello->crc ? FLAG_CRC : 0) | (hello->tls ? FLAG_TLS : 0) |
                        (hello->knocks ? FLAG_KNOCK : 0));
    put(out + 12, (uint32_t)hello->rank, 4);
    memcpy(out + 16, hello->to, SL_TCP_NAME_BYTES);
    memcpy(out + 32, hello->nonce, SL_TCP_NONCE_BYTES);
    put(out + 48, hello->attempt, 4);
    put(out + 60, sl_crc32c(0, out, 60), 4);
}

int sl_tcp_hello_decode(const uint8_t in[SL_TCP_HELLO_BYTES], struct sl_tcp_hello *out)
{
    struct sl_tcp_hello hello = {.version = (uint16_t)get(in + 4, 2)};

    if (get(in, 4) != HELLO_MAGIC)
        return sl_fail(-EBADMSG,
                       "it does not speak Sluice's tcp protocol (first bytes %02x %02x %02x %02x)",
                       in[0], in[1], in[2], in[3]);
    if (hello.version != SL_TCP_WIRE_VERSION) {
        out->version = hello.version;
        return sl_fail(-EPROTO, "it speaks wire version %u, this side %u", hello.version,
                       SL_TCP_WIRE_VERSION);
    }
    if (get(in + 6, 2) != SL_TCP_HELLO_BYTES || get(in + 60, 4) != sl_crc32c(0, in, 60))
        return sl_fail(-EBADMSG, "its hello is damaged");
    hello.conn_idx = in[8];
    hello.conn_count = in[9];
    hello.crc = (in[10] & FLAG_CRC) != 0;
    hello.tls = (in[10] & FLAG_TLS) != 0;
    hello.knocks = (in[10] & FLAG_KNOCK) != 0;
    hello.attempt = (uint32_t)get(in + 48, 4);
    hello.rank = (int32_t)get(in + 12, 4);
    memcpy(hello.to, in + 16, SL_TCP_NAME_BYTES);
    memcpy(hello.nonce, in + 32, SL_TCP_NONCE_BYTES);
    if (hello.conn_count > SL_TCP_DATA_CONNS_MAX || hello.conn_idx > hello.conn_count)
        return sl_fail(-EBADMSG, "its hello names connection %u of %u", hello.conn_idx,
                       hello.conn_count);
    *out = hello;
    return 0;
}

void sl_tcp_answer_encode(const struct sl_tcp_answer *answer, uint8_t out[SL_TCP_ANSWER_BYTES])
{
    memset(out, 0, SL_TCP_ANSWER_BYTES);
    put(out, ANSWER_MAGIC, 4);
    put(out + 4, answer->version, 2);
    out[6] = answer->verdict;
    put(out + 8, (uint32_t)answer->rank, 4);
    put(out + 20, sl_crc32c(0, out, 20), 4);
}

int sl_tcp_answer_decode(const uint8_t in[SL_TCP_ANSWER_BYTES], struct sl_tcp_answer *out)
{
    if (get(in, 4) != ANSWER_MAGIC || get(in + 20, 4) != sl_crc32c(0, in, 20) ||
        in[6] > SL_TCP_NOBODY)
        return sl_fail(-EBADMSG, "the answer to our hello is not one of Sluice's");
    out->version = (uint16_t)get(in + 4, 2);
    out->verdict = in[6];
    out->rank = (int32_t)get(in + 8, 4);
    return 0;
}

void sl_tcp_frame_encode(const struct sl_tcp_frame *frame, bool crc,
                         uint8_t out[SL_TCP_FRAME_BYTES])
{
    put(out, FRAME_MAGIC, 2);
    out[2] = frame->type;
    out[3] = crc ? FLAG_CRC : 0;
    put(out + 4, frame->len, 4);
    put(out + 8, frame->seq, 4);
    put(out + 12, frame->channel, 4);
    put(out + 16, frame->tag, 8);
    put(out + 24, frame->total, 8);
    put(out + 32, frame->off, 8);
    put(out + 40, crc ? frame->crc : 0, 4);
    put(out + 44, crc ? sl_crc32c(0, out, 44) : 0, 4);
}

int sl_tcp_frame_decode(const uint8_t in[SL_TCP_FRAME_BYTES], bool crc, struct sl_tcp_frame *out)
{
    struct sl_tcp_frame frame = {.type = in[2],
                                 .len = (uint32_t)get(in + 4, 4),
                                 .seq = (uint32_t)get(in + 8, 4),
                                 .channel = (uint32_t)get(in + 12, 4),
                                 .tag = get(in + 16, 8),
                                 .total = get(in + 24, 8),
                                 .off = get(in + 32, 8),
                                 .crc = (uint32_t)get(in + 40, 4)};

    if (get(in, 2) != FRAME_MAGIC)
        return sl_fail(-EBADMSG, "a frame starts with %02x %02x instead of its magic number", in[0],
                       in[1]);
    if (in[3] != (crc ? FLAG_CRC : 0))
        return sl_fail(-EBADMSG, "a frame has flags 0x%x on a connection with crc %s", in[3],
                       crc ? "on" : "off");
    if (crc && get(in + 44, 4) != sl_crc32c(0, in, 44))
        return sl_fail(-EBADMSG,
                       "the CRC32C of a frame's header is wrong: bytes were damaged on the way");
    switch (frame.type) {
    case SL_TCP_DATA:
        if (frame.len > SL_TCP_PIECE_MAX || frame.total > SL_TCP_MESSAGE_MAX ||
            frame.off > frame.total || frame.len > frame.total - frame.off ||
            (frame.len == 0 && frame.total != 0))
            return sl_fail(-EBADMSG, "a frame claims bytes %llu to %llu of a message of %llu",
                           (unsigned long long)frame.off,
                           (unsigned long long)(frame.off + frame.len),
                           (unsigned long long)frame.total);
        break;
    case SL_TCP_CTRL:
        if (frame.len > SL_CTRL_ROOM)
            return sl_fail(-EBADMSG, "a control message claims %u bytes, the limit is %d",
                           frame.len, SL_CTRL_ROOM);
        break;
    case SL_TCP_BYE:
        if (frame.len != 0)
            return sl_fail(-EBADMSG, "a farewell claims %u bytes", frame.len);
        break;
    case SL_TCP_CLOSE:
        if (frame.len != 0 || frame.channel == 0 || frame.total > SL_TCP_MESSAGE_MAX ||
            (frame.tag == 0 && frame.total != 0))
            return sl_fail(
                -EBADMSG,
                "the end of channel %u claims %u bytes, after %llu messages, the last of %llu",
                frame.channel, frame.len, (unsigned long long)frame.tag,
                (unsigned long long)frame.total);
        break;
    default: return sl_fail(-EBADMSG, "a frame has the unknown type %u", frame.type);
    }
    *out = frame;
    return 0;
}
