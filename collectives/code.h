/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How calls are compressed: a codec as whoever knows codecs (lib/) hands it in, and which calls it
 * is for. A communicator may have one, and a persistent operation its own; each plan holds the one
 * that it goes by.
 */
#ifndef SL_COLLECTIVES_CODE_H
#define SL_COLLECTIVES_CODE_H

#include "collectives/plan.h"
#include "core/code.h"

#include <stdio.h>

struct sl_gpu_memory;

/* Whoever makes one embeds it. */
struct sl_coding {
    uint32_t users; /* who makes it is the first */
    /* by the code, and of what is sent within hosts where ranks are on several */
    struct sl_runner *runner, *inner_runner;
    struct sl_runner *device_runner; /* of calls on memory of a GPU; NULL: there is none */
    uint64_t min_bytes; /* of the larger of in and out; what is less is sent as it is */
    bool always;        /* whatever it costs; else where it should take less time */
    /* Of the algorithm that is taken wherever it can be (sl_coding_find_recipe()); NULL: none */
    const char *recipe;
    /* Of elements of that type, which are summed or not; NULL: they are sent as they are. */
    const struct sl_code *(*code)(struct sl_coding *coding, enum sluice_dtype dtype, bool sums);
    const struct sl_code *(*inner)(struct sl_coding *coding, enum sluice_dtype dtype);
    /* What a persistent operation keeps, or calls with one buffer (recall.h), by the tiles of each
     * stage; NULL: nothing. */
    int (*keep)(struct sl_coding *coding, const struct sl_coding_extent *extents, void **state);
    uint64_t (*keep_bytes)(const struct sl_coding_extent *extents);
    uint64_t keep_max; /* bytes of all that calls keep; 0: they keep nothing */
    void (*forget)(void *state);
    /* Makes device_runner, for that memory and all that later calls are on. NULL: none can be.
     * -ENOTSUP, -ENOMEM, -EIO, with a sentence. */
    int (*use_device)(struct sl_coding *coding, const struct sl_gpu_memory *memory);
    /* What device_runner is given from now on begins after all that is on that stream now. -EIO. */
    int (*follow)(struct sl_coding *coding, void *stream);
    void (*free)(struct sl_coding *coding);
    /* Of this rank's calls that have ended well: bytes sent, and those that they stand for. Others
     * threads may read them, so they are written by sl_coding_add(). */
    uint64_t calls, bytes, raw_bytes;
    uint64_t raw_calls; /* left as they are, as that should take less time */
    /* What the compressed ones should have taken without, where that is known, and how long some
     * of these were under way. */
    uint64_t raw_ns, busy_ns;
    uint64_t busy_since_ns;
    uint32_t under_way;
};

/* One writer, any readers. */
static inline void sl_coding_add(uint64_t *count, uint64_t more)
{
    __atomic_store_n(count, *count + more, __ATOMIC_RELAXED);
}

static inline struct sl_coding *sl_coding_get(struct sl_coding *coding)
{
    if (coding != NULL)
        coding->users++;
    return coding;
}

/* Frees it with the last user. Takes NULL. */
void sl_coding_put(struct sl_coding *coding);

/* The recipe of that name, for sl_coding.recipe; NULL for "auto". -EINVAL, with the choices there
 * are. */
int sl_coding_find_recipe(const char *name, const char **out);

/* What compressing a call would be, and whether it is. */
struct sl_coding_choice {
    const struct sl_algo *algo; /* NULL: the coding is not for such a call */
    const struct sl_code *code, *inner;
    double ns;                 /* that algo should take; below 0: not known */
    const struct sl_algo *raw; /* what is chosen without; NULL: nothing is */
    double raw_ns;
    bool taken;
};

/* By what links deliver (NULL: all alike); the same on all ranks with the same coding. Takes NULL
 * for coding. */
void sl_coding_choose(struct sl_coding *coding, const struct sluice_comm *comm,
                      const struct sl_call *call, const uint16_t *speed,
                      struct sl_coding_choice *out);

/* The recipe of this call, that of one which goes as it is included; false: it does. runners: room
 * for the recipe's. */
bool sl_coding_recipe(struct sl_coding *coding, const struct sluice_comm *comm,
                      const struct sl_call *call, const uint16_t *speed,
                      struct sl_runner *runners[2], struct sl_recipe *out);

/* Whether algo is for call, on these hosts. */
bool sl_coding_suits(const struct sluice_comm *comm, const struct sl_algo *algo, enum sl_coll coll);

/* Whether it may also be taken for that shape: it is the one asked for, or that for codes that add,
 * or goes unasked. */
bool sl_coding_may(const struct sl_coding *coding, const struct sluice_comm *comm,
                   const struct sl_algo *algo, const struct sl_shape *shape);

/* Bytes of the larger buffer of such a call from which on it is compressed; 0: never. Of powers of
 * two, as predicted. */
uint64_t sl_coding_pays_from(struct sl_coding *coding, const struct sluice_comm *comm,
                             const struct sl_call *call);

/* code_explain.c: writes what codecs and the algorithms that send encodings should take, which of
 * them is chosen, and why or why not. */
void sl_coding_explain(const struct sluice_comm *comm, const struct sl_call *call,
                       const struct sl_coding_choice *choice, FILE *out);

/* Has the calls of comm that come go by coding, which is counted for it. NULL: they go as they
 * are. What is under way goes on. */
void sl_comm_set_coding(struct sluice_comm *comm, struct sl_coding *coding);

/* The tiles that each stage of the plan encodes so that something is lost. */
void sl_coding_extents(const struct sl_plan *plan, struct sl_coding_extent *extents);

/* An operation of a plan with a coding begins; one whose calls a coding counts is over. */
void sl_coding_begins(const struct sluice_req *op);
void sl_coding_ends(struct sluice_req *op, int status);

#endif
