/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of several layers reduced while the next layer is computed: each call returns a request
 * at once, many are under way together, and work goes on until they are waited for.
 *
 *   cc nonblocking.c $(pkg-config --cflags --libs sluice) -o nonblocking
 *   mpirun -np 4 ./nonblocking
 */
#include <sluice/sluice.h>

#include <stdio.h>

#define LAYERS 8
#define PARAMETERS 10000

static float gradients[LAYERS][PARAMETERS];

static void compute(int layer, int rank)
{
    for (int i = 0; i < PARAMETERS; i++)
        gradients[layer][i] = (float)(layer + rank);
}

int main(void)
{
    struct sluice_req *reqs[LAYERS];
    struct sluice_comm *comm;
    int rank, size, started = 0, err = 0, wrong = 0;

    if (sluice_comm_from_env(&comm) != 0) {
        fprintf(stderr, "cannot start: %s\n", sluice_last_error());
        return 1;
    }
    rank = sluice_comm_rank(comm);
    size = sluice_comm_size(comm);
    for (int layer = 0; layer < LAYERS && err == 0; layer++) {
        compute(layer, rank);
        err = sluice_allreduce(comm, gradients[layer], gradients[layer], PARAMETERS, SLUICE_F32,
                               SLUICE_AVG, &reqs[layer]);
        started += err == 0;
        /* A test now and then moves operations on while this rank computes. */
        if (started > 0 && sluice_test(reqs[0]) < 0)
            fprintf(stderr, "rank %d: %s\n", rank, sluice_last_error());
    }
    for (int layer = 0; layer < started; layer++) {
        int status = sluice_wait(reqs[layer]);

        if (status != 0)
            fprintf(stderr, "rank %d: layer %d: %s\n", rank, layer, sluice_last_error());
        if (err == 0)
            err = status;
        sluice_req_free(reqs[layer]);
        for (int i = 0; i < PARAMETERS; i++)
            wrong += gradients[layer][i] != (float)layer + (float)(size - 1) / 2;
    }
    if (rank == 0 && err == 0)
        printf("%d layers averaged over %d ranks, %d wrong\n", LAYERS, size, wrong);
    sluice_comm_destroy(comm);
    return err != 0 || wrong != 0;
}
