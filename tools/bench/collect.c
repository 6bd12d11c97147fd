/* SPDX-License-Identifier: Apache-2.0 */
/* Brings what each rank knows of its paths to rank 0. */
#include "core/err.h"
#include "lib/api.h"
#include "paths.h"

#include <stdlib.h>
#include <string.h>

struct mine {
    struct sl_state_path *paths;
    struct sl_event *events;
    size_t path_count, event_count;
    uint64_t dropped;
};

/* What a rank will send; sent as bytes between equal programs. */
struct head {
    uint64_t paths, events, dropped;
};

static int take_mine(struct sluice_comm *comm, uint64_t since_ns, struct mine *mine)
{
    struct sl_event_totals totals;

    mine->path_count = sl_comm_paths(comm, NULL, 0);
    mine->paths = calloc(mine->path_count + 1, sizeof(*mine->paths));
    mine->events = calloc(SL_EVENT_RING, sizeof(*mine->events));
    if (mine->paths == NULL || mine->events == NULL)
        return sl_fail(-ENOMEM, "no memory for the statistics of %zu paths", mine->path_count);
    size_t now = sl_comm_paths(comm, mine->paths, mine->path_count);

    mine->path_count = now < mine->path_count ? now : mine->path_count;
    mine->event_count = sl_comm_events(comm, mine->events, SL_EVENT_RING, &totals);
    mine->dropped = totals.dropped;
    for (size_t i = 0; i < mine->event_count; i++)
        mine->events[i].time_ns -= since_ns;
    return 0;
}

static void add(struct sb_paths *out, int rank, const struct head *head, const char *block,
                size_t room)
{
    const char *events = block + room * sizeof(struct sl_state_path);

    for (size_t i = 0; i < head->paths; i++) {
        struct sb_path *path = &out->paths[out->path_count++];

        path->rank = rank;
        memcpy(&path->stat, block + i * sizeof(path->stat), sizeof(path->stat));
    }
    for (size_t i = 0; i < head->events; i++) {
        struct sb_event *event = &out->events[out->event_count++];

        event->rank = rank;
        memcpy(&event->event, events + i * sizeof(event->event), sizeof(event->event));
    }
    out->dropped += head->dropped;
}

static int make_room(struct sb_paths *out, const struct head *heads, int count)
{
    size_t paths = 0, events = 0;

    for (int i = 0; i < count; i++) {
        paths += heads[i].paths;
        events += heads[i].events;
    }
    *out = (struct sb_paths){.paths = calloc(paths + 1, sizeof(*out->paths)),
                             .events = calloc(events + 1, sizeof(*out->events))};
    if (out->paths != NULL && out->events != NULL)
        return 0;
    sb_paths_fini(out);
    return sl_fail(-ENOMEM, "no memory for the statistics of %zu paths", paths);
}

/* Blocks of one size each: room for the most paths, and behind them for the most events. */
static char *block_of(const struct mine *mine, size_t paths, size_t events, size_t *bytes)
{
    size_t first = paths * sizeof(struct sl_state_path);
    char *block;

    *bytes = first + events * sizeof(struct sl_event);
    block = calloc(1, *bytes + 1);
    if (block == NULL)
        return NULL;
    memcpy(block, mine->paths, mine->path_count * sizeof(struct sl_state_path));
    memcpy(block + first, mine->events, mine->event_count * sizeof(struct sl_event));
    return block;
}

static int take_own(const struct mine *mine, const struct head *head, int rank,
                    struct sb_paths *out)
{
    size_t bytes;
    char *block = block_of(mine, head->paths, head->events, &bytes);
    int err = block == NULL ? sl_fail(-ENOMEM, "no memory for %zu paths", mine->path_count)
                            : make_room(out, head, 1);

    if (err == 0)
        add(out, rank, head, block, head->paths);
    free(block);
    return err;
}

static int take_all(struct sluice_comm *comm, const struct mine *mine, const struct head *head,
                    struct sb_paths *out)
{
    int size = sluice_comm_size(comm), rank = sluice_comm_rank(comm), err;
    struct head *heads = calloc((size_t)size, sizeof(*heads)), most = {0};
    char *block = NULL, *all = NULL;
    size_t bytes = 0;

    err = heads == NULL ? sl_fail(-ENOMEM, "no memory for %d ranks", size)
                        : sluice_all_gather(comm, head, heads, sizeof(*head), SLUICE_U8, NULL);
    for (int i = 0; i < size && err == 0; i++) {
        most.paths = heads[i].paths > most.paths ? heads[i].paths : most.paths;
        most.events = heads[i].events > most.events ? heads[i].events : most.events;
    }
    if (err == 0) {
        block = block_of(mine, most.paths, most.events, &bytes);
        all = rank == 0 ? calloc((size_t)size, bytes + 1) : NULL;
        if (block == NULL || (rank == 0 && all == NULL))
            err = sl_fail(-ENOMEM, "no memory for the statistics of %d ranks", size);
    }
    if (err == 0 && bytes > 0)
        err = sluice_gather(comm, block, all, bytes, SLUICE_U8, 0, NULL);
    if (err == 0 && rank == 0)
        err = make_room(out, heads, size);
    for (int i = 0; i < size && rank == 0 && err == 0; i++)
        add(out, i, &heads[i], all + (size_t)i * bytes, most.paths);
    free(heads);
    free(block);
    free(all);
    return err;
}

int sb_paths_collect(struct sluice_comm *comm, uint64_t since_ns, bool together,
                     struct sb_paths *out)
{
    struct mine mine = {0};
    int err = take_mine(comm, since_ns, &mine);

    if (err == 0) {
        struct head head = {mine.path_count, mine.event_count, mine.dropped};

        if (!together || (err = take_all(comm, &mine, &head, out)) != 0 ||
            sluice_comm_rank(comm) != 0) {
            int own = take_own(&mine, &head, sluice_comm_rank(comm), out);

            err = err != 0 ? err : own;
        }
    }
    free(mine.paths);
    free(mine.events);
    return err;
}
