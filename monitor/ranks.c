/* SPDX-License-Identifier: Apache-2.0 */
/* The list itself: its places, the processes in them, and its life. */
#include "monitor/ranks_inside.h"

#include "core/err.h"
#include "core/state_read.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define LIST_NS (2 * SL_MON_S) /* between lists of all processes */
#define FDS_EACH 10            /* descriptors that a process may need */
#define FDS_OTHERS 384         /* and all other sources and outputs */

/* ---- places ---- */

struct sl_mon_rank *sl_mon_ranks_find(const struct sl_mon_ranks *ranks, int32_t pid)
{
    for (unsigned i = 0; i < ranks->count; i++)
        if (ranks->places[i] != NULL && ranks->places[i]->pid == pid && !ranks->places[i]->is_gone)
            return ranks->places[i];
    return NULL;
}

static void rank_free(struct sl_mon_rank *rank)
{
    for (unsigned i = 0; i < rank->page_count; i++)
        close(rank->pages[i]);
    for (unsigned i = 0; i < rank->nccl_count; i++)
        close(rank->nccl[i]);
    sl_mon_proc_close(rank->proc);
    free(rank);
}

/* Room for one more; NULL: there is none. */
struct sl_mon_rank *sl_mon_ranks_add(struct sl_mon_ranks *ranks)
{
    struct sl_mon_rank *rank = NULL;
    unsigned i = 0;

    while (i < ranks->count && ranks->places[i] != NULL)
        i++;
    if (i < ranks->places_max)
        rank = calloc(1, sizeof(*rank));
    if (rank == NULL) {
        ranks->left_out++;
        return NULL;
    }
    rank->number = ++ranks->numbers;
    ranks->places[i] = rank;
    if (i == ranks->count)
        ranks->count++;
    return rank;
}

/* ---- what a process is called ---- */

void sl_mon_rank_describe(struct sl_mon_rank *rank)
{
    const struct sl_state_process *self = &rank->self;
    char job[80] = "", program[64];

    if (self->job[0] != '\0')
        snprintf(job, sizeof(job), ", job %s", self->job);
    snprintf(program, sizeof(program), "%s",
             rank->page_count > 0 && self->program[0] != '\0' ? self->program : rank->stat.comm);
    if (rank->page_count > 0 && self->rank >= 0 && self->size > 0)
        snprintf(rank->label, sizeof(rank->label), "rank %d of %d%s (%s)", self->rank, self->size,
                 job, program);
    else
        snprintf(rank->label, sizeof(rank->label), "%s%s (%s)",
                 rank->is_rank ? "a rank" : "a process", job, program);
    sl_tame_text(rank->label);
    if (rank->subject != NULL)
        snprintf(rank->subject->label, sizeof(rank->subject->label), "%s", rank->label);
}

/* ---- one process ---- */

int sl_mon_ranks_look_up(const struct sl_mon_ranks *ranks, int32_t pid, struct person *out)
{
    char text[4096];
    int len;

    *out = (struct person){.pid = pid};
    len = sl_mon_procfs_text(ranks->procfs, pid, "stat", text, sizeof(text));
    if (len <= 0 || !sl_proc_stat(text, &out->stat) || out->stat.state == 'Z' ||
        out->stat.state == 'X')
        return -ESRCH;
    len = sl_mon_procfs_text(ranks->procfs, pid, "status", text, sizeof(text));
    return len > 0 && sl_proc_status(text, &out->user, &out->own_pid) ? 0 : -ESRCH;
}

struct sl_mon_rank *sl_mon_ranks_watch(struct sl_mon_ranks *ranks, const struct person *person)
{
    struct sl_mon_proc *proc;
    struct sl_mon_rank *rank = sl_mon_ranks_find(ranks, person->pid);

    if (rank != NULL)
        return rank->start_ticks == person->stat.start_ticks ? rank : NULL;
    if (sl_mon_proc_open(ranks->procfs, person->pid, &proc) != 0)
        return NULL;
    rank = sl_mon_ranks_add(ranks);
    if (rank == NULL) {
        sl_mon_proc_close(proc);
        return NULL;
    }
    rank->pid = person->pid;
    rank->own_pid = person->own_pid;
    rank->user = person->user;
    rank->start_ticks = person->stat.start_ticks;
    rank->stat = person->stat;
    rank->proc = proc;
    rank->subject = sl_mon_ranks_subject(ranks, rank->pid, rank->start_ticks);
    sl_mon_rank_describe(rank);
    return rank;
}

/* ---- those that are in the list ---- */

static bool ended_well(const struct sl_mon_rank *rank)
{
    struct sl_state_reader reader;
    struct sl_state_process self;

    for (unsigned i = 0; i < rank->page_count; i++)
        if (sl_state_read_fd(rank->pages[i], &reader) != 0 ||
            sl_state_get(&reader, SL_STATE_PROCESS, 0, &self, sizeof(self)) != SL_STATE_WHOLE ||
            (self.flags & SL_STATE_ENDED) == 0)
            return false;
    return true;
}

static void gone(struct sl_mon_ranks *ranks, struct sl_mon_rank *rank)
{
    rank->is_gone = true;
    rank->left_well = ended_well(rank);
    if (rank->subject != NULL)
        sl_mon_forget(ranks->mon, rank->subject);
    rank->subject = NULL;
}

static void refresh(struct sl_mon_ranks *ranks)
{
    for (unsigned i = 0; i < ranks->count; i++) {
        struct sl_mon_rank *rank = ranks->places[i];

        if (rank == NULL)
            continue;
        if (rank->is_gone) {
            rank_free(rank);
            ranks->places[i] = NULL;
        } else if (sl_mon_proc_stat(rank->proc, &rank->stat) == -ESRCH) {
            gone(ranks, rank);
        } else if (rank->subject != NULL) {
            rank->subject->seen_ns = sl_mon_time(ranks->mon)->mono_ns;
        }
    }
    while (ranks->count > 0 && ranks->places[ranks->count - 1] == NULL)
        ranks->count--;
}

int sl_mon_ranks_update(struct sl_mon_ranks *ranks)
{
    uint64_t now_ns = sl_mon_time(ranks->mon)->mono_ns;

    if (ranks->procfs == NULL)
        return sl_fail(-ENODEV, "the list of ranks is not open");
    if (ranks->updated_ns == now_ns)
        return 0;
    ranks->updated_ns = now_ns;
    ranks->period++;
    ranks->found_dead = 0;
    sl_mon_procfs_begin(ranks->procfs);
    refresh(ranks);
    sl_mon_ranks_by_name(ranks);
    if (ranks->is_first || now_ns - ranks->listed_ns >= LIST_NS) {
        ranks->listed_ns = now_ns;
        sl_mon_ranks_by_list(ranks);
        sl_mon_ranks_sweep(ranks);
    }
    ranks->is_first = false;
    return 0;
}

/* ---- its life ---- */

int sl_mon_ranks_create(struct sl_mon *mon, const struct sl_mon_config *config,
                        struct sl_mon_ranks **out)
{
    struct sl_mon_ranks *ranks = calloc(1, sizeof(*ranks));

    if (ranks == NULL)
        return sl_fail(-ENOMEM, "no memory for ranks");
    ranks->mon = mon;
    ranks->config = config;
    *out = ranks;
    return 0;
}

void sl_mon_ranks_destroy(struct sl_mon_ranks *ranks)
{
    free(ranks);
}

/* As many as there are descriptors for: others shall not lack theirs for their sake. */
static unsigned room(void)
{
    struct rlimit limit;
    uint64_t most = SL_MON_RANKS_MAX;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        most = limit.rlim_cur > FDS_OTHERS ? (limit.rlim_cur - FDS_OTHERS) / FDS_EACH : 0;
        if (most < 16)
            most = 16;
    }
    return most < SL_MON_RANKS_MAX ? (unsigned)most : SL_MON_RANKS_MAX;
}

int sl_mon_ranks_open(struct sl_mon_ranks *ranks)
{
    struct stat st;
    int err;

    if (ranks->users > 0) {
        ranks->users++;
        return 0;
    }
    ranks->list = calloc(PIDS_MAX, sizeof(*ranks->list));
    ranks->list_before = calloc(PIDS_MAX, sizeof(*ranks->list_before));
    err = ranks->list == NULL || ranks->list_before == NULL
              ? sl_fail(-ENOMEM, "no memory for a list of processes")
              : sl_mon_procfs_open(ranks->config->ranks_proc, &ranks->procfs);
    if (err != 0) {
        free(ranks->list);
        free(ranks->list_before);
        ranks->list = ranks->list_before = NULL;
        return err;
    }
    ranks->users = 1;
    ranks->is_first = true;
    ranks->places_max = room();
    ranks->updated_ns = 0;
    ranks->opened_ns = sl_mon_time(ranks->mon)->mono_ns;
    ranks->pid_space = stat("/proc/self/ns/pid", &st) == 0 ? st.st_ino : 0;
    sl_mon_ranks_restored(ranks);
    return 0;
}

void sl_mon_ranks_close(struct sl_mon_ranks *ranks)
{
    if (ranks->users == 0 || --ranks->users > 0)
        return;
    for (unsigned i = 0; i < ranks->count; i++) {
        if (ranks->places[i] != NULL)
            rank_free(ranks->places[i]);
        ranks->places[i] = NULL;
    }
    ranks->count = ranks->known_count = ranks->list_count = 0;
    sl_mon_procfs_close(ranks->procfs);
    ranks->procfs = NULL;
    free(ranks->list);
    free(ranks->list_before);
    ranks->list = ranks->list_before = NULL;
}

unsigned sl_mon_ranks_count(const struct sl_mon_ranks *ranks)
{
    return ranks->count;
}

struct sl_mon_rank *sl_mon_ranks_at(const struct sl_mon_ranks *ranks, unsigned place)
{
    return place < ranks->count ? ranks->places[place] : NULL;
}

struct sl_mon_procfs *sl_mon_ranks_procfs(const struct sl_mon_ranks *ranks)
{
    return ranks->procfs;
}

struct sl_mon_ranks_counts sl_mon_ranks_counts(const struct sl_mon_ranks *ranks)
{
    struct sl_mon_ranks_counts out = {.left_out = ranks->left_out};

    for (unsigned i = 0; i < ranks->count; i++) {
        const struct sl_mon_rank *rank = ranks->places[i];

        if (rank == NULL || rank->is_gone)
            continue;
        out.ranks += rank->is_rank;
        out.named += !rank->is_rank;
        out.unreadable += rank->is_rank && rank->page_count == 0;
    }
    return out;
}
