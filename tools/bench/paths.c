/* SPDX-License-Identifier: Apache-2.0 */
/* The lines of --stats about paths and events. */
#include "paths.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define EVENTS_SHOWN 60

void sb_paths_fini(struct sb_paths *paths)
{
    free(paths->paths);
    free(paths->events);
    *paths = (struct sb_paths){0};
}

/* A large run has thousands of paths; those of other ranks that only work are left to --json. */
static bool path_is_shown(const struct sb_path *path)
{
    return path->rank == 0 || path->stat.failures > 0 || path->stat.resent > 0 ||
           (strcmp(path->stat.state, "up") != 0 && strcmp(path->stat.state, "not needed yet") != 0);
}

static bool event_is_shown(const struct sb_event *event)
{
    enum sl_event_show show = sl_event_shown(event->event.kind);

    return show == SL_EVENT_SHOW || (show == SL_EVENT_SHOW_FIRST && event->rank == 0);
}

static void print_path(FILE *out, const struct sb_path *path, int width)
{
    const struct sl_state_path *stat = &path->stat;
    char number[16] = "-", p50[24] = "-", p99[24] = "-";

    if (stat->number >= 0)
        snprintf(number, sizeof(number), "%d", stat->number);
    if (sl_histogram_total(stat->histogram) > 0) {
        snprintf(p50, sizeof(p50), "%.1f", sl_histogram_percentile(stat->histogram, 50) / 1000);
        snprintf(p99, sizeof(p99), "%.1f", sl_histogram_percentile(stat->histogram, 99) / 1000);
    }
    fprintf(out,
            "# %4d %5d %5s  %-*s  %-14s  %14" PRIu64 " %9" PRIu64 "  %14" PRIu64 " %9" PRIu64
            "  %9s %9s  %7" PRIu64 " %6" PRIu64 "  %s\n",
            path->rank, stat->peer, number, width, stat->name, stat->state, stat->sent_bytes,
            stat->sent_messages, stat->received_bytes, stat->received_messages, p50, p99,
            stat->resent, stat->failures, stat->why[0] != '\0' ? stat->why : "-");
}

static void print_paths(FILE *out, const struct sb_paths *paths)
{
    size_t left_out = 0;
    int width = 4;

    if (paths->path_count == 0)
        return;
    for (size_t i = 0; i < paths->path_count; i++)
        if (path_is_shown(&paths->paths[i]) && (int)strlen(paths->paths[i].stat.name) > width)
            width = (int)strlen(paths->paths[i].stat.name);
    fprintf(out,
            "#\n# Paths\n# %4s %5s %5s  %-*s  %-14s  %14s %9s  %14s %9s  %9s %9s  %7s %6s  %s\n",
            "rank", "peer", "path", width, "name", "state", "sent (B)", "messages", "received (B)",
            "messages", "p50 (us)", "p99 (us)", "resent", "failed", "last error");
    for (size_t i = 0; i < paths->path_count; i++)
        if (path_is_shown(&paths->paths[i]))
            print_path(out, &paths->paths[i], width);
        else
            left_out++;
    if (left_out > 0)
        fprintf(out, "# %zu more path%s of other ranks: up, without a failure, or not needed yet\n",
                left_out, left_out == 1 ? "" : "s");
    if (paths->paths_left_out > 0)
        fprintf(out, "# %" PRIu64 " more paths are not known: state pages have no room for them\n",
                paths->paths_left_out);
}

static void print_events(FILE *out, const struct sb_paths *paths)
{
    size_t shown = 0;
    char text[128];

    for (size_t i = 0; i < paths->event_count; i++) {
        if (!event_is_shown(&paths->events[i]))
            continue;
        if (shown == 0)
            fprintf(out, "#\n# Events: seconds since its rank began to connect, what, to whom\n");
        if (shown++ >= EVENTS_SHOWN)
            continue;
        sl_event_text(&paths->events[i].event, text, sizeof(text));
        fprintf(out, "# rank %d: %s\n", paths->events[i].rank, text);
    }
    if (shown > EVENTS_SHOWN)
        fprintf(out, "# %zu more events: --json has all\n", shown - EVENTS_SHOWN);
    if (paths->dropped > 0)
        fprintf(out, "# %" PRIu64 " more events were not kept: too many at once\n", paths->dropped);
}

void sb_paths_report(FILE *out, const struct sb_paths *paths)
{
    print_paths(out, paths);
    print_events(out, paths);
    if (paths->without_page > 0)
        fprintf(out,
                "# %" PRIu64 " rank%s without a state page (SLUICE_STATE, ulimit -f): paths and "
                "events are not known\n",
                paths->without_page, paths->without_page == 1 ? "" : "s");
}
