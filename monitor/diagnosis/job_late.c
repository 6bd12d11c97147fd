/* SPDX-License-Identifier: Apache-2.0 */
/* What is taken when all else of a job is there, and what helps to put sources together. */
#include "monitor/diagnosis/job_late.h"
#include "core/err.h"
#include "monitor/diagnosis/job_inside.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int sl_job_later(struct sl_job *job, sl_job_late_take *take, sl_job_late_end *end, void *arg)
{
    struct sl_job_inside *inside = job->inside;

    if (sl_job_grow(&inside->late, &inside->late_cap, inside->late_count, sizeof(*inside->late)) !=
        0) {
        end(arg);
        return -ENOMEM;
    }
    inside->late[inside->late_count++] = (struct sl_job_late){.take = take, .end = end, .arg = arg};
    return 0;
}

/* What failed is not tried again. */
int sl_job_take_late(struct sl_job *job)
{
    int err = 0;

    for (size_t i = 0; i < job->inside->late_count && err == 0; i++)
        err = job->inside->late[i].take(job, job->inside->late[i].arg);
    sl_job_free_late(job->inside);
    return err;
}

void sl_job_free_late(struct sl_job_inside *inside)
{
    for (size_t i = 0; i < inside->late_count; i++)
        inside->late[i].end(inside->late[i].arg);
    inside->late_count = 0;
}

int sl_job_rank_of(struct sl_job *job, uint32_t identity, uint32_t wanted, uint32_t *rank)
{
    struct sl_job_inside *inside = job->inside;
    size_t known = inside->rank_of_cap;

    *rank = wanted;
    if (identity == 0 || wanted == SL_JOB_NONE)
        return 0;
    if (identity == SL_JOB_NONE)
        return sl_fail(-ENOMEM, "no memory for the name of a process");
    if (sl_job_grow(&inside->rank_of, &inside->rank_of_cap, identity, sizeof(*rank)) != 0)
        return -ENOMEM;
    for (; known < inside->rank_of_cap; known++)
        inside->rank_of[known] = SL_JOB_NONE;
    if (inside->rank_of[identity] == SL_JOB_NONE)
        inside->rank_of[identity] = wanted;
    *rank = inside->rank_of[identity];
    return 0;
}

uint32_t sl_job_find_comm(const struct sl_job *job, uint32_t name)
{
    return name < job->inside->comm_of_cap ? job->inside->comm_of[name] : SL_JOB_NONE;
}

int sl_job_told_places(const struct sl_job *job, uint32_t comm, uint32_t **ranks, uint32_t *size)
{
    const struct sl_job_members *members = &job->inside->members;

    *ranks = NULL;
    *size = 0;
    for (size_t i = 0; i < members->count; i++) {
        const struct sl_job_member *it = &members->list[i];

        if (it->comm != comm)
            continue;
        if (*ranks == NULL) {
            *ranks = reallocarray(NULL, (size_t)it->size + 1, sizeof(**ranks));
            if (*ranks == NULL)
                return sl_fail(-ENOMEM, "no memory for the members of communicators");
            *size = it->size;
            memset(*ranks, 0xff, ((size_t)it->size + 1) * sizeof(**ranks));
        }
        if (it->place < *size)
            (*ranks)[it->place] = it->rank;
    }
    return 0;
}

/* ---- notes ---- */

int sl_job_note(struct sl_job *job, const char *fmt, ...)
{
    struct sl_job_inside *inside = job->inside;
    char text[1024];
    uint32_t note;
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    note = sl_job_text(job, text, strlen(text));
    if (note == SL_JOB_NONE ||
        sl_job_grow(&inside->notes, &inside->note_cap, inside->note_count, sizeof(note)) != 0)
        return sl_fail(-ENOMEM, "no memory for notes");
    inside->notes[inside->note_count++] = note;
    return 0;
}

const char *sl_job_note_at(const struct sl_job *job, size_t i)
{
    return i < job->inside->note_count ? sl_job_string(job, job->inside->notes[i]) : NULL;
}
