/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows and columns: a grid of ranks makes a communicator of its own for each row and each column,
 * as tensor and data parallel training do.
 *
 *   cc split.c $(pkg-config --cflags --libs sluice) -o split
 *   mpirun -np 4 ./split
 */
#include <sluice/sluice.h>

#include <stdio.h>

#define COLUMNS 2

static int sum_of(struct sluice_comm *comm, int32_t value, int32_t *out)
{
    return sluice_allreduce(comm, &value, out, 1, SLUICE_I32, SLUICE_SUM, NULL);
}

int main(void)
{
    struct sluice_comm *all, *row = NULL, *column = NULL;
    int32_t row_sum = 0, column_sum = 0, in_row = 0, in_column = 0;
    int rank, err;

    if (sluice_comm_from_env(&all) != 0) {
        fprintf(stderr, "cannot start: %s\n", sluice_last_error());
        return 1;
    }
    rank = sluice_comm_rank(all);
    /* One color, one communicator; the key orders the ranks in it. */
    err = sluice_comm_split(all, rank / COLUMNS, rank, &row);
    if (err == 0)
        err = sluice_comm_split(all, rank % COLUMNS, rank, &column);
    if (err == 0)
        err = sum_of(row, rank, &row_sum);
    if (err == 0)
        err = sum_of(column, rank, &column_sum);
    if (err != 0) {
        fprintf(stderr, "rank %d: %s\n", rank, sluice_last_error());
    } else {
        for (int other = 0; other < sluice_comm_size(all); other++) {
            in_row += other / COLUMNS == rank / COLUMNS ? other : 0;
            in_column += other % COLUMNS == rank % COLUMNS ? other : 0;
        }
        printf("rank %d: my row sums to %d, my column to %d\n", rank, (int)row_sum,
               (int)column_sum);
    }
    sluice_comm_destroy(column);
    sluice_comm_destroy(row);
    sluice_comm_destroy(all);
    return err != 0 || row_sum != in_row || column_sum != in_column;
}
