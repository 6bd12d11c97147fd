/* SPDX-License-Identifier: Apache-2.0 */
/* MPI_Init for scale.sh: says when all ranks are there, and stays as long as their memory is read.
 *
 *   mpicc.openmpi -O2 bench/start_mpi.c -o build/start_mpi
 */
#include <mpi.h>

#include <stdio.h>
#include <unistd.h>

#define STAY_S 5

int main(int argc, char **argv)
{
    int rank, size;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        printf("# ranks: %d\n", size);
        fflush(stdout);
    }
    sleep(STAY_S);
    MPI_Finalize();
    return 0;
}
