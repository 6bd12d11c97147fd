/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The processes of this host that are watched: ranks, which have a state page (docs/state.md), and
 * those that the configuration names. Found without being asked:
 *
 *   by name   /dev/shm/sluice.UID.PID.K, and sluice-nccl-PID-RANK: each period
 *   by list   /proc: the command line and the cgroup of processes that are new, and descriptors of
 *             pages that have no name here (another mount namespace, or a memfd)
 *
 * A page is believed when it is a file of the user as whom the process acts, and names the process
 * by its number and its start. Nobody's lock is asked for: whether a process lives, /proc says.
 *
 * Sources share this list (struct sl_source_host), and the one that comes first in a period brings
 * it up to date. A process that is gone stays in the list for that period, with its pages.
 */
#ifndef SL_MONITOR_RANKS_H
#define SL_MONITOR_RANKS_H

#include "monitor/config.h"
#include "monitor/procfs.h"

#include "core/state.h"

#define SL_MON_RANKS_MAX 512
#define SL_MON_RANK_PAGES 4 /* copies of the library in one process */
#define SL_MON_RANK_NCCL 4  /* files of NCCL's events */

struct sl_mon_rank {
    uint64_t number; /* of no other process in the list's life */
    int32_t pid, own_pid;
    uint32_t user;
    uint64_t start_ticks;
    bool is_rank;       /* it has, or had, a page; else it is named by the configuration */
    bool is_gone;       /* it ended since the last period; its pages say how */
    bool is_found_dead; /* before it was in the list */
    bool left_well;     /* it is gone, and each of its pages says that it meant to */
    int pages[SL_MON_RANK_PAGES], nccl[SL_MON_RANK_NCCL]; /* descriptors, by count */
    unsigned page_count, nccl_count;
    uint64_t page_inodes[SL_MON_RANK_PAGES], nccl_inodes[SL_MON_RANK_NCCL];
    struct sl_state_process self;   /* of the first page; texts of a user */
    struct sl_proc_stat stat;       /* of this period */
    struct sl_mon_proc *proc;       /* NULL: it was found dead */
    struct sl_mon_subject *subject; /* NULL: there was no room, or it is gone */
    char label[SL_MON_TEXT];        /* "rank 3 of 8, job 17 (train)" */
};

struct sl_mon_ranks;

int sl_mon_ranks_create(struct sl_mon *mon, const struct sl_mon_config *config,
                        struct sl_mon_ranks **out);
void sl_mon_ranks_destroy(struct sl_mon_ranks *ranks);

/* Once a period, by whoever comes first; sources that watch it count themselves by open and close.
 * -ENODEV, -EIO: /proc cannot be read. */
int sl_mon_ranks_open(struct sl_mon_ranks *ranks);
void sl_mon_ranks_close(struct sl_mon_ranks *ranks);
int sl_mon_ranks_update(struct sl_mon_ranks *ranks);

/* By place, from 0 to below this; NULL: the place is free. A place keeps its process. */
unsigned sl_mon_ranks_count(const struct sl_mon_ranks *ranks);
struct sl_mon_rank *sl_mon_ranks_at(const struct sl_mon_ranks *ranks, unsigned place);
struct sl_mon_procfs *sl_mon_ranks_procfs(const struct sl_mon_ranks *ranks);
/* A process that is gone has a subject again, for what is to be said of it; it is forgotten when
 * nothing is wrong with it any more. NULL: there is no room. */
struct sl_mon_subject *sl_mon_ranks_mourn(struct sl_mon_ranks *ranks,
                                          const struct sl_mon_rank *rank);

struct sl_mon_ranks_counts {
    unsigned ranks, named; /* that live */
    unsigned unreadable;   /* ranks whose pages this user may not read */
    uint64_t left_out;     /* processes that found no room */
};

struct sl_mon_ranks_counts sl_mon_ranks_counts(const struct sl_mon_ranks *ranks);

/* Parses the name of a state page, "sluice.1000.4711.0". False: it is no such name. */
bool sl_mon_page_name(const char *name, uint32_t *user, int32_t *pid);
/* The same of a file of NCCL's events, "sluice-nccl-4711-3". */
bool sl_mon_nccl_name(const char *name, int32_t *pid);

#endif
