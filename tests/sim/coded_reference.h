/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a compressed collective must give, plainly: each rank's elements through the codec, tile by
 * tile, summed in the order of ranks, and the sum through the codec once more. Slow and without the
 * engine, its schedules or its runner.
 */
#ifndef SL_TESTS_SIM_CODED_REFERENCE_H
#define SL_TESTS_SIM_CODED_REFERENCE_H

#include "compress/codec.h"
#include "schedules/schedule.h"

struct coded_reference {
    struct sl_codec_spec spec; /* dtype: that of the elements */
    enum sl_coll coll;
    enum sluice_op op;
    uint32_t ranks, root;
    uint64_t count;     /* as of the call */
    uint32_t hosts;     /* with as many ranks each, of which the sum is encoded; 1: they are not */
    bool dealt;         /* ranks are on hosts in turn, not in blocks */
    const char *recipe; /* "ring", "gather"; NULL: as it is chosen */
    bool feedback;      /* keeps what is lost, from call to call */
    float **residuals;  /* [ranks]: of their elements, or of their hosts' sums; owned */
    float *owners;      /* of sums; owned */
};

/* Takes memory for residuals, if it has feedback. */
void coded_reference_init(struct coded_reference *ref);
void coded_reference_fini(struct coded_reference *ref);

/* ins[r]: in of rank r. outs[r]: what out of rank r must be. turn: of the random numbers. */
void coded_reference_run(struct coded_reference *ref, uint32_t turn, const void *const *ins,
                         void *const *outs);

#endif
