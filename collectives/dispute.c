/* SPDX-License-Identifier: Apache-2.0 */
/* Finds out who called what, and says so. */
#include "collectives/dispute.h"

#include "collectives/health.h"
#include "collectives/report.h"

#include <stdio.h>
#include <string.h>

#define GRACE_NS (200 * SL_NS_PER_MS) /* for the others' signatures to arrive */

/* Of two numbers of calls, which go round after 2^32. */
static bool is_later(uint32_t seq, uint32_t than)
{
    return (int32_t)(seq - than) > 0;
}

const struct sl_signature *sl_call_remembered(const struct sluice_comm *comm, uint32_t seq)
{
    const struct sl_signature *call = &comm->calls.history[seq % SL_HISTORY];

    return seq != 0 && call->seq == seq ? call : NULL;
}

void sl_dispute_tell(const struct sluice_comm *comm, uint32_t seq, struct sl_told *out)
{
    const struct sl_signature *call = sl_call_remembered(comm, seq);

    memset(out, 0, sizeof(*out));
    out->call.seq = seq;
    if (call != NULL)
        out->call = *call;
    else if (!is_later(seq, comm->calls.seq))
        out->call.gone = 1;
    for (uint32_t i = 0; i < SL_EARLIER; i++) {
        call = sl_call_remembered(comm, seq - 1 - i);
        out->earlier[i] = call != NULL ? call->run : 0;
    }
}

/* The lowest number from which on a peer's run is not ours, as far as both are known; 0: they are
 * the same. */
static uint32_t first_difference(const struct sluice_comm *comm, const struct sl_told *told)
{
    uint32_t first = 0;

    for (uint32_t i = 0; i <= SL_EARLIER; i++) {
        uint32_t theirs = i == 0 ? told->call.run : told->earlier[i - 1], seq = told->call.seq - i;
        const struct sl_signature *mine = sl_call_remembered(comm, seq);

        if (mine == NULL || theirs == 0)
            continue;
        if (mine->run == theirs)
            break;
        first = seq;
    }
    return first;
}

void sl_dispute_hear(struct sluice_comm *comm, const struct sl_told *told, bool asks)
{
    uint32_t first = first_difference(comm, told);

    if (first != 0)
        sl_dispute_open(comm, first);
    else if (asks && told->call.seq != 0)
        sl_dispute_open(comm, told->call.seq);
}

void sl_dispute_open(struct sluice_comm *comm, uint32_t seq)
{
    if (comm->health.mismatch_ns != 0 && !is_later(comm->health.mismatch_seq, seq))
        return;
    comm->health.mismatch_ns = sl_now(comm->worker->clock);
    comm->health.mismatch_seq = seq;
    comm->health.told_ns = 0;
}

/* What that rank called under the disputed number; NULL: nothing yet, as far as this rank knows. */
static const struct sl_signature *disputed_call(const struct sluice_comm *comm, uint32_t rank)
{
    static const struct sl_signature gone = {.gone = 1};
    const struct sl_peer *peer = sl_comm_peer(comm, rank);
    const struct sl_signature *call = &peer->status.call;

    if (rank == comm->rank)
        call = sl_call_remembered(comm, comm->health.mismatch_seq)
                   ?: is_later(comm->health.mismatch_seq, comm->calls.seq) ? NULL
                                                                           : &gone;
    else if (peer->status.heard_ns == 0 || call->seq != comm->health.mismatch_seq)
        call = peer->left ? &gone : NULL;
    return call != NULL && (call->fingerprint != 0 || call->gone != 0) ? call : NULL;
}

static bool all_told(const struct sluice_comm *comm)
{
    for (uint32_t r = 0; r < comm->size; r++)
        if (r != comm->rank && !sl_comm_peer(comm, r)->left &&
            (sl_comm_peer(comm, r)->status.heard_ns == 0 ||
             sl_comm_peer(comm, r)->status.call.seq != comm->health.mismatch_seq))
            return false;
    return true;
}

/* "ranks 0-2 called allreduce(1000 f32 sum)", for each group that calls the same. *suspect: the
 * lowest rank of the smallest group, which is most likely the one that is wrong. Returns how many
 * groups there are. */
static unsigned describe_groups(const struct sluice_comm *comm, char *out, size_t cap,
                                int32_t *suspect)
{
    bool *seen = comm->health.rank_sets, *same = comm->health.rank_sets + comm->size;
    uint32_t smallest = UINT32_MAX;
    unsigned groups = 0;
    size_t len = 0;

    memset(seen, 0, comm->size * sizeof(*seen));
    *suspect = -1;
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
        groups++;
        if (call != NULL && members < smallest) {
            smallest = members;
            *suspect = (int32_t)r;
        }
        sl_format_ranks(same, comm->size, ranks, sizeof(ranks));
        sl_report_call(comm, call, what, sizeof(what));
        int n = snprintf(out + len, cap - len, "%s%s %s %s", len == 0 ? "" : ", ",
                         members == 1 ? "rank" : "ranks", ranks, what);

        len = n < 0 || (size_t)n >= cap - len ? cap - 1 : len + (size_t)n;
    }
    return groups;
}

bool sl_dispute_is_ripe(const struct sluice_comm *comm, uint64_t now)
{
    uint64_t grace = (uint64_t)comm->config.timeout_ms * SL_NS_PER_MS / 4;

    if (grace > GRACE_NS)
        grace = GRACE_NS;
    return all_told(comm) || now - comm->health.mismatch_ns >= grace;
}

int32_t sl_dispute_describe(const struct sluice_comm *comm, char *out, size_t cap)
{
    char text[SL_ERROR_TEXT_MAX];
    int32_t suspect;
    /* Where all called the same they differ before it, and nobody knows any more what was called
     * there. */
    bool before = describe_groups(comm, text, sizeof(text), &suspect) < 2;

    snprintf(out, cap, "ranks disagree on collective number %u%s: %s", comm->health.mismatch_seq,
             before ? " or one before" : "", text);
    return suspect;
}
