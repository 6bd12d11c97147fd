/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What travels by SEND: a header, and a payload behind it. docs/wire.md draws it; numbers are
 * little-endian.
 */
#ifndef SL_MULTIPATH_FRAME_H
#define SL_MULTIPATH_FRAME_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define SL_MP_RAILS_MAX 16 /* bits of a mask: struct sl_mp_cts_keys */
#define SL_MP_PATHS_MAX 64

enum sl_mp_frame_kind {
    SL_MP_PING = 1, /* before all else on a path: it carries. As long as its largest packets */
    SL_MP_EAGER,    /* payload: a whole message */
    SL_MP_RTS,      /* a long message waits, or is shorter than its CTS */
    SL_MP_CTS,      /* payload: struct sl_mp_cts */
    SL_MP_DROP,     /* the message met another receive than it was meant for: it is over */
    SL_MP_CREDIT,   /* credits only */
    SL_MP_CONTROL,  /* payload: a control message; not in the order of frames */
};

/* Of a PING: its sender takes the path for one that carries. */
#define SL_MP_FLAG_PROVEN 1u
/* Of a CTS that left before the sender asked: the message may be shorter than its value. */
#define SL_MP_FLAG_SHORTER 1u
/* Of a CTS: into GPU memory. What is short is better written there than sent in a frame. */
#define SL_MP_FLAG_GPU 2u
/* Of a CTS that left before, and is not complete: it has new keys. */
#define SL_MP_FLAG_AGAIN 4u

struct sl_mp_frame {
    uint8_t kind;
    uint8_t flags;    /* SL_MP_FLAG_* */
    uint16_t credits; /* frames that the sender of this header has room for again */
    uint32_t fseq;    /* of this frame in its direction; not of PING, CONTROL */
    uint32_t channel; /* of the message */
    uint32_t number;  /* of the message in its channel; of CONTROL the control message's */
    uint64_t tag;
    uint64_t value; /* length of the message; of CONTROL bytes of the payload */
};

#define SL_MP_FRAME_BYTES 32
_Static_assert(sizeof(struct sl_mp_frame) == SL_MP_FRAME_BYTES, "travels as it is");

/* Each work request's immediate: its number in this epoch of the path, by which the receiver tells
 * what it shows twice, and the CTS that it writes to; of a frame 0. */
static inline uint32_t sl_mp_imm(uint32_t number, uint32_t cts)
{
    return number << 16 | cts;
}

/* Where a part of a message may be written. id has 16 bits and travels in each write's
 * immediate. */
struct sl_mp_cts {
    uint64_t off, len, addr;
    uint32_t id;
    struct sl_mp_cts_keys {
        uint8_t count;  /* of rkeys */
        uint8_t age;    /* how often the granting side has begun to register anew */
        uint16_t rails; /* of the granting side, where it is registered: a bit each */
    } keys;
    uint32_t rkeys[SL_MP_RAILS_MAX]; /* by rail of the granting side */
};

/* How much of it travels: keys in groups of four. */
#define SL_MP_CTS_HEAD offsetof(struct sl_mp_cts, rkeys)
#define SL_MP_CTS_KEYS 4
static inline size_t sl_mp_cts_size(unsigned keys)
{
    return SL_MP_CTS_HEAD + (keys + SL_MP_CTS_KEYS - 1) / SL_MP_CTS_KEYS * SL_MP_CTS_KEYS * 4;
}

_Static_assert(SL_MP_CTS_HEAD == 32 && SL_MP_RAILS_MAX % SL_MP_CTS_KEYS == 0, "travels as it is");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "headers are copied as they are");

/* Reads the header of `got` received bytes. -EBADMSG: not a frame; the text says what is wrong. */
int sl_mp_frame_read(const void *bytes, size_t got, struct sl_mp_frame *out);

/* Writes the payload of a CTS, of sl_mp_cts_size() bytes: all but its keys is out of *cts, these
 * out of rkeys[SL_MP_RAILS_MAX]. Few hosts have more than four rails. */
static inline void sl_mp_cts_write(const struct sl_mp_cts *cts, const uint32_t *rkeys, uint8_t *out)
{
    memcpy(out, cts, SL_MP_CTS_HEAD);
    memcpy(out + SL_MP_CTS_HEAD, rkeys, SL_MP_CTS_KEYS * sizeof(*rkeys));
    for (unsigned i = SL_MP_CTS_KEYS; i < cts->keys.count; i += SL_MP_CTS_KEYS)
        memcpy(out + SL_MP_CTS_HEAD + i * sizeof(*rkeys), &rkeys[i],
               SL_MP_CTS_KEYS * sizeof(*rkeys));
}

/* Copies what there is of *cts: keys beyond its count stay as they were. */
static inline void sl_mp_cts_copy(const struct sl_mp_cts *cts, struct sl_mp_cts *out)
{
    sl_mp_cts_write(cts, cts->rkeys, (uint8_t *)out);
}

/* Reads the payload of a CTS, of len bytes; keys beyond its count stay as they were. -EBADMSG. */
int sl_mp_cts_read(const void *payload, size_t len, struct sl_mp_cts *out);

#endif
