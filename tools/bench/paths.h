/* SPDX-License-Identifier: Apache-2.0 */
/* What the paths of a run did and what happened on them: --stats, --json. */
#ifndef SB_PATHS_H
#define SB_PATHS_H

#include "bench.h"

#include "core/event.h"
#include "core/state.h"

struct sb_path {
    int rank; /* whose end it is */
    struct sl_state_path stat;
};

struct sb_event {
    int rank;
    struct sl_event event; /* its time counts from since_ns */
};

/* Of all ranks on rank 0, of this one elsewhere. */
struct sb_paths {
    struct sb_path *paths;
    size_t path_count;
    struct sb_event *events; /* by rank, then by time */
    size_t event_count;
    uint64_t paths_left_out; /* that the page has no room for */
    uint64_t dropped;        /* events that the page has no more */
    uint64_t without_page;   /* ranks of which nothing is known: they have no state page */
};

/* All ranks call it together; together false: after a failure, when each has only what is its own.
 * Times of events count from since_ns of this rank's clock. */
int sb_paths_collect(struct sluice_comm *comm, uint64_t since_ns, bool together,
                     struct sb_paths *out);
void sb_paths_fini(struct sb_paths *paths);

/* Rank 0's paths and those of others that had trouble; then what happened. Nothing where no
 * transport has paths and nothing happened. */
void sb_paths_report(FILE *out, const struct sb_paths *paths);

#endif
