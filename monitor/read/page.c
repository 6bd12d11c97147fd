/* SPDX-License-Identifier: Apache-2.0 */
/* Copies what a state page says, by core/state_read.h, which believes nothing of it. */
#include "monitor/read/page.h"
#include "core/err.h"
#include "core/state_read.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define RECORDS_MAX SL_STATE_PATHS_MAX /* of a kind, that are looked at */

static int no_memory(void)
{
    return sl_fail(-ENOMEM, "no memory for a state page");
}

void sl_page_free(struct sl_page *page)
{
    free(page->comms);
    free(page->ops);
    free(page->paths);
    free(page->calls);
    free(page->windows);
    *page = (struct sl_page){.comms = NULL};
}

/* ---- records ---- */

static uint32_t count_of(const struct sl_state_reader *reader, enum sl_state_kind kind)
{
    uint32_t count = sl_state_count(reader, kind);

    return count < RECORDS_MAX ? count : RECORDS_MAX;
}

static void take_shape(const struct sl_state_reader *reader, uint64_t begun, uint64_t comm,
                       struct sl_state_shape *out)
{
    uint64_t place = begun >> SL_STATE_SHAPE_SHIFT;

    if (place == 0 || place > RECORDS_MAX ||
        sl_state_get(reader, SL_STATE_SHAPE, (uint32_t)place - 1, out, sizeof(*out)) !=
            SL_STATE_WHOLE ||
        out->comm != comm)
        *out = (struct sl_state_shape){.root = -1};
}

static void take_comm(const struct sl_state_reader *reader, const struct sl_state_comm *in,
                      struct sl_page_comm *out)
{
    uint64_t begun;

    *out = (struct sl_page_comm){.number = in->number,
                                 .id = in->id,
                                 .rank = in->rank,
                                 .size = in->size,
                                 .flags = in->flags,
                                 .error = in->error,
                                 .disputed = in->disputed,
                                 .made_ns = in->made_ns,
                                 .updated_ns = in->updated_ns};
    for (unsigned i = 0; i < 2; i++) {
        begun = atomic_load_explicit(&in->calls.begun[i], memory_order_relaxed);
        out->begun[i] = begun & ((UINT64_C(1) << SL_STATE_SHAPE_SHIFT) - 1);
        out->ended[i] = atomic_load_explicit(&in->calls.ended[i], memory_order_relaxed);
        if (i == 0)
            take_shape(reader, begun, in->number, &out->last);
    }
}

/* A communicator that is torn is one that is being written, or was when its process died. */
static int read_comms(const struct sl_state_reader *reader, struct sl_page *page)
{
    uint32_t count = count_of(reader, SL_STATE_COMM);

    page->comms = calloc(count + 1, sizeof(*page->comms));
    if (page->comms == NULL)
        return no_memory();
    for (uint32_t i = 0; i < count; i++) {
        struct sl_state_comm record;

        if (sl_state_get(reader, SL_STATE_COMM, i, &record, sizeof(record)) == SL_STATE_WHOLE &&
            record.number != 0)
            take_comm(reader, &record, &page->comms[page->comm_count++]);
    }
    return 0;
}

static int read_ops(const struct sl_state_reader *reader, struct sl_page *page)
{
    uint32_t count = count_of(reader, SL_STATE_OP);

    page->ops = calloc(count + 1, sizeof(*page->ops));
    if (page->ops == NULL)
        return no_memory();
    for (uint32_t i = 0; i < count; i++) {
        struct sl_state_op *op = &page->ops[page->op_count];

        page->op_count += sl_state_get(reader, SL_STATE_OP, i, op, sizeof(*op)) == SL_STATE_WHOLE &&
                          op->comm != 0;
    }
    return 0;
}

static int read_paths(const struct sl_state_reader *reader, struct sl_page *page)
{
    uint32_t count = count_of(reader, SL_STATE_PATH), cap = 0;
    struct sl_state_path path;

    for (uint32_t i = 0; i < count; i++) {
        if (sl_state_get(reader, SL_STATE_PATH, i, &path, sizeof(path)) != SL_STATE_WHOLE ||
            path.comm == 0)
            continue;
        if (page->path_count == cap) {
            struct sl_state_path *more =
                reallocarray(page->paths, cap = cap == 0 ? 16 : 2 * cap, sizeof(*more));

            if (more == NULL)
                return no_memory();
            page->paths = more;
        }
        page->paths[page->path_count++] = path;
    }
    return 0;
}

static int read_calls(const struct sl_state_reader *reader, struct sl_page *page)
{
    uint32_t count = count_of(reader, SL_STATE_CALL);

    page->calls = calloc(count + 1, sizeof(*page->calls));
    if (page->calls == NULL)
        return no_memory();
    for (uint32_t i = 0; i < count; i++) {
        struct sl_state_call *call = &page->calls[page->call_count];

        page->call_count +=
            sl_state_get(reader, SL_STATE_CALL, i, call, sizeof(*call)) == SL_STATE_WHOLE;
    }
    return 0;
}

static int read_page(const struct sl_state_reader *reader, struct sl_page *out)
{
    int err;

    *out = (struct sl_page){.now_ns = SL_JOB_NEVER};
    if (sl_state_count(reader, SL_STATE_COMM) == 0 && sl_state_count(reader, SL_STATE_NCCL) > 0)
        return sl_fail(-EPROTO, "it has events of NCCL's profiler, and no page of Sluice's own");
    if (sl_state_get(reader, SL_STATE_PROCESS, 0, &out->self, sizeof(out->self)) != SL_STATE_WHOLE)
        return sl_fail(-EPROTO, "the process has not said who it is");
    if (out->self.made_wall_s < INT64_MAX / 1000000000)
        out->wall_ns = (int64_t)(out->self.made_wall_s * 1000000000 - out->self.made_ns);
    err = read_comms(reader, out);
    if (err == 0)
        err = read_ops(reader, out);
    if (err == 0)
        err = read_paths(reader, out);
    if (err == 0)
        err = read_calls(reader, out);
    if (err != 0)
        sl_page_free(out);
    return err;
}

int sl_page_read_fd(int fd, struct sl_page *out)
{
    struct sl_state_reader reader;
    int err = sl_state_read_fd(fd, &reader);

    return err != 0 ? err : read_page(&reader, out);
}

int sl_page_read_memory(const void *bytes, size_t len, struct sl_page *out)
{
    struct sl_state_reader reader;
    int err = sl_state_read_memory(bytes, len, &reader);

    return err != 0 ? err : read_page(&reader, out);
}

/* ---- comparing ---- */

bool sl_page_share(const struct sl_page *a, const struct sl_page *b)
{
    for (uint32_t i = 0; i < a->comm_count; i++)
        for (uint32_t k = 0; k < b->comm_count; k++)
            if (a->comms[i].id == b->comms[k].id && a->comms[i].size == b->comms[k].size)
                return strcmp(a->self.job, b->self.job) == 0;
    return false;
}

bool sl_page_is_same(const struct sl_page *a, const struct sl_page *b)
{
    return a->self.pid == b->self.pid && a->self.start_ticks == b->self.start_ticks &&
           a->self.made_ns == b->self.made_ns && strcmp(a->self.host, b->self.host) == 0;
}

static void later(uint64_t *latest, uint64_t time)
{
    if (time > *latest && time < INT64_MAX / 2)
        *latest = time;
}

uint64_t sl_page_latest(const struct sl_page *page)
{
    uint64_t latest = 0;

    later(&latest, page->self.made_ns);
    for (uint32_t i = 0; i < page->comm_count; i++)
        later(&latest, page->comms[i].updated_ns);
    for (uint32_t i = 0; i < page->op_count; i++)
        later(&latest, page->ops[i].updated_ns);
    for (uint32_t i = 0; i < page->path_count; i++)
        later(&latest, page->paths[i].updated_ns);
    return latest;
}
