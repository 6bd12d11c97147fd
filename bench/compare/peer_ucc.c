/* SPDX-License-Identifier: Apache-2.0 */
/* The UCC peer: MPI starts the ranks and carries UCC's addresses, nothing else. A collective is set
 * up once for its buffers and then posted again and again, the fastest way that UCC has.
 * PEER_YIELD=1: waits by sched_yield(), for more ranks than cores. */
#include "loop.h"

#include <mpi.h>
#include <sched.h>
#include <ucc/api/ucc.h>

struct ucc {
    ucc_context_h context;
    ucc_team_h team;
    ucc_coll_req_h request; /* of the call below, or NULL */
    enum coll coll;
    const float *in;
    float *out;
    size_t count;
    int size, yield;
};

static void check(ucc_status_t status, const char *what)
{
    if (status >= UCC_OK)
        return;
    fprintf(stderr, "%s: %s\n", what, ucc_status_string(status));
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* ---- the meeting ---- */

static ucc_status_t meet(void *mine, void *all, size_t len, void *unused, void **request)
{
    MPI_Request *pending = (MPI_Request *)malloc(sizeof(*pending));

    (void)unused;
    MPI_Iallgather(mine, (int)len, MPI_BYTE, all, (int)len, MPI_BYTE, MPI_COMM_WORLD, pending);
    *request = pending;
    return UCC_OK;
}

static ucc_status_t meet_test(void *request)
{
    int done;

    MPI_Test((MPI_Request *)request, &done, MPI_STATUS_IGNORE);
    return done ? UCC_OK : UCC_INPROGRESS;
}

static ucc_status_t meet_free(void *request)
{
    free(request);
    return UCC_OK;
}

static void open_team(struct ucc *ucc, int rank)
{
    ucc_lib_params_t lib_params = {.mask = UCC_LIB_PARAM_FIELD_THREAD_MODE,
                                   .thread_mode = UCC_THREAD_SINGLE};
    ucc_oob_coll_t oob = {.allgather = meet,
                          .req_test = meet_test,
                          .req_free = meet_free,
                          .n_oob_eps = (uint32_t)ucc->size,
                          .oob_ep = (uint32_t)rank};
    ucc_context_params_t context_params = {.mask = UCC_CONTEXT_PARAM_FIELD_OOB, .oob = oob};
    ucc_team_params_t team_params = {
        .mask = UCC_TEAM_PARAM_FIELD_EP | UCC_TEAM_PARAM_FIELD_EP_RANGE | UCC_TEAM_PARAM_FIELD_OOB,
        .ep = (uint64_t)rank,
        .ep_range = UCC_COLLECTIVE_EP_RANGE_CONTIG,
        .oob = oob};
    ucc_lib_config_h lib_config;
    ucc_context_config_h context_config;
    ucc_lib_h lib;
    ucc_status_t status;

    check(ucc_lib_config_read(NULL, NULL, &lib_config), "reading UCC's settings");
    check(ucc_init(&lib_params, lib_config, &lib), "ucc_init");
    ucc_lib_config_release(lib_config);
    check(ucc_context_config_read(lib, NULL, &context_config), "reading the context's settings");
    check(ucc_context_create(lib, &context_params, context_config, &ucc->context),
          "ucc_context_create");
    ucc_context_config_release(context_config);
    check(ucc_team_create_post(&ucc->context, 1, &team_params, &ucc->team), "ucc_team_create_post");
    while ((status = ucc_team_create_test(ucc->team)) == UCC_INPROGRESS)
        ucc_context_progress(ucc->context);
    check(status, "making a team");
}

/* ---- calls ---- */

static ucc_coll_buffer_info_t buffer(const void *at, size_t count, ucc_datatype_t type)
{
    ucc_coll_buffer_info_t info = {
        .buffer = (void *)at, .count = count, .datatype = type, .mem_type = UCC_MEMORY_TYPE_HOST};

    return info;
}

static void set_up(struct ucc *ucc, ucc_coll_args_t *args, ucc_datatype_t type)
{
    static const ucc_coll_type_t types[COLL_COUNT] = {[ALLREDUCE] = UCC_COLL_TYPE_ALLREDUCE,
                                                      [ALL_GATHER] = UCC_COLL_TYPE_ALLGATHER,
                                                      [REDUCE_SCATTER] =
                                                          UCC_COLL_TYPE_REDUCE_SCATTER,
                                                      [ALL_TO_ALL] = UCC_COLL_TYPE_ALLTOALL,
                                                      [BROADCAST] = UCC_COLL_TYPE_BCAST,
                                                      [REDUCE] = UCC_COLL_TYPE_REDUCE,
                                                      [BARRIER] = UCC_COLL_TYPE_BARRIER};
    size_t all = ucc->count * (size_t)ucc->size, in = ucc->count, out = ucc->count;

    /* UCC counts all blocks where it has blocks. */
    if (ucc->coll == ALL_GATHER || ucc->coll == ALL_TO_ALL)
        out = all;
    if (ucc->coll == REDUCE_SCATTER || ucc->coll == ALL_TO_ALL)
        in = all;
    args->coll_type = types[ucc->coll];
    args->op = UCC_OP_SUM;
    if (ucc->coll == BROADCAST) {
        args->src.info = buffer(ucc->out, ucc->count, type);
    } else if (ucc->coll != BARRIER) {
        args->src.info = buffer(ucc->in, in, type);
        args->dst.info = buffer(ucc->out, out, type);
    }
}

static void wait_for(struct ucc *ucc, ucc_coll_req_h request)
{
    ucc_status_t status;

    check(ucc_collective_post(request), "ucc_collective_post");
    while ((status = ucc_collective_test(request)) == UCC_INPROGRESS) {
        ucc_context_progress(ucc->context);
        if (ucc->yield)
            sched_yield();
    }
    check(status, "a collective");
}

static void forget(struct ucc *ucc)
{
    if (ucc->request != NULL)
        check(ucc_collective_finalize(ucc->request), "ucc_collective_finalize");
    ucc->request = NULL;
}

static void run(void *self, enum coll coll, const float *in, float *out, size_t count)
{
    struct ucc *ucc = (struct ucc *)self;

    if (ucc->request == NULL || ucc->coll != coll || ucc->in != in || ucc->out != out ||
        ucc->count != count) {
        ucc_coll_args_t args = {.mask = UCC_COLL_ARGS_FIELD_FLAGS,
                                .flags = UCC_COLL_ARGS_FLAG_PERSISTENT};

        forget(ucc);
        ucc->coll = coll;
        ucc->in = in;
        ucc->out = out;
        ucc->count = count;
        set_up(ucc, &args, UCC_DT_FLOAT32);
        check(ucc_collective_init(&args, &ucc->request, ucc->team), "ucc_collective_init");
    }
    wait_for(ucc, ucc->request);
}

static double max(void *self, double value)
{
    double largest;

    (void)self;
    MPI_Allreduce(&value, &largest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return largest;
}

int main(int argc, char **argv)
{
    struct ucc ucc = {.request = NULL};
    struct peer peer = {.self = &ucc, .run = run, .max = max};
    int status;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &peer.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &peer.size);
    ucc.size = peer.size;
    ucc.yield = getenv("PEER_YIELD") != NULL;
    open_team(&ucc, peer.rank);
    status = loop_main(&peer, argc, argv);
    forget(&ucc);
    MPI_Finalize(); /* the process ends: UCC's team and context with it */
    return status;
}
