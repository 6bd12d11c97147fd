/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The smallest useful program: every rank gives a vector, every rank gets the sum.
 *
 *   cc allreduce.c $(pkg-config --cflags --libs sluice) -o allreduce
 *   mpirun -np 4 ./allreduce        (or srun, torchrun --no_python, or SLUICE_RANK, _SIZE, _ROOT by
 * hand)
 */
#include <sluice/sluice.h>

#include <stdio.h>

int main(void)
{
    struct sluice_comm *comm;
    float in[4], out[4];
    int rank, size;

    if (sluice_comm_from_env(&comm) != 0) {
        fprintf(stderr, "cannot start: %s\n", sluice_last_error());
        return 1;
    }
    rank = sluice_comm_rank(comm);
    size = sluice_comm_size(comm);
    for (int i = 0; i < 4; i++)
        in[i] = (float)(rank * 10 + i);

    /* The last argument NULL: the call returns when the sum is there. */
    if (sluice_allreduce(comm, in, out, 4, SLUICE_F32, SLUICE_SUM, NULL) != 0) {
        fprintf(stderr, "rank %d: allreduce: %s\n", rank, sluice_last_error());
        sluice_comm_destroy(comm);
        return 1;
    }
    if (rank == 0)
        printf("sum over %d ranks: %g %g %g %g\n", size, (double)out[0], (double)out[1],
               (double)out[2], (double)out[3]);
    sluice_comm_destroy(comm);
    /* Sum of rank * 10 over all ranks: small integers, so exact also in floats. */
    return out[0] == (float)(size * (size - 1) * 5) ? 0 : 1;
}
