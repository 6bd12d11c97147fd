/* SPDX-License-Identifier: Apache-2.0 */
/* Processes of NCCL's RAS that state pages or files of NCCL's events tell of, too. */
#include "core/err.h"
#include "monitor/diagnosis/job_late.h"
#include "monitor/diagnosis/text.h"
#include "monitor/read/ras.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAMED_MAX 3 /* processes that a note names */

/* Does another source tell of the rank's process? RAS's own names have a GPU. */
static bool is_other(const struct sl_job *job, uint32_t rank)
{
    const char *process = sl_job_string(job, job->ranks[rank].process);

    return job->ranks[rank].is_told && strncmp(process, "pid ", 4) == 0 &&
           strstr(process, ", GPU ") == NULL;
}

bool sl_ras_is_joined(const struct sl_ras *ras, const struct sl_ras_seen *seen)
{
    return ras->has_others && is_other(ras->job, seen->rank);
}

static void find_others(struct sl_ras *ras)
{
    for (uint32_t r = 0; r < ras->job->rank_count && !ras->has_others; r++)
        ras->has_others = is_other(ras->job, r);
}

/* ---- by the place in a communicator ---- */

static bool has_pid(const struct sl_job *job, uint32_t rank, uint64_t pid)
{
    uint64_t number;

    return sscanf(sl_job_string(job, job->ranks[rank].process), "pid %" SCNu64 " on ", &number) ==
               1 &&
           number == pid;
}

static int join_comm(struct sl_ras *ras, struct sl_ras_comm *comm)
{
    uint32_t size, *told;
    char name[64];
    int err;

    snprintf(name, sizeof(name), "nccl %016" PRIx64 " of %u", comm->hash, comm->size);
    comm->joined = sl_job_find_comm(ras->job, sl_job_text(ras->job, name, strlen(name)));
    if (comm->joined == SL_JOB_NONE)
        return 0;
    err = sl_job_told_places(ras->job, comm->joined, &told, &size);
    for (size_t i = 0; i < comm->count && err == 0; i++) {
        const struct sl_ras_seen *seen = &ras->seen[comm->first + i];
        uint32_t rank = seen->comm_rank < size ? told[seen->comm_rank] : SL_JOB_NONE;

        if (rank != SL_JOB_NONE && has_pid(ras->job, rank, seen->pid))
            ras->rank_of[seen->process] = rank + 1;
    }
    free(told);
    return err;
}

/* ---- by number and host ---- */

struct named {
    uint32_t plain, process; /* texts: without the GPU; as RAS has it, SL_JOB_NONE: as others do */
    uint32_t rank;
};

static int by_plain(const void *a, const void *b)
{
    const struct named *x = a, *y = b;

    if (x->plain != y->plain)
        return x->plain < y->plain ? -1 : 1;
    if (x->process != y->process)
        return x->process < y->process ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* One process of RAS, and one rank of another source. */
static void join_named(struct sl_ras *ras, const struct named *list, size_t count)
{
    for (size_t i = 0, end; i < count; i = end) {
        const struct named *own = NULL, *other = NULL;
        bool is_clear = true;

        for (end = i; end < count && list[end].plain == list[i].plain; end++) {
            const struct named *it = &list[end];

            if (it->process == SL_JOB_NONE) {
                is_clear = is_clear && other == NULL;
                other = it;
            } else {
                is_clear = is_clear && (own == NULL || own->process == it->process);
                own = it;
            }
        }
        if (own != NULL && other != NULL && is_clear && ras->rank_of[own->process] == 0)
            ras->rank_of[own->process] = other->rank + 1;
    }
}

static int join_by_host(struct sl_ras *ras)
{
    struct sl_job *job = ras->job;
    size_t count = 0;
    struct named *list =
        reallocarray(NULL, ras->seen_count + (size_t)job->rank_count + 1, sizeof(*list));

    if (list == NULL)
        return sl_fail(-ENOMEM, "no memory to join what sources tell");
    for (size_t i = 0; i < ras->seen_count; i++) {
        const char *process = sl_job_string(job, ras->seen[i].process);
        const char *end = strstr(process, ", GPU ");

        if (end != NULL)
            list[count++] = (struct named){sl_job_text(job, process, (size_t)(end - process)),
                                           ras->seen[i].process, SL_JOB_NONE};
    }
    for (uint32_t r = 0; r < job->rank_count; r++)
        if (is_other(job, r))
            list[count++] = (struct named){job->ranks[r].process, SL_JOB_NONE, r};
    qsort(list, count, sizeof(*list), by_plain);
    join_named(ras, list, count);
    free(list);
    return 0;
}

int sl_ras_join(struct sl_ras *ras)
{
    int err = 0;

    for (size_t i = 0; i < ras->comm_count; i++)
        ras->comms[i].joined = SL_JOB_NONE;
    find_others(ras);
    if (!ras->has_others)
        return 0;
    for (size_t i = 0; i < ras->comm_count && err == 0; i++)
        err = join_comm(ras, &ras->comms[i]);
    return err == 0 ? join_by_host(ras) : err;
}

/* A place that a file of events gives to another process stays that one's. */
int sl_ras_join_members(struct sl_ras *ras, const struct sl_ras_comm *comm)
{
    uint32_t size, *told;
    int err = sl_job_told_places(ras->job, comm->joined, &told, &size);

    for (size_t i = 0; i < comm->count && err == 0; i++) {
        const struct sl_ras_seen *seen = &ras->seen[comm->first + i];

        if (seen->comm_rank >= size)
            continue;
        if (told[seen->comm_rank] == SL_JOB_NONE)
            err = sl_job_add_member(ras->job, comm->joined, seen->comm_rank, size, seen->rank);
        else
            ras->refused += told[seen->comm_rank] != seen->rank;
    }
    free(told);
    return err;
}

/* ---- what people are told ---- */

static void name(const struct sl_ras *ras, const struct sl_ras_seen *seen, char *out, size_t cap)
{
    sl_text_add(out, cap, "%s%s", out[0] != '\0' ? "; " : "",
                sl_job_string(ras->job, seen->process));
}

int sl_ras_join_note(struct sl_ras *ras)
{
    uint32_t all = 0, own = 0, left_out = 0;
    char names[512] = "";
    int err = 0;

    if (!ras->has_others)
        return 0;
    /* Each process once: rank_of is used up here. */
    for (size_t i = 0; i < ras->seen_count; i++) {
        const struct sl_ras_seen *seen = &ras->seen[i];

        if (ras->rank_of[seen->process] == 0)
            continue;
        ras->rank_of[seen->process] = 0;
        all++;
        if (sl_ras_is_joined(ras, seen))
            continue;
        if (own++ < NAMED_MAX)
            name(ras, seen, names, sizeof(names));
    }
    for (size_t i = 0; i < ras->comm_count; i++)
        left_out += ras->comms[i].joined != SL_JOB_NONE;
    if (own > 0)
        err =
            sl_job_note(ras->job,
                        "%u of %u processes of NCCL RAS are none that other files tell of, as far "
                        "as can be known, and are ranks of their own (%s%s): a process is known "
                        "again by its number and host, or by its number and its place in a "
                        "communicator of which a file of NCCL's events tells",
                        own, all, names, own > NAMED_MAX ? "; ..." : "");
    if (err == 0 && ras->refused > 0)
        err = sl_job_note(ras->job,
                          "NCCL RAS has other processes than files of NCCL's events at %u places "
                          "of communicators; the files are believed: are all of one job?",
                          ras->refused);
    if (err == 0 && left_out > 0)
        err = sl_job_note(ras->job,
                          "what NCCL RAS counts in %u communicators is left out, as files of "
                          "NCCL's events tell of them",
                          left_out);
    return err;
}
