/* SPDX-License-Identifier: Apache-2.0 */
/* How matrix.c fills cells, edge after edge in the order of their pairs. */
#ifndef SL_MONITOR_DIAGNOSIS_MATRIX_CELLS_H
#define SL_MONITOR_DIAGNOSIS_MATRIX_CELLS_H

#include "monitor/diagnosis/matrix.h"

/* Room for as many cells; there are none yet. -ENOMEM: sl_matrix_fini() frees what there is. */
int sl_matrix_new_cells(struct sl_matrix *matrix, uint32_t ranks, size_t count);
void sl_matrix_free_cells(struct sl_matrix *matrix);
/* Into the last cell, or a new one behind it. path: of the matrix's. */
void sl_matrix_add_edge(struct sl_matrix *matrix, const struct sl_job_edge *edge, uint32_t path,
                        enum sl_job_wait state);
/* Of cells from..to. */
void sl_matrix_take_logs(struct sl_matrix *matrix, uint32_t from, uint32_t to);
/* All cells are there: rows and columns. */
void sl_matrix_index_cells(struct sl_matrix *matrix);

#endif
