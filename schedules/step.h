/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One step of a schedule, as data, and the table of what each kind of step is.
 *
 * A new kind is a row here, a function in collectives/steps.c that runs it, and one in
 * testing/check_run.c that proves it. Everybody else reads the row.
 */
#ifndef SL_SCHEDULES_STEP_H
#define SL_SCHEDULES_STEP_H

#include <stdbool.h>
#include <stdint.h>

enum sl_buf_id { SL_BUF_NONE, SL_BUF_IN, SL_BUF_OUT, SL_BUF_TMP, SL_BUF_WIN, SL_BUF_COUNT };

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
    SL_STEP_GET, /* dst = peer's window at win_off */
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
};

#define SL_PEER_GROUP UINT32_MAX

struct sl_step {
    uint8_t kind;             /* enum sl_step_kind */
    uint8_t flags;            /* enum sl_step_flag */
    uint8_t src_buf, dst_buf; /* enum sl_buf_id */
    uint16_t channel;
    uint16_t reserved;                /* 0 */
    uint32_t peer;                    /* rank in the communicator */
    uint32_t value;                   /* POST, AWAIT */
    uint64_t src_off, dst_off, count; /* elements, never bytes */
    uint64_t win_off;                 /* REDUCE_WIN, GET: elements from the window's start */
    uint32_t dep_first, dep_count;    /* range of deps[]: earlier steps of this rank to wait for */
};

enum sl_step_message { SL_NO_MESSAGE, SL_SENDS, SL_RECEIVES };

/* A row of the table: all that is said of a kind without running it. */
struct sl_step_row {
    const char *name;
    const char *peer_word; /* before the peer in print-outs; NULL: it names no peer */
    const char *doing;     /* before "rank 3" in reports; NULL: "waits for" */
    uint8_t message;       /* enum sl_step_message: it meets one of the peer's */
    uint8_t flags;         /* that mean something for it */
    bool src, dst;         /* it reads src, writes dst */
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
    return sl_step_row(step)->message != SL_NO_MESSAGE;
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
