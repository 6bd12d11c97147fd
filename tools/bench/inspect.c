/* SPDX-License-Identifier: Apache-2.0 */
/* --explain, --print-schedule. */
#include "inspect.h"

#include "collectives/code.h"
#include "collectives/select.h"
#include "colls.h"
#include "sweep.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct inspection {
    struct sluice_comm *comm;
    FILE *out;
    bool schedule; /* otherwise: explain */
    uint64_t *v;   /* in_counts, in_offs, out_counts, out_offs of all_to_all_v; [4 * size] */
};

static void fill_v(struct inspection *in, size_t count, struct sl_call *call)
{
    uint32_t size = in->comm->size, rank = in->comm->rank;
    uint64_t sent = 0, received = 0;

    for (uint32_t peer = 0; peer < size; peer++) {
        in->v[peer] = sb_alltoallv_count(count, (int)rank, (int)peer);
        in->v[size + peer] = sent;
        in->v[2 * size + peer] = sb_alltoallv_count(count, (int)peer, (int)rank);
        in->v[3 * size + peer] = received;
        sent += in->v[peer];
        received += in->v[2 * size + peer];
    }
    call->in_counts = in->v;
    call->in_offs = in->v + size;
    call->out_counts = in->v + 2 * size;
    call->out_offs = in->v + 3 * size;
}

static struct sl_call call_of(struct inspection *in, const struct sb_row *row)
{
    struct sl_call call = {
        .coll = sb_colls[row->coll].coll,
        .dtype = row->dtype,
        .op = row->op >= 0 ? (enum sluice_op)row->op : SLUICE_SUM,
        .root = row->root >= 0 ? (uint32_t)row->root : 0,
        .count = row->count,
    };

    if (row->coll == SB_ALL_TO_ALL_V)
        fill_v(in, (size_t)row->count, &call);
    if (row->coll == SB_SENDRECV)
        call.root = (in->comm->rank + 1) % in->comm->size;
    return call;
}

/* The other half of sendrecv, which call is the sending half of. */
static struct sl_call receive_of(struct inspection *in, struct sl_call call)
{
    call.coll = SL_RECV;
    call.root = (in->comm->rank + in->comm->size - 1) % in->comm->size;
    return call;
}

static int explain(struct inspection *in, const struct sb_row *row)
{
    struct sl_call call = call_of(in, row);

    return in->comm->rank == 0 ? sl_select_explain(in->comm, &call, in->out) : 0;
}

static int print_one(struct inspection *in, const struct sb_row *row, const struct sl_call *call)
{
    struct sl_runner *runners[2];
    struct sl_schedule schedule;
    struct sl_recipe coded;
    struct sl_shape shape;
    int err;

    sl_call_shape(in->comm, call, &shape);
    if (sl_coding_recipe(in->comm->coding, in->comm, call, in->comm->speeds.now, runners, &coded)) {
        shape.code = coded.code;
        shape.inner = coded.inner;
        err = sl_select_build_as(in->comm, coded.algo, &shape, &schedule);
    } else {
        err = sl_select_build(in->comm, &shape, &schedule);
    }

    if (err != 0)
        return err;
    fprintf(in->out, "# rank %" PRIu32 ": %s%s of %" PRIu64 " %s by %s, %" PRIu32 " step%s\n",
            in->comm->rank, sb_colls[row->coll].name,
            row->coll != SB_SENDRECV ? ""
            : call->coll == SL_SEND  ? " (the send)"
                                     : " (the receive)",
            row->count, sluice_dtype_name(row->dtype), schedule.algo, schedule.step_count,
            schedule.step_count == 1 ? "" : "s");
    sl_schedule_print(&schedule, in->out);
    sl_schedule_fini(&schedule);
    return 0;
}

/* Rank after rank, each in one piece. */
static int print_schedule(struct inspection *in, const struct sb_row *row)
{
    struct sl_call call = call_of(in, row);
    int err = 0;

    for (uint32_t rank = 0; rank < in->comm->size; rank++) {
        if (err == 0 && rank == in->comm->rank) {
            err = print_one(in, row, &call);
            if (err == 0 && row->coll == SB_SENDRECV) {
                call = receive_of(in, call);
                err = print_one(in, row, &call);
            }
            fflush(in->out);
        }
        if (sluice_barrier(in->comm, NULL) != 0 && err == 0)
            err = sluice_comm_async_error(in->comm);
    }
    return err;
}

static int inspect_row(void *arg, const struct sb_row *row)
{
    struct inspection *in = arg;
    bool raw = row->codec == NULL || strcmp(row->codec, "raw") == 0;
    int err =
        row->codec != NULL ? sluice_comm_set_compression(in->comm, raw ? NULL : row->codec) : 0;

    if (err != 0)
        return err;
    return in->schedule ? print_schedule(in, row) : explain(in, row);
}

int sb_inspect(struct sluice_comm *comm, const struct sb_options *options, FILE *out)
{
    struct sb_options wanted = *options;
    struct inspection in = {.comm = comm, .out = out, .schedule = options->mode == SB_SCHEDULE};
    int err;

    in.v = calloc(4 * (size_t)comm->size, sizeof(*in.v));
    if (in.v == NULL)
        return sl_fail(-ENOMEM, "no memory for the tables of %u ranks", (unsigned)comm->size);
    if (in.schedule) /* one size: a schedule may be long */
        wanted.max_bytes = wanted.min_bytes;
    wanted.cycles = 1;
    err = sb_sweep_visit(&wanted, (int)comm->size, inspect_row, &in);
    free(in.v);
    return err;
}
