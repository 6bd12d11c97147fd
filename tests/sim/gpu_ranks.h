/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of a few ranks on memory of an emulated GPU, in a simulated network, beside what the plain
 * reference makes of them. */
#ifndef SL_TESTS_SIM_GPU_RANKS_H
#define SL_TESTS_SIM_GPU_RANKS_H

#include "tests/sim/coded_reference.h"

#include <stdbool.h>
#include <stdint.h>

#define GPU_RANKS_MAX 4

/* What all of them call, twice, with the same elements. */
struct gpu_job {
    struct coded_reference ref;
    char setting[64];
    bool kept, in_place;
    bool pairs;               /* two operations at once */
    bool moves;               /* ... the second on GPU 1 */
    bool swaps;               /* rank 0's second call is on memory of the other kind */
    bool late;                /* the elements come on a stream, after the call */
    bool two_sides, two_gpus; /* of in and out */
    bool alone;               /* rank 1 calls, the others do not */
    uint32_t on_host;         /* bits of ranks whose memory is the host's */
    unsigned aborts;          /* rank 1 gives up after so many looks; 0: it does not */
    bool many_hosts;          /* two of them: GPUs go by one shot all the same */
    void (*before)(uint32_t rank);
};

extern struct gpu_job gpu_job;

/* What it came to: 0, or an error and its sentence; -EBADMSG where bytes are not the
 * reference's. */
extern int gpu_results[GPU_RANKS_MAX];
extern char gpu_whys[GPU_RANKS_MAX][512];

/* Kernels that were on their way when rank 1's start of a call returned: one that it gives up
 * later, or the first of two operations. */
extern unsigned gpu_launched;

/* Runs it. Fails the case where ranks are stuck, the GPU was misused or something is left on it. */
void gpu_job_run(uint64_t seed);

#endif
