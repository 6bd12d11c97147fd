/* SPDX-License-Identifier: Apache-2.0 */
/* Reads each rank's state page, as anybody could, and brings what stands there to rank 0. */
#include "core/err.h"
#include "core/state_file.h"
#include "core/state_read.h"
#include "lib/api.h"
#include "paths.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct mine {
    struct sl_state_path *paths;
    struct sl_event *events;
    size_t path_count, event_count;
    uint64_t paths_left_out, dropped;
    bool has_page;
    int err;
};

/* What a rank will send; sent as bytes between equal programs. */
struct head {
    uint64_t paths, events, paths_left_out, dropped, pages;
};

static void take_paths(const struct sl_state_reader *reader, struct mine *mine)
{
    for (uint32_t i = 0; i < sl_state_count(reader, SL_STATE_PATH); i++) {
        struct sl_state_path *path = &mine->paths[mine->path_count];

        mine->path_count +=
            sl_state_get(reader, SL_STATE_PATH, i, path, sizeof(*path)) == SL_STATE_WHOLE &&
            path->comm != 0;
    }
}

static void count_left_out(const struct sl_state_reader *reader, struct mine *mine)
{
    struct sl_state_comm comm;

    for (uint32_t i = 0; i < sl_state_count(reader, SL_STATE_COMM); i++)
        if (sl_state_get(reader, SL_STATE_COMM, i, &comm, sizeof(comm)) == SL_STATE_WHOLE &&
            comm.number != 0)
            mine->paths_left_out += comm.paths_left_out;
}

/* By their numbers, from the oldest that can be there. */
static void take_events(const struct sl_state_reader *reader, struct mine *mine)
{
    uint32_t count = sl_state_count(reader, SL_STATE_EVENT);
    uint64_t newest = 0, number;
    struct sl_event event;

    for (uint32_t i = 0; i < count; i++)
        if (sl_state_get_event(reader, i, &event, &number) == SL_STATE_WHOLE && number > newest)
            newest = number;
    for (uint64_t n = newest > count ? newest - count : 0; n < newest; n++)
        if (sl_state_get_event(reader, (uint32_t)(n % count), &event, &number) == SL_STATE_WHOLE &&
            number == n + 1)
            mine->events[mine->event_count++] = event;
    mine->dropped = newest - mine->event_count;
}

static void take_page(void *arg, int fd, bool lives)
{
    struct mine *mine = arg;
    struct sl_state_reader reader;

    if (mine->has_page || sl_state_read_fd(fd, &reader) != 0)
        return;
    mine->has_page = true;
    mine->paths = calloc(sl_state_count(&reader, SL_STATE_PATH) + 1, sizeof(*mine->paths));
    mine->events = calloc(sl_state_count(&reader, SL_STATE_EVENT) + 1, sizeof(*mine->events));
    if (mine->paths == NULL || mine->events == NULL) {
        mine->err = sl_fail(-ENOMEM, "no memory for the statistics of %u paths",
                            sl_state_count(&reader, SL_STATE_PATH));
        return;
    }
    take_paths(&reader, mine);
    count_left_out(&reader, mine);
    take_events(&reader, mine);
}

/* Without a page there is nothing. */
static int take_mine(struct sluice_comm *comm, uint64_t since_ns, struct mine *mine)
{
    sl_comm_publish(comm);
    sl_state_file_find(getpid(), take_page, mine);
    for (size_t i = 0; i < mine->event_count; i++)
        mine->events[i].time_ns -= since_ns;
    return mine->err;
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
    out->paths_left_out += head->paths_left_out;
    out->dropped += head->dropped;
    out->without_page += head->pages == 0;
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
    if (mine->path_count > 0)
        memcpy(block, mine->paths, mine->path_count * sizeof(struct sl_state_path));
    if (mine->event_count > 0)
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
        struct head head = {mine.path_count, mine.event_count, mine.paths_left_out, mine.dropped,
                            mine.has_page};

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
