/* SPDX-License-Identifier: Apache-2.0 */
/* Short words for builders: places, steps, cuts, and the terms of cost formulas. */
#ifndef SL_SCHEDULES_BUILD_H
#define SL_SCHEDULES_BUILD_H

#include "schedules/schedule.h"

#define SL_NO_DEP UINT32_MAX
#define SL_BIT(coll) (1u << (coll))

struct sl_place {
    uint8_t buf;
    uint64_t off;
};

static inline struct sl_place sl_in(uint64_t off)
{
    return (struct sl_place){SL_BUF_IN, off};
}

static inline struct sl_place sl_out(uint64_t off)
{
    return (struct sl_place){SL_BUF_OUT, off};
}

static inline struct sl_place sl_tmp(uint64_t off)
{
    return (struct sl_place){SL_BUF_TMP, off};
}

static inline struct sl_place sl_win(uint64_t off)
{
    return (struct sl_place){SL_BUF_WIN, off};
}

static inline uint64_t sl_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t sl_max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static inline uint64_t sl_ceil_div(uint64_t a, uint64_t b)
{
    return (a + b - 1) / b; /* NOLINT(clang-analyzer-core.DivideZero): the caller's b */
}

/* Each adds one step and returns its index; dep is one earlier step or SL_NO_DEP. */
uint32_t sl_add_send(struct sl_schedule *s, unsigned channel, uint32_t peer, struct sl_place src,
                     uint64_t count, uint32_t dep);
uint32_t sl_add_recv(struct sl_schedule *s, unsigned channel, uint32_t peer, struct sl_place dst,
                     uint64_t count, uint32_t dep);
/* dst = src ⊕ incoming */
uint32_t sl_add_recv_reduce(struct sl_schedule *s, unsigned channel, uint32_t peer,
                            struct sl_place src, struct sl_place dst, uint64_t count,
                            unsigned flags, uint32_t dep);
uint32_t sl_add_copy(struct sl_schedule *s, unsigned channel, struct sl_place src,
                     struct sl_place dst, uint64_t count, uint32_t dep);
/* dst = dst ⊕ src */
uint32_t sl_add_reduce(struct sl_schedule *s, unsigned channel, struct sl_place src,
                       struct sl_place dst, uint64_t count, unsigned flags, uint32_t dep);
uint32_t sl_add_post(struct sl_schedule *s, unsigned channel, uint32_t value, uint32_t dep);
uint32_t sl_add_await(struct sl_schedule *s, unsigned channel, uint32_t peer, uint32_t value,
                      uint32_t dep);
uint32_t sl_add_reduce_win(struct sl_schedule *s, unsigned channel, struct sl_place src,
                           uint64_t win_off, struct sl_place dst, uint64_t count, unsigned flags,
                           uint32_t dep);
uint32_t sl_add_get(struct sl_schedule *s, unsigned channel, uint32_t peer, uint64_t win_off,
                    struct sl_place dst, uint64_t count, uint32_t dep);
/* The wire: places of bytes. Each reserves nothing: see sl_wire_take(). */
struct sl_wire {
    uint64_t off, len; /* in bytes; len is the most where the length is known at run time only */
    uint32_t from;     /* step that says how many they are; SL_NO_DEP: they are len */
};

/* len more bytes of the wire buffer, at a 64-byte boundary. */
struct sl_wire sl_wire_take(struct sl_schedule *s, uint64_t len);

/* These set wire->from when how much comes is known at run time only (up_to). */
uint32_t sl_add_encode(struct sl_schedule *s, unsigned channel, unsigned runner,
                       struct sl_place src, struct sl_wire *wire, uint64_t count, bool up_to,
                       uint32_t dep);
uint32_t sl_add_recv_wire(struct sl_schedule *s, unsigned channel, uint32_t peer,
                          struct sl_wire *wire, uint64_t count, bool up_to, uint32_t dep);
uint32_t sl_add_send_wire(struct sl_schedule *s, unsigned channel, uint32_t peer,
                          const struct sl_wire *wire, uint64_t count, uint32_t dep);
uint32_t sl_add_decode(struct sl_schedule *s, unsigned channel, unsigned runner,
                       const struct sl_wire *wire, struct sl_place dst, uint64_t count,
                       uint32_t dep);
/* dst = dst ⊕ what the bytes stand for */
uint32_t sl_add_decode_reduce(struct sl_schedule *s, unsigned channel, unsigned runner,
                              const struct sl_wire *wire, struct sl_place dst, uint64_t count,
                              unsigned flags, uint32_t dep);
/* Where the elements of the newest step, which encodes or decodes, lie in what codecs number. */
void sl_in_stream(struct sl_schedule *s, unsigned stage, uint32_t stream, uint64_t tile);
/* Has the newest step, a COPY or REDUCE, run by a runner. */
void sl_by_runner(struct sl_schedule *s, unsigned runner);

/* One more dependency of the newest step. */
void sl_add_dep(struct sl_schedule *s, uint32_t dep);

/* count elements in `parts` equal parts: part i is [i * width, i * width + sl_part_len). Parts
 * begin at 64-byte multiples unless they are so small that some ranks would be left without
 * work. */
uint64_t sl_part_width(uint64_t count, uint32_t parts, uint32_t esize);

static inline uint64_t sl_part_len(uint64_t count, uint64_t width, uint64_t idx)
{
    uint64_t off = idx * width;

    return off >= count ? 0 : sl_min(width, count - off);
}

/* Elements per piece: what the shape wishes, or default_bytes; at least 1, whole cache lines when
 * it is more than one. */
uint64_t sl_piece(const struct sl_shape *shape, uint64_t default_bytes);

/* Ranks [0..size) of host[] with this rank's host; count to *count. NULL: no memory. */
uint32_t *sl_host_members(const struct sl_shape *shape, uint32_t *count);

/* The whole communicator as the group that shares windows. */
void sl_group_all(struct sl_schedule *s, const struct sl_shape *shape);

static inline bool sl_one_host(const struct sl_shape *shape)
{
    if (shape->host == NULL)
        return true;
    for (uint32_t i = 0; i < shape->size; i++) {
        if (shape->host[i] != shape->host[0])
            return false;
    }
    return true;
}

static inline uint32_t sl_log2_ceil(uint32_t n)
{
    uint32_t log = 0;

    while ((UINT64_C(1) << log) < n)
        log++;
    return log;
}

/* Allreduce of OUT[base, base + count), where this rank's operand is once step `start` has ended,
 * round the ranks members[size], of which this one is members[idx]. Channels 1 and 2. ring.c */
void sl_ring_between(struct sl_schedule *s, const struct sl_shape *shape, const uint32_t *members,
                     uint32_t size, uint32_t idx, uint64_t base, uint64_t count, uint32_t start);

/* Allreduce of the operand, which is there once step `start` has ended, into OUT among
 * members[size], of which this one is members[idx]. Channels 1 to 3, TMP [0, 2 * count). Returns
 * the step that completes the sum. halving.c */
uint32_t sl_doubling_between(struct sl_schedule *s, const struct sl_shape *shape,
                             const uint32_t *members, uint32_t size, uint32_t idx,
                             struct sl_place operand, uint32_t start);

/* Where the window of those begins who reduce that term, or of the one behind the last: a window's
 * bytes. terms.c */
uint64_t sl_term_window(const struct sl_shape *shape, unsigned term);

/* The link that a step over all ranks is as slow as. */
static inline const struct sl_link_cost *sl_cost_link(const struct sl_shape *shape,
                                                      const struct sl_costs *costs)
{
    return sl_one_host(shape) ? &costs->shm : &costs->net;
}

/* p2p.c direct.c ring.c alltoall.c halving.c tree.c bruck.c hier.c hier_lead.c weighted.c */
extern const struct sl_algo sl_algo_self, sl_algo_p2p;
extern const struct sl_algo sl_algo_flat, sl_algo_direct;
extern const struct sl_algo sl_algo_ring, sl_algo_biring;
extern const struct sl_algo sl_algo_pairwise, sl_algo_linear, sl_algo_dissemination;
extern const struct sl_algo sl_algo_doubling, sl_algo_halving;
extern const struct sl_algo sl_algo_binomial, sl_algo_dtree;
extern const struct sl_algo sl_algo_bruck, sl_algo_hier, sl_algo_hiertree, sl_algo_weighted;

/* Of encodings: oneshot_hosts.c oneshot.c code_chain.c code_ring.c code_gather.c code_sum.c */
extern const struct sl_algo sl_algo_oneshot_hosts, sl_algo_oneshot, sl_algo_code_chain;
extern const struct sl_algo sl_algo_code_ring, sl_algo_code_gather, sl_algo_code_sum;

/* How many times longer work takes because ranks share cores. */
static inline double sl_cost_crowd(const struct sl_costs *costs)
{
    return costs->ranks_per_core > 1 ? costs->ranks_per_core : 1;
}

#endif
