/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract between the executor and the runner of a local step elsewhere: the threads of a
 * codec, the stream of a GPU, a DMA engine.
 *
 * A runner is driven as a transport is: by the thread that has the communicator, one at a time.
 * Work that it takes ends by a request from its progress(). It sends nothing and takes no lock that
 * is held while another rank is waited for.
 */
#ifndef SL_CORE_STEP_H
#define SL_CORE_STEP_H

#include "core/req.h"

#include <sluice/types.h>

#include <stdbool.h>

enum sl_work_kind {
    SL_WORK_NONE,
    SL_WORK_COPY,          /* dst = src */
    SL_WORK_REDUCE,        /* dst = dst ⊕ src */
    SL_WORK_ENCODE,        /* elements of src → bytes in dst; req->len tells how many */
    SL_WORK_DECODE,        /* bytes of src → elements in dst */
    SL_WORK_DECODE_REDUCE, /* dst = dst ⊕ the elements that the bytes of src stand for */
    SL_WORK_ENCODE_TERM,   /* elements of src → numbers of a term in dst (core/code.h) */
    SL_WORK_DECODE_SUM,    /* numbers of src, reduced over all ranks → the elements' sum in dst */
};

struct sl_work {
    enum sl_work_kind kind;
    bool src_first; /* reductions: src is the first operand */
    enum sluice_dtype dtype;
    enum sluice_op op;
    uint32_t divisor; /* reductions and sums: the result is divided by it; 1: it is not */
    uint64_t count;   /* elements */
    /* That side has f32 in place of elements of dtype: sums that are not rounded yet. */
    bool src_wide, dst_wide;
    /* Codecs number elements, for random numbers and residuals: */
    uint8_t stage;   /* of ENCODE: how many times these values were encoded before, as sums */
    uint32_t stream; /* the sequence of random numbers, one of each who encodes */
    uint32_t turn;   /* the sequence's part for this start: the same on all ranks */
    uint64_t tile;   /* where the elements begin in the whole, in tiles */
    /* Of terms: */
    uint8_t term;       /* its number */
    uint32_t ranks;     /* that add up */
    const void *before; /* of these elements, what has come out of the term before; or NULL */
    const void *src;
    void *dst;
    size_t src_len; /* bytes */
    size_t dst_len; /* bytes; of ENCODE room, of which not more may be written */
    void *state;    /* the persistent operation's own, kept from start to start; or NULL */
    /* Of a step that this runner has, and which this one needs: it begins when that is over. NULL:
     * what it needs is there. */
    const struct sl_req *after;
};

struct sl_runner;

struct sl_runner_ops {
    const char *name; /* in reports and sentences, and compared between ranks; static storage */
    bool in_order;    /* takes work that is after other work of its own */

    /*
     * work is borrowed for the call. 1: done at once, done() will not be called. 0: taken; the
     * memory that work names is lent until req is done. -EAGAIN: full, nothing was taken, progress
     * and call again. Other codes: it failed, and sl_fail() said why.
     */
    int (*start)(struct sl_runner *runner, const struct sl_work *work, struct sl_req *req);

    /* Has what it took begin, and ends requests that are done, at most budget; how many. Before a
     * request ends with an error, sl_fail() says why. */
    unsigned (*progress)(struct sl_runner *runner, unsigned budget);

    /* Ends req, as it comes or with -ECANCELED, before it returns: the runner touches no memory of
     * it from then on. */
    void (*cancel)(struct sl_runner *runner, struct sl_req *req);

    /*
     * Both NULL: TMP and the wire buffer of an operation are ordinary memory. Otherwise the plan's
     * first runner gives them: TMP as it likes, since nobody else touches it; the wire buffer so
     * that transports can read and write it. At setup. No bytes: NULL. -ENOMEM, -EIO, with a
     * sentence, and then neither was taken.
     */
    int (*take)(struct sl_runner *runner, size_t tmp_len, size_t wire_len, void **tmp, void **wire);
    void (*give)(struct sl_runner *runner, void *tmp, void *wire); /* takes NULL */
};

/* A runner embeds it as its first member. */
struct sl_runner {
    const struct sl_runner_ops *ops;
};

#endif
