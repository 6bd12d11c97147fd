/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What messages from rank to rank took (the delay matrix): a cell for each pair of ranks and path
 * between which messages went, whether few of them (rings) or all. Only one state of waiting
 * counts, the wire's as a rule: a sender whose data was not ready, and a receiver that gave no
 * room, say nothing of the path.
 *
 * Cells are made of the job's edges, summed. In a job without edges, messages that both ends list
 * with their times make them: of the two ends' times the shorter, as whoever comes last does not
 * wait for the other. That needs no common clock.
 */
#ifndef SL_MONITOR_DIAGNOSIS_MATRIX_H
#define SL_MONITOR_DIAGNOSIS_MATRIX_H

#include "monitor/diagnosis/job.h"

struct sl_matrix_cell {
    uint32_t src, dst, path; /* path: of the matrix's */
    float lost;
    double messages, bytes;
    double seconds; /* in the state, of all messages */
};

struct sl_matrix {
    struct sl_matrix_cell *cells; /* by src, dst, path */
    uint32_t count, rank_count;
    uint32_t *dst;          /* by cell, once more: four bytes in place of a whole cell */
    float *size, *time;     /* by cell: logarithms of a message's bytes, and of its seconds */
    uint32_t *first;        /* of row r: cells[first[r]] to cells[first[r + 1]] */
    uint32_t *column;       /* numbers of cells, by dst, src, path */
    uint32_t *column_first; /* as first */
    uint32_t *paths;        /* texts */
    uint32_t path_count;
    uint64_t others;  /* edges of the other side: local ones, where remote ones are asked for */
    uint64_t flushes; /* edges that had to wait for a flush */
    uint64_t refused; /* edges without bytes, without time in the state, or with no finite one */
};

enum sl_matrix_side {
    SL_MATRIX_ALL,
    SL_MATRIX_REMOTE, /* but for pairs that are known to be on one host */
    SL_MATRIX_LOCAL   /* these alone */
};

/* The job must be sealed. 0, also where there is no cell, or -ENOMEM; sl_matrix_fini() in any
 * case. */
int sl_matrix_build(const struct sl_job *job, enum sl_job_wait state, enum sl_matrix_side side,
                    struct sl_matrix *matrix);
void sl_matrix_fini(struct sl_matrix *matrix);
/* Room for a list that has an entry for each cell, or NULL; free() gives it back. A million cells
 * are thousands of pages, each of which is a fault: long lists lie where the kernel may take large
 * ones. */
void *sl_matrix_list(size_t count, size_t each);

/* The cell, or NULL. path: of the matrix's. */
const struct sl_matrix_cell *sl_matrix_at(const struct sl_matrix *matrix, uint32_t src,
                                          uint32_t dst, uint32_t path);

/* Edges that messages of both ends make; *edges is the caller's. 0 or -ENOMEM. */
int sl_matrix_edges_of_ops(const struct sl_job *job, struct sl_job_edge **edges, size_t *count);

#endif
