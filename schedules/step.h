/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One step of a schedule, as data, and the table of what each kind of step is.
 *
 * The wire. ENCODE leaves bytes in the wire buffer, SEND takes them from there, RECV puts a peer's
 * there, DECODE makes elements of them; as received they can be sent on. wire_len is how many bytes
 * they are, or, with SL_STEP_UP_TO at the step that puts them there, the most: how many they are
 * is known when that step has ended, and those that read them name it (length_from).
 *
 * Terms. A codec whose encodings add leaves numbers of another type in TMP (core/code.h), which
 * steps of that term move and reduce as any others, and a sum is decoded from what comes out. In
 * such a schedule all places and counts are bytes (in_bytes), but for the count of ENCODE_TERM and
 * DECODE_SUM, which have elements on one side and wire_len bytes on the other.
 *
 * A new kind is a row here, a function in collectives/steps.c that runs it, and one in
 * testing/check_run.c that proves it. Everybody else reads the row.
 */
#ifndef SL_SCHEDULES_STEP_H
#define SL_SCHEDULES_STEP_H

#include "core/step.h"

#include <stdbool.h>
#include <stdint.h>

/* Places in WIRE are counted in bytes, all others in elements. */
enum sl_buf_id {
    SL_BUF_NONE,
    SL_BUF_IN,
    SL_BUF_OUT,
    SL_BUF_TMP,
    SL_BUF_WIN,
    SL_BUF_WIRE, /* encodings, of this rank or received */
    SL_BUF_COUNT
};

enum sl_step_kind {
    SL_STEP_SEND,        /* src → peer; count 0 is a message without bytes, src_buf SL_BUF_NONE */
    SL_STEP_RECV,        /* peer → dst */
    SL_STEP_RECV_REDUCE, /* dst = src ⊕ what peer sent */
    SL_STEP_COPY,        /* dst = src; either may be this rank's window */
    SL_STEP_REDUCE,      /* dst = dst ⊕ src, local */
    SL_STEP_POST,  /* this rank's counter = value; all window writes before are visible with it */
    SL_STEP_AWAIT, /* until peer's counter >= value; peer SL_PEER_GROUP: every other of the group */
    /* dst = ⊕ over the group in rank order: this rank's operand is src, every other rank's is its
     * window at win_off */
    SL_STEP_REDUCE_WIN,
    SL_STEP_GET,    /* dst = peer's window at win_off */
    SL_STEP_ENCODE, /* dst in the wire buffer = src, encoded; by a runner, as the two below */
    SL_STEP_DECODE, /* dst = src of the wire buffer, decoded */
    SL_STEP_DECODE_REDUCE, /* dst = dst ⊕ src of the wire buffer, decoded */
    SL_STEP_ENCODE_TERM,   /* dst = src as numbers of a term; by a runner, as the one below */
    SL_STEP_DECODE_SUM,    /* dst = src, which all ranks have a part in, as elements */
    SL_STEP_KIND_COUNT
};

enum sl_step_flag {
    /* Operand order of RECV_REDUCE and REDUCE: incoming (or src) comes first. Set where the
     * incoming operand holds lower ranks, so that ranks which compute the same sum get the same
     * bits. */
    SL_STEP_REMOTE_FIRST = 1 << 0,
    /* This reduction completes the value: the average's division happens here. */
    SL_STEP_FINAL = 1 << 1,
    /* REDUCE_WIN: the result also goes to this rank's own window at win_off. */
    SL_STEP_TO_WIN = 1 << 2,
    /* ENCODE, RECV: wire_len is the most that comes; how much it is is known when the step ends. */
    SL_STEP_UP_TO = 1 << 3,
};

#define SL_PEER_GROUP UINT32_MAX
#define SL_NO_TERM UINT32_MAX

struct sl_step {
    uint8_t kind;             /* enum sl_step_kind */
    uint8_t flags;            /* enum sl_step_flag */
    uint8_t src_buf, dst_buf; /* enum sl_buf_id */
    uint16_t channel;
    uint8_t runner;    /* 0: the executor itself; n: the plan's n-th runner, by a request */
    uint8_t stage : 4; /* ENCODE: how many times these values were encoded before, as sums */
    uint8_t term : 4;  /* n: of the code's n-th term, from 1 on; 0: of none */
    union {
        uint32_t peer;   /* rank in the communicator */
        uint32_t before; /* ENCODE_TERM, DECODE_SUM: in TMP, in units of 4 bytes: what has come out
                            of the term before; SL_NO_TERM: there is none */
    };
    union {
        uint32_t value;       /* POST, AWAIT */
        uint32_t length_from; /* src in WIRE: 0: wire_len bytes; n: as many as step n - 1 put */
    };
    uint64_t src_off, dst_off; /* elements; in WIRE bytes */
    uint64_t count;            /* elements, also those that bytes of the wire stand for */
    union {
        uint64_t win_off;  /* REDUCE_WIN, GET: elements from the window's start */
        uint64_t wire_len; /* src or dst in WIRE; of a term */
    };
    uint32_t dep_first, dep_count; /* range of deps[]: earlier steps of this rank to wait for */
    /* What encodes and decodes: by these a codec draws random numbers, alike at both ends */
    uint32_t stream; /* one of each who encodes */
    uint32_t tile;   /* where the elements begin in the whole that is encoded */
};

_Static_assert(sizeof(struct sl_step) == 64, "a cache line: plans are as long as their steps");

enum sl_step_message { SL_NO_MESSAGE, SL_SENDS, SL_RECEIVES };
enum sl_step_wire { SL_NO_WIRE, SL_MAY_WIRE, SL_MUST_WIRE };

/* A row of the table: all that is said of a kind without running it. */
struct sl_step_row {
    const char *name;
    const char *peer_word;      /* before the peer in print-outs; NULL: it names no peer */
    const char *doing;          /* before "rank 3" in reports; NULL: "waits for" */
    uint8_t message;            /* enum sl_step_message: it meets one of the peer's */
    uint8_t work;               /* enum sl_work_kind: what a runner is to do; 0: none can */
    uint8_t flags;              /* that mean something for it */
    uint8_t wire_src, wire_dst; /* enum sl_step_wire: whether that side is in the wire buffer */
    bool src, dst;              /* it reads src, writes dst */
    bool needs_runner;
    bool reduces;
    bool waits;        /* its channel stands until a condition holds; peer may be the group */
    bool tells;        /* it raises this rank's counter */
    bool windows;      /* it touches counters or windows, whatever its buffers are */
    bool reads_theirs; /* other ranks' windows at win_off */
};

extern const struct sl_step_row sl_step_rows[SL_STEP_KIND_COUNT];

static inline const struct sl_step_row *sl_step_row(const struct sl_step *step)
{
    return &sl_step_rows[step->kind];
}

/* Whether the channel goes on before the step is over: a request ends it. */
static inline bool sl_step_is_async(const struct sl_step *step)
{
    return sl_step_row(step)->message != SL_NO_MESSAGE || step->runner != 0;
}

/* Whether either side is in the wire buffer. */
static inline bool sl_step_uses_wire(const struct sl_step *step)
{
    return step->src_buf == SL_BUF_WIRE || step->dst_buf == SL_BUF_WIRE;
}

/* Of ENCODE_TERM and DECODE_SUM, the side that has numbers of the term: wire_len bytes. */
static inline bool sl_step_is_term_side(const struct sl_step *step, uint8_t buf)
{
    return (step->kind == SL_STEP_ENCODE_TERM || step->kind == SL_STEP_DECODE_SUM) &&
           buf == SL_BUF_TMP;
}

static inline bool sl_step_uses_windows(const struct sl_step *step)
{
    return sl_step_row(step)->windows || step->src_buf == SL_BUF_WIN || step->dst_buf == SL_BUF_WIN;
}

/* "?" for what is no kind. */
const char *sl_step_kind_name(unsigned kind);

/* "in", "out", ...; NULL for what is no buffer. */
const char *sl_buf_name(unsigned buf);

#endif
