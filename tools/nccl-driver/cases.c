/* SPDX-License-Identifier: Apache-2.0 */
/* What several cases do alike. */
#include "tools/nccl-driver/cases.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define POISON 0xdb /* memory that is free again */

const size_t case_small[] = {0, 1, 7, 8, 64, 100, 4095, 4096, 4097};
const unsigned case_small_count = sizeof(case_small) / sizeof(case_small[0]);
const size_t case_mixed[] = {0, 1, 128, 4096, 65537, 131072, 524288 + 8, 1 << 20};
const unsigned case_mixed_count = sizeof(case_mixed) / sizeof(case_mixed[0]);
uint64_t case_fault_ns;
const char *case_until;

void case_ring(const struct rank *r, struct conn *conns, unsigned count, int first_id)
{
    memset(conns, 0, count * sizeof(*conns));
    for (unsigned i = 0; i < count; i++) {
        int from = (int)(i / 2) % r->count, to = (from + 1) % r->count;

        conns[i].id = first_id + (int)i;
        conns[i].from = i % 2 == 0 ? from : to;
        conns[i].to = i % 2 == 0 ? to : from;
    }
}

static int begin_one(struct rank *r, struct flow *f, const struct flow *like, const struct conn *c,
                     bool send)
{
    *f = *like;
    f->conn = c->id;
    f->send = send;
    f->comm = send ? c->send_comm : c->recv_comm;
    if (f->subs == 0) {
        f->subs = 1;
        f->tags[0] = c->from;
    }
    return flow_start(r, f);
}

int case_begin(struct rank *r, struct conn *conns, unsigned count, const struct flow *like,
               struct flow **flows, unsigned *flow_count)
{
    *flow_count = 0;
    *flows = calloc(2 * (size_t)count, sizeof(**flows));
    if (*flows == NULL)
        return watch_fail("no memory");
    for (unsigned i = 0; i < count; i++) {
        if (conns[i].recv_comm != NULL &&
            begin_one(r, &(*flows)[(*flow_count)++], like, &conns[i], false) != 0)
            return -1;
        if (conns[i].send_comm != NULL &&
            begin_one(r, &(*flows)[(*flow_count)++], like, &conns[i], true) != 0)
            return -1;
    }
    return 0;
}

int case_end(struct rank *r, struct flow *flows, unsigned flow_count)
{
    for (unsigned i = 0; i < flow_count; i++)
        if (flow_await(r, &flows[i]) != 0)
            return -1; /* the progress thread may still look at them: the process ends soon */
    for (unsigned i = 0; i < flow_count; i++)
        if (flow_stop(r, &flows[i]) != 0)
            return -1;
    free(flows);
    return 0;
}

int case_carry(struct rank *r, struct conn *conns, unsigned count, const struct flow *like)
{
    struct flow *flows;
    unsigned flow_count;

    if (case_begin(r, conns, count, like, &flows, &flow_count) != 0)
        return -1;
    return case_end(r, flows, flow_count);
}

/* Until that count of one of these flows is reached. */
static int reaches(atomic_uint *count, unsigned enough, struct flow *f)
{
    while (atomic_load(count) < enough && atomic_load(&f->state) == FLOW_RUN)
        if (watch_over(0))
            return -1;
        else
            sched_yield();
    return 0;
}

int case_asked(struct flow *flows, unsigned flow_count, unsigned requests)
{
    int rc = 0;

    watch_wait("requests to be taken");
    for (unsigned i = 0; i < flow_count && rc == 0; i++)
        rc = reaches(&flows[i].asked, requests, &flows[i]);
    watch_leave(false);
    return rc;
}

int case_moved(struct rank *r, struct flow *flows, unsigned flow_count, unsigned messages)
{
    int rc = 0;

    watch_wait("traffic");
    for (unsigned i = 0; i < flow_count && rc == 0; i++)
        rc = reaches(&flows[i].moved, messages, &flows[i]);
    watch_leave(false);
    return rc;
}

int case_quick(struct rank *r, int first_id)
{
    const struct flow like = {.steps = 20, .sizes = case_small, .size_count = case_small_count};
    struct conn conns[2];

    case_ring(r, conns, 2, first_id);
    if (rank_connect(r, conns, 2) != 0 || case_carry(r, conns, 2, &like) != 0)
        return -1;
    rank_close(r, conns, 2);
    return watch_failed() ? -1 : 0;
}

/* Deregistration and the end of one piece of memory. */
static int abandon(struct rank *r, struct flow *f, unsigned sub, enum case_abort mode)
{
    struct job job = {.kind = JOB_DEREG, .conn = f->conn, .comm = f->comm, .mr = f->mrs[sub]};

    if (rank_do(r, &job) != 0)
        return -1;
    if (mode == ABORT_PROTECT) {
        watch_retire(f->memory[sub], f->len);
        mprotect(f->memory[sub], f->len, PROT_NONE);
    } else {
        memset(f->memory[sub], POISON, f->len);
    }
    return 0;
}

static void look_after(const struct flow *f, unsigned sub)
{
    for (size_t i = 0; i < f->len; i++)
        if (f->memory[sub][i] != POISON) {
            watch_about(f->conn, -1);
            watch_fail("memory of a %s was written after it had been deregistered: byte %zu",
                       f->send ? "send" : "receive", i);
            return;
        }
}

int case_abort(struct rank *r, struct conn *conns, unsigned count, struct flow *flows,
               unsigned flow_count, enum case_abort mode)
{
    rank_stop_progress(r);
    for (unsigned i = 0; i < flow_count; i++)
        for (unsigned s = 0; s < flows[i].subs; s++)
            if (abandon(r, &flows[i], s, mode) != 0)
                return -1;
    rank_close(r, conns, count);
    if (rank_stop(r) != 0)
        return -1;
    for (unsigned i = 0; i < flow_count && mode == ABORT_POISON; i++)
        for (unsigned s = 0; s < flows[i].subs; s++) {
            look_after(&flows[i], s);
            munmap(flows[i].memory[s], flows[i].len);
        }
    free(flows);
    return watch_failed() ? -1 : 0;
}
