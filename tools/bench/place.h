/* SPDX-License-Identifier: Apache-2.0 */
/* Where a row's operands lie in the two buffers, filling them, and judging what came out. */
#ifndef SB_PLACE_H
#define SB_PLACE_H

#include "colls.h"

/* Bytes after out that nobody may touch. */
#define SB_FENCE 64

struct sb_error;

/* A row's call on this rank with the memory around it. */
struct sb_place {
    struct sb_call call;
    const struct sb_coll *coll;
    enum sb_coll_id id;
    bool in_place;
    int op;                     /* for the data: SB_NO_OP when any bits will do */
    char *in, *out;             /* the call's, writable */
    size_t in_bytes, out_bytes; /* what the call may read and write on this rank */
    struct sluice_operation *operations[SB_REQS_MAX];
    int operation_count; /* 0: each start is a call */
    size_t *tables;      /* all_to_all_v: in_counts, in_offsets, out_counts, out_offsets */
};

/* Bytes that each buffer needs for one such row, fence included. */
size_t sb_place_need(const struct sb_row *row, int size);

/* Lays the row out in two buffers of sb_place_need() bytes, of which in-place calls use the second
 * alone. tables[4 * size] is borrowed with the place. */
void sb_place_init(struct sb_place *place, const struct sb_row *row, bool in_place,
                   struct sluice_comm *comm, int rank, int size, char *first, char *second,
                   size_t *tables);

/* Makes persistent operations of the call, which sb_place_start() then starts; frees them. */
int sb_place_keep(struct sb_place *place);
void sb_place_forget(struct sb_place *place);

/* Starts the call, or its operations, as sb_coll.start. */
int sb_place_start(const struct sb_place *place, struct sluice_req **reqs, int *req_count);

/* Fills the operands from seed and everything else with a pattern. */
void sb_place_fill(struct sb_place *place, uint64_t seed);

/* Elements that are wrong after the call: results, bytes past the result, operands that changed. A
 * result by a codec (lossy not NULL) is not compared: its errors are added there. */
uint64_t sb_place_check(const struct sb_place *place, uint64_t seed, struct sb_error *lossy);

#endif
