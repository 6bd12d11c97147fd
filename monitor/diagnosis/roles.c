/* SPDX-License-Identifier: Apache-2.0 */
/* Which ranks do the same, and which are one pipeline. */
#include "monitor/diagnosis/selftime_part.h"

/* What the rank does in most steps (R. S. Boyer, J. S. Moore, "MJRTY", 1981). False: no sequence is
 * that of more than half of them. */
static bool vote(const struct sl_selftime_part *parts, size_t count, bool is_rough,
                 uint64_t *winner)
{
    size_t lead = 0, votes = 0;

    *winner = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t hash = is_rough ? parts[i].rough : parts[i].whole;

        if (lead == 0)
            *winner = hash;
        lead += hash == *winner || lead == 0 ? 1 : (size_t)-1;
    }
    for (size_t i = 0; i < count; i++)
        votes += (is_rough ? parts[i].rough : parts[i].whole) == *winner;
    return votes * 2 > count;
}

/* How many ranks are before each one in its pipeline, where no source tells stages: a rank's
 * messages go to a rank before it and to one behind it. In the order of ranks, as a stage's are
 * higher than those of the one before. 0 where there are no messages. Those outside of steps do not
 * count: two ranks that measure their link before the first one are no pipeline. */
static void find_stages(const struct sl_job *job, const uint32_t *steps, uint32_t *stages)
{
    for (uint32_t rank = 0; rank < job->rank_count; rank++) {
        uint32_t before = SL_JOB_NONE;

        stages[rank] = 0;
        for (size_t i = job->first_op[rank]; i < job->first_op[rank + 1]; i++)
            if (steps[i] != SL_JOB_NONE && job->ops[i].peer < rank &&
                (before == SL_JOB_NONE || job->ops[i].peer > before))
                before = job->ops[i].peer;
        if (before != SL_JOB_NONE)
            stages[rank] = stages[before] + 1;
    }
}

/* Sizes count where they are the same in most steps of all ranks, order and kinds in any case. */
static bool name_roles(const struct sl_job *job, const struct sl_selftime_part *parts, size_t count,
                       bool is_rough, const uint32_t *stages, struct sl_selftime *self)
{
    for (size_t i = 0, next; i < count; i = next) {
        uint32_t rank = parts[i].rank;
        const struct sl_job_rank *it = &job->ranks[rank];
        uint64_t hash;

        for (next = i; next < count && parts[next].rank == rank;)
            next++;
        if (!vote(&parts[i], next - i, is_rough, &hash)) {
            if (!is_rough)
                return false;
            hash = 0;
        }
        hash = sl_selftime_mix(hash, it->stage != SL_JOB_NONE ? it->stage : stages[rank]);
        self->roles[rank] = sl_selftime_mix(sl_selftime_mix(hash, it->tensor), 1);
    }
    return true;
}

void sl_selftime_name_roles(const struct sl_job *job, const struct sl_selftime_part *parts,
                            size_t count, const uint32_t *steps, struct sl_selftime *self)
{
    /* Replicas are found after roles: their room is free. */
    find_stages(job, steps, self->replicas);
    if (!name_roles(job, parts, count, false, self->replicas, self))
        name_roles(job, parts, count, true, self->replicas, self);
}

/* ---- replicas ---- */

static uint32_t root_of(uint32_t *parents, uint32_t rank)
{
    while (parents[rank] != rank)
        rank = parents[rank] = parents[parents[rank]];
    return rank;
}

/* Told; else ranks that send each other messages are one pipeline, unless all are. */
void sl_selftime_find_replicas(const struct sl_job *job, const uint32_t *steps,
                               struct sl_selftime *self)
{
    uint32_t *parents = self->replicas;
    uint32_t parts = 0;
    bool is_told = false;

    for (uint32_t i = 0; i < job->rank_count; i++) {
        is_told = is_told || job->ranks[i].replica != SL_JOB_NONE;
        parents[i] = i;
    }
    for (size_t i = 0; !is_told && i < job->op_count; i++)
        if (steps[i] != SL_JOB_NONE && job->ops[i].peer != SL_JOB_NONE)
            parents[root_of(parents, job->ops[i].peer)] = root_of(parents, job->ops[i].rank);
    for (uint32_t i = 0; i < job->rank_count; i++)
        parts += root_of(parents, i) == i;
    for (uint32_t i = 0; i < job->rank_count; i++)
        parents[i] = root_of(parents, i);
    for (uint32_t i = 0; i < job->rank_count; i++)
        if (is_told)
            parents[i] = job->ranks[i].replica;
        else if (parts < 2 || parts == job->rank_count)
            parents[i] = SL_JOB_NONE;
}
