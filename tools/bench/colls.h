/* SPDX-License-Identifier: Apache-2.0 */
/* The collectives as the benchmark sees them: names, shapes, bandwidth factors, and the call. */
#ifndef SB_COLLS_H
#define SB_COLLS_H

#include "bench.h"
#include "schedules/schedule.h"

/* One operation ready to be started again and again. Everything named is borrowed. */
struct sb_call {
    struct sluice_comm *comm;
    int rank, size, root;
    const void *in;
    void *out;
    size_t count; /* as the public call takes it */
    enum sluice_dtype dtype;
    enum sluice_op op;
    const size_t *in_counts, *in_offsets, *out_counts, *out_offsets; /* all_to_all_v */
};

/* Most requests that one start returns, and operations that it consists of. */
#define SB_REQS_MAX 2

struct sb_coll {
    const char *name;
    enum sl_coll coll;   /* the library's name for it */
    const char *aliases; /* other accepted spellings, separated by spaces */
    bool reduces, rooted, sized, in_place;
    bool in_blocks, out_blocks; /* in[size * count], out[size * count] */
    bool root_in, root_out;     /* in or out of use on the root only */
    /* busbw = algbw * factor: what each link must carry at least. NULL: 1 */
    double (*bus_factor)(int size);
    /* reqs NULL: returns when the operation is over. Otherwise sets *req_count requests. */
    int (*start)(const struct sb_call *call, struct sluice_req **reqs, int *req_count);
    /* Makes persistent operations of it. Returns how many, or an error with none made. */
    int (*init)(const struct sb_call *call, struct sluice_operation **operations);
};

extern const struct sb_coll sb_colls[SB_COLL_COUNT];

/* The collective of that name or alias (case and '-' against '_' do not matter), or -1. */
int sb_coll_find(const char *name, size_t len);

/* Elements for the public call when a row of about bytes is wished: the whole buffer is bytes long
 * where there are blocks, as nccl-tests does; never 0 for what has a size. */
size_t sb_coll_count(const struct sb_coll *coll, uint64_t bytes, size_t esize, int size);

/* Bytes of the larger buffer: the row's size column. */
uint64_t sb_coll_bytes(const struct sb_coll *coll, size_t count, size_t esize, int size);

/* all_to_all_v: elements that rank from sends to rank to; about count, uneven on purpose. */
size_t sb_alltoallv_count(size_t count, int from, int to);

#endif
