/* SPDX-License-Identifier: Apache-2.0 */
/* Says in words what operations are doing and whom they wait for. */
#include "collectives/report.h"

#include "collectives/exec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void append(char *out, size_t cap, size_t *len, const char *fmt, ...) SL_PRINTF(4, 5);

static void append(char *out, size_t cap, size_t *len, const char *fmt, ...)
{
    va_list args;

    if (*len + 1 >= cap)
        return;
    va_start(args, fmt);
    int n = vsnprintf(out + *len, cap - *len, fmt, args);
    va_end(args);
    if (n > 0)
        *len = *len + (size_t)n < cap ? *len + (size_t)n : cap - 1;
}

static void append_call(char *out, size_t cap, size_t *len, enum sl_coll coll, uint64_t count,
                        enum sluice_dtype dtype, enum sluice_op op, uint32_t root)
{
    if (coll == SL_BARRIER)
        return;
    append(out, cap, len, "%llu %s", (unsigned long long)count, sluice_dtype_name(dtype));
    if (sl_coll_reduces(coll))
        append(out, cap, len, " %s", sluice_op_name(op));
    if (coll == SL_SEND || coll == SL_RECV)
        append(out, cap, len, ", peer %u", root);
    else if (coll == SL_BROADCAST || coll == SL_REDUCE || coll == SL_GATHER || coll == SL_SCATTER)
        append(out, cap, len, ", root %u", root);
}

void sl_report_call(const struct sl_signature *call, char *out, size_t cap)
{
    size_t len = 0;

    out[0] = '\0';
    if (call == NULL) {
        append(out, cap, &len, "did not call it yet");
        return;
    }
    if (call->fingerprint == 0) {
        append(out, cap, &len, "can no longer say what it was");
        return;
    }
    append(out, cap, &len, "called %s(", sl_coll_name((enum sl_coll)call->coll));
    append_call(out, cap, &len, (enum sl_coll)call->coll, call->count,
                (enum sluice_dtype)call->dtype, (enum sluice_op)call->op, call->root);
    append(out, cap, &len, ")");
}

static void append_waiting(const struct sluice_req *op, char *out, size_t cap, size_t *len)
{
    const struct sluice_comm *comm = op->comm;
    struct sl_waiting waiting;
    char path[280]; /* with the words around it in 512 bytes, where sl_comm_fail() puts all of it */

    sl_op_waiting(op, &waiting);
    if (waiting.what == NULL)
        return;
    append(out, cap, len, " at step %u of %u", waiting.step, op->plan->schedule.step_count);
    if (waiting.runner != NULL)
        append(out, cap, len, ", %s by %s", sl_step_row(waiting.what)->name, waiting.runner);
    if (waiting.rank < 0 || waiting.runner != NULL)
        return;
    const char *words = sl_step_row(waiting.what)->doing;
    const struct sl_ep *ep = comm->peers[waiting.rank].ep;

    append(out, cap, len, ", %s rank %d", words != NULL ? words : "waits for", waiting.rank);
    if (ep == NULL)
        return;
    ep->iface->ops->ep_describe(ep, path, sizeof(path));
    append(out, cap, len, " by %s", path);
}

void sl_report_op(const struct sluice_req *op, char *out, size_t cap)
{
    const struct sl_plan *plan = op->plan;
    const struct sl_call *call = &plan->call;
    size_t len = 0;

    out[0] = '\0';
    append(out, cap, &len, "%s", sl_coll_name(call->coll));
    if (op->seq != 0)
        append(out, cap, &len, " number %u", op->seq);
    append(out, cap, &len, " (");
    append_call(out, cap, &len, call->coll, call->count, call->dtype, call->op, call->root);
    append(out, cap, &len, "%s%s)", call->coll == SL_BARRIER ? "" : ", ", plan->schedule.algo);
    append_waiting(op, out, cap, &len);
    append(out, cap, &len, ", %llu bytes so far, no progress for %.3f s",
           (unsigned long long)op->bytes, (double)op->comm->wait.idle_ns / 1e9);
}

size_t sl_report_comm(const struct sluice_comm *comm, char *out, size_t cap)
{
    size_t len = 0;

    out[0] = '\0';
    append(out, cap, &len, "communicator of %u ranks, this is rank %u, %u collectives called",
           comm->size, comm->rank, comm->calls.seq);
    if (comm->health.error != 0)
        append(out, cap, &len, ", broken: %s: %s", sluice_strerror(comm->health.error),
               comm->health.error_text);
    append(out, cap, &len, "\n");
    if (comm->health.error == 0 && sl_list_empty(&comm->calls.active))
        append(out, cap, &len, "  nothing is under way\n");
    sl_list_foreach(&comm->calls.active, node)
    {
        char text[512];

        sl_report_op(sl_container_of(node, const struct sluice_req, link), text, sizeof(text));
        append(out, cap, &len, "  %s\n", text);
    }
    return len;
}

size_t sl_report_paths(const struct sluice_comm *comm, struct sl_path_stat *out, size_t cap)
{
    size_t count = 0;

    if (comm->kept_paths != NULL) {
        count = comm->kept_path_count;
        if (cap > 0)
            memcpy(out, comm->kept_paths, (count < cap ? count : cap) * sizeof(*out));
        return count;
    }
    for (uint32_t rank = 0; rank < comm->size; rank++) {
        const struct sl_ep *ep = comm->peers[rank].ep;
        size_t room = count < cap ? cap - count : 0;

        if (ep != NULL)
            count += ep->iface->ops->ep_stats(ep, room > 0 ? out + count : NULL, room);
    }
    return count;
}

void sl_report_keep_paths(struct sluice_comm *comm)
{
    size_t count = sl_report_paths(comm, NULL, 0);
    struct sl_path_stat *kept = count == 0 ? NULL : calloc(count, sizeof(*kept));

    if (kept == NULL)
        return;
    comm->kept_path_count = sl_report_paths(comm, kept, count);
    comm->kept_paths = kept;
}
