/* SPDX-License-Identifier: Apache-2.0 */
/* Says in words what operations are doing and whom they wait for. */
#include "collectives/report.h"

#include "collectives/exec.h"
#include "core/code.h"
#include "core/state_text.h"

#include <string.h>

static void add_arguments(const struct sl_signature *call, char *out, size_t cap)
{
    enum sl_coll coll = (enum sl_coll)call->coll;

    if (coll == SL_BARRIER)
        return;
    sl_text_add(out, cap, "%llu %s", (unsigned long long)call->count,
                sluice_dtype_name((enum sluice_dtype)call->dtype));
    if (sl_coll_reduces(coll))
        sl_text_add(out, cap, " %s", sluice_op_name((enum sluice_op)call->op));
    if (coll == SL_SEND || coll == SL_RECV)
        sl_text_add(out, cap, ", peer %u", call->root);
    else if (coll == SL_BROADCAST || coll == SL_REDUCE || coll == SL_GATHER || coll == SL_SCATTER)
        sl_text_add(out, cap, ", root %u", call->root);
}

/* The parameters are told apart by their hash: peers know no more of each other's. */
static void add_codec(const struct sluice_comm *comm, uint32_t mark, char *out, size_t cap)
{
    uint32_t number = sl_code_mark_name(mark);
    const char *name = comm->codec_name != NULL ? comm->codec_name(number) : NULL;

    if (name != NULL)
        sl_text_add(out, cap, " by codec %s, parameters %06x", name, mark & 0xffffff);
    else
        sl_text_add(out, cap, " by codec number %u, parameters %06x", number, mark & 0xffffff);
}

void sl_report_call(const struct sluice_comm *comm, const struct sl_signature *call, char *out,
                    size_t cap)
{
    out[0] = '\0';
    if (call == NULL) {
        sl_text_add(out, cap, "did not call it yet");
        return;
    }
    if (call->fingerprint == 0) {
        sl_text_add(out, cap, "can no longer say what it was");
        return;
    }
    sl_text_add(out, cap, "called %s(", sl_coll_name((enum sl_coll)call->coll));
    add_arguments(call, out, cap);
    sl_text_add(out, cap, ")");
    if (call->code != 0)
        add_codec(comm, call->code, out, cap);
}

/* ---- records of the state page ---- */

static void copy_word(char *out, size_t cap, const char *text)
{
    size_t len = strnlen(text, cap - 1);

    memcpy(out, text, len);
    memset(out + len, 0, cap - len);
}

#define WORD(field, text) copy_word(field, sizeof(field), text)

static int32_t root_of(const struct sl_call *call)
{
    bool named = sl_coll_has_root(call->coll) || call->coll == SL_SEND || call->coll == SL_RECV;

    return named ? (int32_t)call->root : -1;
}

void sl_report_fill_call(const struct sl_call *call, const char *algo, struct sl_state_shape *out)
{
    bool sized = call->coll != SL_BARRIER;

    out->count = call->count;
    out->bytes = sized ? call->count * sluice_dtype_size(call->dtype) : 0;
    out->root = root_of(call);
    WORD(out->coll, sl_coll_name(call->coll));
    WORD(out->dtype, sized ? sluice_dtype_name(call->dtype) : "");
    WORD(out->redop, sl_coll_reduces(call->coll) ? sluice_op_name(call->op) : "");
    WORD(out->algo, algo);
}

static void fill_waiting(const struct sluice_req *op, struct sl_state_op *out)
{
    struct sl_waiting waiting;

    sl_op_waiting(op, &waiting);
    if (waiting.what == NULL)
        return;
    out->step = waiting.step;
    if (waiting.runner != NULL) {
        WORD(out->doing, sl_step_row(waiting.what)->name);
        WORD(out->path, waiting.runner);
        return;
    }
    out->peer = waiting.rank;
    if (waiting.rank < 0)
        return;
    const char *doing = sl_step_row(waiting.what)->doing;
    const struct sl_ep *ep = sl_comm_peer(op->comm, (uint32_t)waiting.rank)->ep;

    WORD(out->doing, doing != NULL ? doing : "waits for");
    if (ep != NULL)
        ep->iface->ops->ep_describe(ep, out->path, sizeof(out->path));
}

void sl_report_fill(const struct sluice_req *op, struct sl_state_op *out)
{
    const struct sl_plan *plan = op->plan;
    struct sl_state_shape shape = {.turn = 0};

    sl_report_fill_call(&plan->call, plan->schedule.algo, &shape);
    *out = (struct sl_state_op){.idle_ns = op->comm->wait.idle_ns,
                                .count = shape.count,
                                .bytes = shape.bytes,
                                .moved = op->bytes,
                                .seq = op->seq,
                                .root = shape.root,
                                .step = plan->schedule.step_count,
                                .steps = plan->schedule.step_count,
                                .peer = -1,
                                .in_flight = op->in_flight};
    memcpy(out->coll, shape.coll, sizeof(out->coll));
    memcpy(out->dtype, shape.dtype, sizeof(out->dtype));
    memcpy(out->redop, shape.redop, sizeof(out->redop));
    memcpy(out->algo, shape.algo, sizeof(out->algo));
    fill_waiting(op, out);
}

void sl_report_op(const struct sluice_req *op, char *out, size_t cap)
{
    struct sl_state_op record;

    sl_report_fill(op, &record);
    sl_state_op_text(&record, out, cap);
}
