/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory for the prover of schedules (check.c): places hold expressions in place of numbers.
 *
 * An expression is a node: a rank's operand, or an ordered combination of two nodes. Equal
 * expressions are one node, so equal node numbers mean equal bits. What lies in memory is kept by
 * stretches of elements, each with who wrote it and who has read it since.
 */
#ifndef SL_TESTING_CHECK_MEM_H
#define SL_TESTING_CHECK_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SL_SYM_UNDEFINED 0u
#define SL_SYM_NONE UINT32_MAX

enum sl_sym_tag {
    SL_SYM_LEAF,
    SL_SYM_PAIR,  /* a ⊕ b, rounded */
    SL_SYM_OPEN,  /* a ⊕ b inside one REDUCE_WIN: rounds only at its end */
    SL_SYM_CLOSE, /* the end of a REDUCE_WIN over a */
    SL_SYM_FINAL, /* a, complete (averages: divided) */
    SL_SYM_CODED, /* what comes out when a has gone through the codec of runner b */
    SL_SYM_TERM,  /* numbers that a was made of by b, the result of the term before; 0: by none */
    SL_SYM_ROW,   /* a, and b behind it: a node or, of each other one, a length */
    SL_SYM_SUM,   /* the elements that numbers a and the result b of the term before stand for */
};

struct sl_sym_node {
    uint32_t a, b;
    uint32_t tag;
    uint32_t leaves;
    uint32_t by; /* of a TERM and what is made of such: its b */
    bool final;  /* complete, maybe coded since */
    /* Sum over the leaves of 128 random bits per rank: with `leaves`, it tells whether each rank is
     * in once (wrong with a chance of 2^-128 per expression). */
    unsigned __int128 sign;
};

/* Node r + 1 is rank r's operand. */
struct sl_sym_nodes {
    struct sl_sym_node *nodes;
    uint32_t count, cap;
    uint32_t *table; /* open addressing, 0 is free */
    uint32_t table_len;
    unsigned __int128 full; /* sign of an expression with every rank once */
    uint32_t ranks;
};

int sl_sym_nodes_init(struct sl_sym_nodes *nodes, uint32_t ranks);
void sl_sym_nodes_fini(struct sl_sym_nodes *nodes);
/* The node for (tag, a, b); SL_SYM_NONE: no memory. */
uint32_t sl_sym_node(struct sl_sym_nodes *nodes, enum sl_sym_tag tag, uint32_t a, uint32_t b);
/* The node without the codecs that it went through last. */
uint32_t sl_sym_bare(const struct sl_sym_nodes *nodes, uint32_t node);
/* times[rank] += how often rank is in the node. */
void sl_sym_count(const struct sl_sym_nodes *nodes, uint32_t node, uint32_t *times);

/* Elements, or in the wire buffer bytes, [start, next stretch's start). There node is the number of
 * an encoding and idx the byte of it. Else idx is the operand's element that the first one comes
 * from. */
struct sl_sym_seg {
    uint64_t start, idx;
    uint32_t node;
    uint32_t writer;  /* step that wrote it, SL_SYM_NONE: nobody */
    uint32_t readers; /* list of steps that have read it since, SL_SYM_NONE: empty */
};

struct sl_sym_reader {
    uint32_t step, next;
};

struct sl_sym_region {
    struct sl_sym_seg *segs; /* ascending; the first starts at 0 */
    uint32_t count, cap;
    uint64_t len;
};

/* A run of values on its way from one place to another. */
struct sl_sym_part {
    uint64_t len, idx;
    uint32_t node;
};

struct sl_sym_strip {
    struct sl_sym_part *parts;
    uint32_t count, cap;
};

/* What a codec left in the wire buffer, in at most `room` bytes: it stands for these values. */
struct sl_sym_code {
    struct sl_sym_strip values;
    uint64_t room;
    uint8_t runner;
    uint32_t stream, tile; /* that it was encoded for */
};

/* Number n is codes[n - 1]. */
struct sl_sym_codes {
    struct sl_sym_code *codes;
    uint32_t count, cap;
};

/* The number of an encoding of what strip has; like tells the rest. SL_SYM_NONE: no memory. */
uint32_t sl_sym_code(struct sl_sym_codes *codes, const struct sl_sym_strip *strip,
                     const struct sl_sym_code *like);
void sl_sym_codes_fini(struct sl_sym_codes *codes);

/* All of these: 0 or -ENOMEM. */
int sl_sym_region_init(struct sl_sym_region *region, uint64_t len);
/* The stretch that holds element `at`. */
uint32_t sl_sym_find(const struct sl_sym_region *region, uint64_t at);
/* Makes a stretch begin at `at` (<= len) and returns its index, or SL_SYM_NONE. */
uint32_t sl_sym_split(struct sl_sym_region *region, uint64_t at);
/* Replaces stretches [first, last) by the strip, written by `writer`. */
int sl_sym_replace(struct sl_sym_region *region, uint32_t first, uint32_t last,
                   const struct sl_sym_strip *strip, uint32_t writer);
int sl_sym_strip_copy(struct sl_sym_strip *to, const struct sl_sym_strip *from);
int sl_sym_strip_add(struct sl_sym_strip *strip, uint64_t len, uint32_t node, uint64_t idx);

static inline uint64_t sl_sym_seg_end(const struct sl_sym_region *region, uint32_t seg)
{
    return seg + 1 < region->count ? region->segs[seg + 1].start : region->len;
}

#endif
