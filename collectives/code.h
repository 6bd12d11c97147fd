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

/* Whoever makes one embeds it. */
struct sl_coding {
    uint32_t users; /* who makes it is the first */
    /* by the code, and of what is sent within hosts where ranks are on several */
    struct sl_runner *runner, *inner_runner;
    uint64_t min_bytes; /* of the larger of in and out; what is less is sent as it is */
    /* Of elements of that type, which are summed or not; NULL: they are sent as they are. */
    const struct sl_code *(*code)(struct sl_coding *coding, enum sluice_dtype dtype, bool sums);
    const struct sl_code *(*inner)(struct sl_coding *coding, enum sluice_dtype dtype);
    /* What a persistent operation keeps, or calls with one buffer (recall.h), by the tiles of each
     * stage; NULL: nothing. */
    int (*keep)(struct sl_coding *coding, const struct sl_coding_extent *extents, void **state);
    uint64_t (*keep_bytes)(const struct sl_coding_extent *extents);
    uint64_t keep_max; /* bytes of all that calls keep; 0: they keep nothing */
    void (*forget)(void *state);
    void (*free)(struct sl_coding *coding);
    /* Of this rank's calls that have ended well: bytes sent, and those that they stand for. */
    uint64_t calls, bytes, raw_bytes;
};

static inline struct sl_coding *sl_coding_get(struct sl_coding *coding)
{
    if (coding != NULL)
        coding->users++;
    return coding;
}

/* Frees it with the last user. Takes NULL. */
void sl_coding_put(struct sl_coding *coding);

/* The recipe of this call; false: it goes as it is. The same on all ranks with the same coding.
 * runners: room for the recipe's. */
bool sl_coding_recipe(struct sl_coding *coding, const struct sluice_comm *comm,
                      const struct sl_call *call, struct sl_runner *runners[2],
                      struct sl_recipe *out);

/* Has the calls of comm that come go by coding, which is counted for it. NULL: they go as they
 * are. What is under way goes on. */
void sl_comm_set_coding(struct sluice_comm *comm, struct sl_coding *coding);

/* The tiles that each stage of the plan encodes so that something is lost. */
void sl_coding_extents(const struct sl_plan *plan, struct sl_coding_extent *extents);

/* An operation of a plan with a coding has ended. */
void sl_coding_ended(struct sluice_req *op, int status);

#endif
