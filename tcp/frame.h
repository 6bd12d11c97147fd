/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of the tcp transport: hello, its answer, and frame headers. docs/wire.md draws them.
 * Everything here is pure; decoders take any bytes. */
#ifndef SL_TCP_FRAME_H
#define SL_TCP_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SL_TCP_WIRE_VERSION 4
#define SL_TCP_TOKEN_BYTES 16
#define SL_TCP_HELLO_BYTES 64
#define SL_TCP_ANSWER_BYTES 24
#define SL_TCP_NAME_BYTES 16
#define SL_TCP_NONCE_BYTES 16
#define SL_TCP_PROOF_BYTES 32
/* An answer that welcomes, the listening side's nonce and its proof; then the dialler's proof
 * comes. */
#define SL_TCP_WELCOME_BYTES (SL_TCP_ANSWER_BYTES + SL_TCP_NONCE_BYTES + SL_TCP_PROOF_BYTES)
#define SL_TCP_FRAME_BYTES 48
#define SL_TCP_PIECE_MAX (UINT32_C(1) << 30) /* most payload bytes of one frame */
#define SL_TCP_MESSAGE_MAX (UINT64_C(1) << 48)
#define SL_TCP_DATA_CONNS_MAX 128
#define SL_TCP_CONNS_NONE 255 /* wish of an endpoint that has control messages alone */

/* First words of a dialler on one connection. */
struct sl_tcp_hello {
    uint16_t version;
    uint8_t conn_idx;   /* 0 is the control connection */
    uint8_t conn_count; /* data connections; the control connection comes on top */
    bool crc, tls;
    bool knocks;                   /* asks whether the endpoint is there, and no more */
    int32_t rank;                  /* of the dialler, for log lines; -1 unknown */
    uint8_t to[SL_TCP_NAME_BYTES]; /* the endpoint that is dialled */
    uint8_t nonce[SL_TCP_NONCE_BYTES];
    uint32_t attempt; /* of the dialler to connect the endpoint: data connections belong to one */
};

enum sl_tcp_verdict {
    SL_TCP_WELCOME,
    SL_TCP_WRONG_VERSION,
    SL_TCP_WRONG_SHAPE,
    SL_TCP_NOBODY, /* no such endpoint is here */
};

/* The answer of the accepting side; more follows a welcome. */
struct sl_tcp_answer {
    uint16_t version;
    uint8_t verdict; /* enum sl_tcp_verdict */
    int32_t rank;
};

enum sl_tcp_frame_type {
    SL_TCP_DATA = 1,  /* a piece of a message */
    SL_TCP_CTRL = 2,  /* a control message; on connection 0 only */
    SL_TCP_BYE = 3,   /* the sender destroys its endpoint; on connection 0 only */
    SL_TCP_CLOSE = 4, /* the sender has closed a channel; on connection 0 only */
};

struct sl_tcp_frame {
    uint8_t type;
    uint32_t len; /* payload bytes that follow */
    uint32_t seq; /* which message of the channel in this direction, from 0, without a carry */
    uint32_t channel;
    uint64_t tag; /* CLOSE: how many messages were begun on the channel */
    /* Length of the whole message; CLOSE: bytes that were sent of the last one, 0: all. */
    uint64_t total;
    uint64_t off; /* of this piece in the message */
    uint32_t crc; /* CRC32C of the payload when the connection has crc on */
};

void sl_tcp_hello_encode(const struct sl_tcp_hello *hello, uint8_t out[SL_TCP_HELLO_BYTES]);
/* -EBADMSG: not one of ours, or damaged; -EPROTO: another version (out->version is set). */
int sl_tcp_hello_decode(const uint8_t in[SL_TCP_HELLO_BYTES], struct sl_tcp_hello *out);

void sl_tcp_answer_encode(const struct sl_tcp_answer *answer, uint8_t out[SL_TCP_ANSWER_BYTES]);
int sl_tcp_answer_decode(const uint8_t in[SL_TCP_ANSWER_BYTES], struct sl_tcp_answer *out);

/* crc says whether this connection carries checksums. */
void sl_tcp_frame_encode(const struct sl_tcp_frame *frame, bool crc,
                         uint8_t out[SL_TCP_FRAME_BYTES]);
/* Checks all that one header can show by itself. -EBADMSG with a sentence. */
int sl_tcp_frame_decode(const uint8_t in[SL_TCP_FRAME_BYTES], bool crc, struct sl_tcp_frame *out);

#endif
