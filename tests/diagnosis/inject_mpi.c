/* SPDX-License-Identifier: Apache-2.0 */
/* A rank of MPI that trains for ever, as inject_ranks.c does: under the preload shim. */
#include "inject_work.h"

#include <mpi.h>

static void step(MPI_Comm half, void *in, void *out, int count, int pair)
{
    if (inject_takes_other())
        MPI_Bcast(out, count, MPI_FLOAT, 0, MPI_COMM_WORLD);
    else
        MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    if (pair > 0)
        MPI_Alltoall(in, pair, MPI_FLOAT, out, pair, MPI_FLOAT, MPI_COMM_WORLD);
    MPI_Allreduce(in, out, 256, MPI_FLOAT, MPI_SUM, half);
}

int main(int argc, char **argv)
{
    int rank, size, count = (int)inject_number("INJECT_BYTES", 65536) / 4;
    int pair = (int)inject_number("INJECT_PAIR_BYTES", 0) / 4, most;
    void *in, *out;
    MPI_Comm half;

    inject_begin();
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_split(MPI_COMM_WORLD, rank * 2 / size, rank, &half);
    most = pair * size > count ? pair * size : count;
    in = calloc((size_t)most + 256, 4);
    out = calloc((size_t)most + 256, 4);
    for (int i = 0; in != NULL && out != NULL; i++) {
        inject_say_step(i, rank);
        inject_compute();
        step(half, in, out, count, pair);
    }
    return 1;
}
