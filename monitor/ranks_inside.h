/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the list of ranks share. */
#ifndef SL_MONITOR_RANKS_INSIDE_H
#define SL_MONITOR_RANKS_INSIDE_H

#include "monitor/ranks.h"

#define PIDS_MAX 32768 /* of a list of all processes */
#define KNOWN_MAX 2048 /* files in /dev/shm that need no second look */
#define GHOSTS_MAX 256 /* subjects without a process */

/* A process of the last list, and how often it has been listed. */
struct listed {
    int32_t pid;
    uint32_t lists;
};

/* A file in /dev/shm that has been looked at. */
struct known {
    uint64_t inode;
    uint64_t begun; /* the period in which it was last there */
    unsigned looks; /* a page may be in the making at the first */
    bool is_done;
};

struct sl_mon_ranks {
    struct sl_mon *mon;
    const struct sl_mon_config *config;
    struct sl_mon_procfs *procfs;
    unsigned users; /* sources that are open */
    uint64_t period, updated_ns, listed_ns, opened_ns, numbers, left_out;
    uint64_t pid_space; /* inode of /proc/self/ns/pid */
    unsigned found_dead, places_max;
    bool is_first; /* until all has been looked at once */
    unsigned count;
    struct sl_mon_rank *places[SL_MON_RANKS_MAX];
    struct listed *list, *list_before;
    unsigned list_count;
    struct known known[KNOWN_MAX];
    unsigned known_count;
    char ghosts[GHOSTS_MAX][SL_MON_NAME];
    unsigned ghost_count;
};

/* A process, by its number, its user and its start. */
struct person {
    int32_t pid, own_pid;
    uint32_t user;
    struct sl_proc_stat stat;
};

/* ranks.c: NULL, it is not in the list. */
struct sl_mon_rank *sl_mon_ranks_find(const struct sl_mon_ranks *ranks, int32_t pid);
/* Room for one more; NULL: there is none. */
struct sl_mon_rank *sl_mon_ranks_add(struct sl_mon_ranks *ranks);
void sl_mon_rank_describe(struct sl_mon_rank *rank);
/* -ESRCH: it is gone. */
int sl_mon_ranks_look_up(const struct sl_mon_ranks *ranks, int32_t pid, struct person *out);
/* It is in the list already, or is added; NULL: its number is another's, it is gone, or there is
 * no room. */
struct sl_mon_rank *sl_mon_ranks_watch(struct sl_mon_ranks *ranks, const struct person *person);

/* ranks_find.c: by name in /dev/shm, and by the list of all processes. */
void sl_mon_ranks_by_name(struct sl_mon_ranks *ranks);
void sl_mon_ranks_by_list(struct sl_mon_ranks *ranks);

/* ranks_subject.c: of a process that lives. Nothing that was said of an earlier process with its
 * number holds for it. NULL: there was no room. */
struct sl_mon_subject *sl_mon_ranks_subject(struct sl_mon_ranks *ranks, int32_t pid,
                                            uint64_t start_ticks);
/* Those that the store had: until their processes are found, or are known to be gone. */
void sl_mon_ranks_restored(struct sl_mon_ranks *ranks);
/* A death is told for as long as its condition lasts; all else of a process ends with it. */
void sl_mon_ranks_sweep(struct sl_mon_ranks *ranks);

#endif
