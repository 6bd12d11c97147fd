/* SPDX-License-Identifier: Apache-2.0 */
/* Our side of the comparison: the public calls in the same loop. Rank, size and meeting place come
 * from the environment. PEER_REGISTER=1: the buffers are registered, once for each size. */
#include "loop.h"

#include <sluice/sluice.h>

static void check(int err)
{
    if (err != 0) {
        fprintf(stderr, "%s: %s\n", sluice_strerror(err), sluice_last_error());
        exit(1);
    }
}

static void run(void *self, enum coll coll, const float *in, float *out, size_t count)
{
    struct sluice_comm *comm = (struct sluice_comm *)self;
    int err;

    switch (coll) {
    case ALLREDUCE:
        err = sluice_allreduce(comm, in, out, count, SLUICE_F32, SLUICE_SUM, NULL);
        break;
    case ALL_GATHER: err = sluice_all_gather(comm, in, out, count, SLUICE_F32, NULL); break;
    case REDUCE_SCATTER:
        err = sluice_reduce_scatter(comm, in, out, count, SLUICE_F32, SLUICE_SUM, NULL);
        break;
    case ALL_TO_ALL: err = sluice_all_to_all(comm, in, out, count, SLUICE_F32, NULL); break;
    case BROADCAST: err = sluice_broadcast(comm, out, out, count, SLUICE_F32, 0, NULL); break;
    case REDUCE: err = sluice_reduce(comm, in, out, count, SLUICE_F32, SLUICE_SUM, 0, NULL); break;
    default: err = sluice_barrier(comm, NULL); break;
    }
    check(err);
}

static double max(void *self, double value)
{
    double largest;

    check(sluice_allreduce((struct sluice_comm *)self, &value, &largest, 1, SLUICE_F64, SLUICE_MAX,
                           NULL));
    return largest;
}

static void buffers(void *self, float *in, float *out, size_t len)
{
    static struct sluice_buffer *lent[2];
    struct sluice_comm *comm = (struct sluice_comm *)self;

    for (int i = 0; i < 2; i++) {
        sluice_deregister(comm, lent[i]);
        lent[i] = NULL;
        if (in != NULL)
            check(sluice_register(comm, i == 0 ? in : out, len, &lent[i]));
    }
}

int main(int argc, char **argv)
{
    struct peer peer = {.run = run, .max = max};
    const char *reg = getenv("PEER_REGISTER");
    struct sluice_comm *comm;
    int status;

    check(sluice_comm_from_env(&comm));
    peer.self = comm;
    if (reg != NULL && reg[0] == '1')
        peer.buffers = buffers;
    peer.rank = sluice_comm_rank(comm);
    peer.size = sluice_comm_size(comm);
    status = loop_main(&peer, argc, argv);
    sluice_comm_destroy(comm);
    return status;
}
