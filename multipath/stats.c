/* SPDX-License-Identifier: Apache-2.0 */
/* What is told of a connection's paths. */
#include "multipath/stats.h"

#include "core/state.h"
#include "multipath/conn.h"
#include "multipath/fallback.h"
#include "multipath/lazy.h"

#include <stdio.h>
#include <string.h>

static const char *state_of(const struct sl_mp_path *path)
{
    switch ((enum sl_mp_path_state)path->state) {
    case SL_MP_PATH_IDLE:
        return path->rail == NULL ? "resting" : path->later ? "not needed yet" : "down";
    case SL_MP_PATH_OFFERED:
    case SL_MP_PATH_PINGING:
    case SL_MP_PATH_ACCEPTED: return "connecting";
    case SL_MP_PATH_UP: return path->failing ? "failing" : "up";
    case SL_MP_PATH_FENCING: return "fencing";
    }
    return "unknown";
}

/* As if all writes of the window had been its mean one. */
static struct sl_state_quickest mean_of(const struct sl_mp_busy *busy)
{
    if (busy->writes == 0)
        return (struct sl_state_quickest){0};
    return (struct sl_state_quickest){.ns = busy->ns / busy->writes,
                                      .bytes = busy->bytes / busy->writes,
                                      .messages = busy->writes,
                                      .window = (uint32_t)busy->window};
}

static void tell(const struct sl_mp_path *path, struct sl_state_path *out)
{
    const struct sl_mp_path_stats *stats = &path->stats;

    *out = (struct sl_state_path){
        .peer = path->conn->base.peer,
        .number = path->rail == NULL ? -1 : path->idx,
        .sent_bytes = stats->sent_bytes,
        .sent_messages = stats->sent_messages,
        .received_bytes = stats->received_bytes,
        .received_messages = stats->received_messages,
        .resent = stats->resent,
        .failures = stats->failures,
        .ups = stats->ups,
        .quickest = {mean_of(&stats->busy[0]), mean_of(&stats->busy[1])},
        .label = path->shown.label,
        .source_port = path->shown.source_port,
        .weight = path->rail == NULL ? 0 : path->weight,
        .is_avoided = path->is_avoided,
    };
    memcpy(out->histogram, stats->histogram, sizeof(out->histogram));
    path->lanes->name(path, out->name, sizeof(out->name));
    memccpy(out->state, state_of(path), '\0', sizeof(out->state) - 1);
    memccpy(out->why, path->why, '\0', sizeof(out->why) - 1);
}

/* Behind those that are there. How many there are then. */
static size_t tell_routes(const struct sl_mp_path *path, struct sl_state_path *out, size_t count,
                          size_t cap)
{
    unsigned routes = path->lanes->routes != NULL ? path->lanes->routes(path) : 0;

    for (unsigned i = 0; i < routes; i++, count++) {
        if (count >= cap)
            continue;
        out[count] =
            (struct sl_state_path){.peer = path->conn->base.peer,
                                   .number = path->idx + (int)(i + 1) * SL_STATE_PATH_ROUTE};
        path->lanes->tell_route(path, i, &out[count]);
    }
    return count;
}

size_t sl_mp_ep_stats(const struct sl_ep *base, struct sl_state_path *out, size_t cap)
{
    const struct sl_mp_conn *conn = (const struct sl_mp_conn *)base;
    const struct sl_mp_path *fallback = sl_mp_fallback_past(conn);
    size_t count = 0;

    for (unsigned i = 0; i < conn->path_count; i++) {
        const struct sl_mp_path *path = conn->paths[i];

        if (path == NULL)
            continue;
        if (count < cap)
            tell(path, &out[count]);
        count++;
    }
    if (fallback != NULL && count++ < cap)
        tell(fallback, &out[count - 1]);
    for (unsigned i = 0; i < conn->path_count; i++)
        if (conn->paths[i] != NULL)
            count = tell_routes(conn->paths[i], out, count, cap);
    return count;
}

static const char *words_of(const struct sl_mp_path *path)
{
    if (path->state == SL_MP_PATH_UP) /* a path outlives a link that is down for a moment */
        return path->rail->usable ? "up" : path->rail->why;
    if (path->later)
        return "not needed yet";
    return path->why[0] != '\0' ? path->why : "down";
}

void sl_mp_ep_describe(const struct sl_ep *base, char *out, size_t cap)
{
    const struct sl_mp_conn *conn = (const struct sl_mp_conn *)base;
    uint64_t sent = 0, received = 0;

    for (unsigned i = 0; i < conn->path_count; i++)
        if (conn->paths[i] != NULL) {
            sent += conn->paths[i]->stats.sent_bytes;
            received += conn->paths[i]->stats.received_bytes;
        }
    snprintf(out, cap, "%s, %u of %u paths up", base->iface->ops->name, conn->paths_up,
             sl_mp_paths_all(conn));
    for (unsigned i = 0; i < conn->path_count; i++)
        if (conn->paths[i] != NULL && conn->paths[i]->rail != NULL)
            sl_text_add(out, cap, ", %s %s", conn->paths[i]->rail->name, words_of(conn->paths[i]));
    if (!conn->leads && conn->later)
        sl_text_add(out, cap, ", others not needed yet");
    sl_text_add(out, cap, ", sent %llu, received %llu bytes", (unsigned long long)sent,
                (unsigned long long)received);
}
