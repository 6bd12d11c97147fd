/* SPDX-License-Identifier: Apache-2.0 */
/* A made-up run that the tests of the reports print. */
#ifndef SB_SAMPLE_H
#define SB_SAMPLE_H

#include "bench.h"

#define SAMPLE_ROWS 4

struct sample {
    struct sb_options options;
    struct sb_stat stats[SAMPLE_ROWS][2][2]; /* [row][placement][rank] */
    struct sb_row rows[SAMPLE_ROWS];
    struct sb_results results;
};

static inline void sample_cell(struct sample *s, int row, int place, double time_s, int64_t wrong)
{
    struct sb_cell *cell = &s->rows[row].cell[place];
    struct sb_stat *stats = s->stats[row][place];

    for (int rank = 0; rank < 2; rank++)
        stats[rank] = (struct sb_stat){.mean = time_s,
                                       .min = time_s / 2,
                                       .p50 = time_s,
                                       .p99 = 2 * time_s,
                                       .max = 4 * time_s};
    *cell = (struct sb_cell){.valid = true,
                             .time_s = time_s,
                             .p50_s = time_s,
                             .p99_s = 2 * time_s,
                             .algbw = (double)s->rows[row].bytes / time_s * 1e-9,
                             .busbw = (double)s->rows[row].bytes / time_s * 1e-9,
                             .wrong = wrong,
                             .iters = 20,
                             .ranks = stats};
}

/* Two ranks; the third row has wrong elements, the last has neither size nor in-place half. */
static inline void sample_init(struct sample *s, const struct sb_options *options)
{
    *s = (struct sample){.options = *options};
    s->rows[0] = (struct sb_row){
        .coll = SB_ALLREDUCE, .dtype = SLUICE_F32, .op = SLUICE_SUM, .root = -1, .bytes = 8, .count = 2};
    s->rows[1] = s->rows[0];
    s->rows[1].bytes = 1048576;
    s->rows[1].count = 262144;
    s->rows[2] = (struct sb_row){
        .coll = SB_BROADCAST, .dtype = SLUICE_BF16, .op = -1, .root = 1, .bytes = 134217728,
        .count = 67108864};
    s->rows[3] = (struct sb_row){.coll = SB_BARRIER, .dtype = SLUICE_F32, .op = -1, .root = -1};
    sample_cell(s, 0, 0, 0.1634e-6, 0);
    sample_cell(s, 0, 1, 12.345e-6, 0);
    sample_cell(s, 1, 0, 131.5e-6, 0);
    sample_cell(s, 1, 1, 1234.5e-6, 0);
    sample_cell(s, 2, 0, 0.0137, 17);
    sample_cell(s, 2, 1, 1.25, -1);
    sample_cell(s, 3, 0, 0.29e-6, 0);
    s->results = (struct sb_results){.facts = {.ranks = 2,
                                               .hosts = 1,
                                               .version = "0.1.0",
                                               .paths = "shm to 1 rank",
                                               .algo = "chosen by cost",
                                               .kernel = "avx2",
                                               .allocation = "malloc"},
                                     .options = &s->options,
                                     .rows = s->rows,
                                     .row_count = SAMPLE_ROWS,
                                     .wrong = 17,
                                     .busbw_sum = 24.5,
                                     .busbw_count = 6};
}

#endif
