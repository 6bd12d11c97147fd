/* SPDX-License-Identifier: Apache-2.0 */
/* Finds out who called what, and says so. */
#include "collectives/dispute.h"

#include "collectives/health.h"
#include "collectives/report.h"

#include <stdio.h>
#include <string.h>

#define GRACE_NS (200 * SL_NS_PER_MS) /* for the others' signatures to arrive */

const struct sl_signature *sl_call_remembered(const struct sluice_comm *comm, uint32_t seq)
{
    const struct sl_signature *call = &comm->history[seq % SL_HISTORY];

    return seq != 0 && call->seq == seq ? call : NULL;
}

void sl_dispute_open(struct sluice_comm *comm, uint32_t seq)
{
    if (comm->mismatch_ns != 0)
        return;
    comm->mismatch_ns = sl_now(comm->worker.clock);
    comm->mismatch_seq = seq;
    comm->told_ns = 0;
}

static const struct sl_signature *disputed_call(const struct sluice_comm *comm, uint32_t rank)
{
    const struct sl_signature *call = &comm->peers[rank].status.call;

    if (rank == comm->rank)
        return sl_call_remembered(comm, comm->mismatch_seq);
    return comm->peers[rank].status.heard_ns != 0 && call->seq == comm->mismatch_seq &&
                   call->fingerprint != 0
               ? call
               : NULL;
}

static bool all_told(const struct sluice_comm *comm)
{
    for (uint32_t r = 0; r < comm->size; r++)
        if (r != comm->rank && (comm->peers[r].status.heard_ns == 0 ||
                                comm->peers[r].status.call.seq != comm->mismatch_seq))
            return false;
    return true;
}

/* "ranks 0-2 call allreduce of 1000 f32 sum", for each group that calls the same. Returns the lowest rank of
 * the smallest group: most likely the one that is wrong. */
static int32_t describe_disputed(const struct sluice_comm *comm, char *out, size_t cap)
{
    bool *seen = comm->rank_sets, *same = comm->rank_sets + comm->size;
    uint32_t smallest = UINT32_MAX;
    int32_t suspect = -1;
    size_t len = 0;

    memset(seen, 0, comm->size * sizeof(*seen));
    out[0] = '\0';
    for (uint32_t r = 0; r < comm->size; r++) {
        const struct sl_signature *call = disputed_call(comm, r);
        char ranks[96], what[96];
        uint32_t members = 0;

        if (seen[r])
            continue;
        for (uint32_t q = 0; q < comm->size; q++) {
            const struct sl_signature *other = disputed_call(comm, q);

            same[q] = call == NULL ? other == NULL
                                   : other != NULL && other->fingerprint == call->fingerprint;
            seen[q] |= same[q];
            members += same[q];
        }
        if (call != NULL && members < smallest) {
            smallest = members;
            suspect = (int32_t)r;
        }
        sl_format_ranks(same, comm->size, ranks, sizeof(ranks));
        sl_report_call(call, what, sizeof(what));
        int n = snprintf(out + len, cap - len, "%s%s %s %s", len == 0 ? "" : ", ",
                         members == 1 ? "rank" : "ranks", ranks, what);

        len = n < 0 || (size_t)n >= cap - len ? cap - 1 : len + (size_t)n;
    }
    return suspect;
}

bool sl_dispute_is_ripe(const struct sluice_comm *comm, uint64_t now)
{
    uint64_t grace = (uint64_t)comm->config.timeout_ms * SL_NS_PER_MS / 4;

    if (grace > GRACE_NS)
        grace = GRACE_NS;
    return all_told(comm) || now - comm->mismatch_ns >= grace;
}

void sl_dispute_decide(struct sluice_comm *comm)
{
    char text[384];
    int32_t suspect = describe_disputed(comm, text, sizeof(text));

    sl_comm_fail(comm, -EPROTO, suspect, "ranks disagree on collective number %u: %s",
                 comm->mismatch_seq, text);
}
