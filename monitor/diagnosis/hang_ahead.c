/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A few ranks are ahead of all others, in collectives that were only counted: one of them calls
 * what the others do not (all_gather in place of all_reduce, an epoch that is one step longer), or
 * all the others stay away at once. The counts are the same. That most ranks of a communicator fail
 * at one time is the rarer thing, and accuses many who may be innocent: the few are named, and that
 * it may be the others is said.
 */
#include "core/err.h"
#include "monitor/diagnosis/hang_inside.h"

#include <errno.h>
#include <stdio.h>

struct split {
    uint32_t ahead, behind; /* how many */
    uint32_t first_ahead, first_behind;
    uint64_t least, at; /* collectives of those behind, and of the first one ahead */
};

/* False: it is not so here. late: by rank, who is to be accused of not coming. */
static bool find_split(const struct sl_hang *hang, uint32_t comm, const bool *late,
                       struct split *out)
{
    size_t count;
    const struct sl_hang_slot *slots = sl_hang_slots_of(hang, comm, &count);

    *out = (struct split){.least = UINT64_MAX};
    if (!hang->index.is_counted[comm] || hang->index.is_moving[comm])
        return false;
    for (size_t i = 0; i < count; i++) {
        if (!slots[i].is_known)
            return false;
        out->least = slots[i].last < out->least ? slots[i].last : out->least;
    }
    for (size_t i = 0; i < count; i++) {
        if (slots[i].last > out->least) {
            if (out->ahead++ == 0) {
                out->first_ahead = slots[i].rank;
                out->at = slots[i].last;
            }
        } else if (!late[slots[i].rank]) {
            return false;
        } else if (out->behind++ == 0) {
            out->first_behind = slots[i].rank;
        }
    }
    return out->ahead > 0 && out->behind > out->ahead;
}

static int say(struct sl_hang *hang, uint32_t comm, const struct split *split, bool *late)
{
    struct sl_object program = {
        .kind = SL_OBJECT_PROGRAM, .a = split->first_ahead, .b = SL_JOB_NONE};
    struct sl_verdict *verdict =
        sl_verdict_add(hang->verdicts, SL_VERDICT_MISMATCH, program, SL_HANG_PLAUSIBLE);
    char name[SL_HANG_NAME], other[SL_HANG_NAME], more[64] = "";
    size_t count;
    const struct sl_hang_slot *slots = sl_hang_slots_of(hang, comm, &count);
    int err;

    if (verdict == NULL)
        return -ENOMEM;
    if (split->ahead > 1)
        snprintf(more, sizeof(more), " and %u more", split->ahead - 1);
    err = sl_verdict_say(
        verdict, "collectives of %s: %s%s is at %llu, %s and %u more at %llu",
        sl_hang_comm_name(hang, comm), sl_hang_rank_name(hang, split->first_ahead, name), more,
        (unsigned long long)split->at, sl_hang_rank_name(hang, split->first_behind, other),
        split->behind - 1, (unsigned long long)split->least);
    if (err == 0)
        err =
            sl_verdict_say(verdict, "it calls what they do not, or none of them comes to the next "
                                    "call: counts alone do not tell which (Flight Recorder's "
                                    "dumps do, and SLUICE_NCCL_PROFILE)");
    for (size_t i = 0; i < count && err == 0; i++) {
        if (slots[i].last > split->least)
            continue;
        late[slots[i].rank] = false;
        err = sl_verdict_other(verdict, sl_hang_rank_object(slots[i].rank));
    }
    return err;
}

int sl_hang_accuse_ahead(struct sl_hang *hang, bool *late)
{
    struct split split;
    int err = 0;

    for (uint32_t c = 0; c < hang->job->comm_count && err == 0; c++)
        if (find_split(hang, c, late, &split))
            err = say(hang, c, &split, late);
    return err;
}
