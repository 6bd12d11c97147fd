/* SPDX-License-Identifier: Apache-2.0 */
/* Subjects of ranks: of processes that live, that have died, and that the store knows. */
#include "monitor/ranks_inside.h"

#include <stdio.h>
#include <string.h>

#define ADOPT_NS (60 * SL_MON_S)

static void subject_name(int32_t pid, char *out)
{
    snprintf(out, SL_MON_NAME, "pid %d", (int)pid);
}

static void ghost_add(struct sl_mon_ranks *ranks, const char *name)
{
    for (unsigned i = 0; i < ranks->ghost_count; i++)
        if (strcmp(ranks->ghosts[i], name) == 0)
            return;
    if (ranks->ghost_count < GHOSTS_MAX)
        snprintf(ranks->ghosts[ranks->ghost_count++], SL_MON_NAME, "%s", name);
}

static void ghost_remove(struct sl_mon_ranks *ranks, unsigned i)
{
    memmove(ranks->ghosts[i], ranks->ghosts[ranks->ghost_count - 1], SL_MON_NAME);
    ranks->ghost_count--;
}

static bool ghost_find(const struct sl_mon_ranks *ranks, const char *name, unsigned *out)
{
    for (*out = 0; *out < ranks->ghost_count; ++*out)
        if (strcmp(ranks->ghosts[*out], name) == 0)
            return true;
    return false;
}

/* When a condition of the subject last changed; 0: none did. */
static uint64_t changed_ns(const struct sl_mon_subject *subject)
{
    enum sl_mon_check first;
    unsigned count = sl_mon_checks_of(subject->kind, &first);
    uint64_t last = 0;

    for (unsigned i = 0; i < count; i++) {
        const struct sl_mon_condition *condition = sl_mon_condition(subject, first + i);

        if (condition->bads > 0 && condition->since_ns > last)
            last = condition->since_ns;
    }
    return last;
}

/* The subject is of this process, and not of one before it that had its number. */
static bool is_same(const struct sl_mon_subject *subject, uint64_t start_ticks)
{
    return sl_mon_procfs_ticks_ns(start_ticks) <= changed_ns(subject);
}

/* Nothing that was said of an earlier process holds for this one. */
struct sl_mon_subject *sl_mon_ranks_subject(struct sl_mon_ranks *ranks, int32_t pid,
                                            uint64_t start_ticks)
{
    char name[SL_MON_NAME];
    struct sl_mon_subject *subject;
    unsigned i;

    subject_name(pid, name);
    subject = sl_mon_find(ranks->mon, SL_MON_PROCESS, name);
    if (ghost_find(ranks, name, &i)) {
        ghost_remove(ranks, i);
        if (subject != NULL && !is_same(subject, start_ticks))
            sl_mon_forget(ranks->mon, subject);
    }
    return sl_mon_subject(ranks->mon, SL_MON_PROCESS, name);
}

struct sl_mon_subject *sl_mon_ranks_mourn(struct sl_mon_ranks *ranks,
                                          const struct sl_mon_rank *rank)
{
    char name[SL_MON_NAME];
    struct sl_mon_subject *subject;

    subject_name(rank->pid, name);
    subject = sl_mon_subject(ranks->mon, SL_MON_PROCESS, name);
    if (subject == NULL)
        return NULL;
    snprintf(subject->label, sizeof(subject->label), "%s", rank->label);
    ghost_add(ranks, name);
    return subject;
}

/* Those that the store had: until their processes are found, or are known to be gone. */
void sl_mon_ranks_restored(struct sl_mon_ranks *ranks)
{
    for (const struct sl_mon_subject *at = sl_mon_next(ranks->mon, NULL); at != NULL;
         at = sl_mon_next(ranks->mon, at))
        if (at->kind == SL_MON_PROCESS)
            ghost_add(ranks, at->name);
}

static bool ghost_lives(const struct sl_mon_ranks *ranks, const struct sl_mon_subject *subject)
{
    struct sl_proc_stat stat;
    char text[1024];
    int pid;

    return sl_mon_time(ranks->mon)->mono_ns - ranks->opened_ns < ADOPT_NS &&
           sscanf(subject->name, "pid %d", &pid) == 1 &&
           sl_mon_procfs_text(ranks->procfs, pid, "stat", text, sizeof(text)) > 0 &&
           sl_proc_stat(text, &stat) && is_same(subject, stat.start_ticks);
}

/* A death is told for as long as its condition lasts; all else of a process ends with it. */
void sl_mon_ranks_sweep(struct sl_mon_ranks *ranks)
{
    for (unsigned i = 0; i < ranks->ghost_count;) {
        struct sl_mon_subject *subject = sl_mon_find(ranks->mon, SL_MON_PROCESS, ranks->ghosts[i]);

        if (subject != NULL &&
            (sl_mon_condition(subject, SL_MON_CHECK_PROCESS_DIED)->state != SL_MON_OK ||
             ghost_lives(ranks, subject))) {
            i++;
            continue;
        }
        if (subject != NULL)
            sl_mon_forget(ranks->mon, subject);
        ghost_remove(ranks, i);
    }
}
