/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/path.h"

#include <stdio.h>
#include <string.h>

bool sl_mon_path_port(const char *name, char *out, size_t cap)
{
    size_t len = strcspn(name, " @");
    const char *colon = memchr(name, ':', len);

    if (len == 0 || len >= cap || colon == NULL || colon == name || colon + 1 == name + len)
        return false;
    for (const char *at = colon + 1; at < name + len; at++)
        if (*at < '0' || *at > '9')
            return false;
    memcpy(out, name, len);
    out[len] = '\0';
    return true;
}

static uint64_t more(uint64_t before, uint64_t after)
{
    return after > before ? after - before : 0;
}

struct sl_mon_path_change sl_mon_path_read(struct sl_mon_path *path, uint64_t now_ns, int16_t port,
                                           const struct sl_state_path *record)
{
    struct sl_mon_path_change change = {.failures = 0};
    bool is_same = path->comm == record->comm && path->peer == record->peer && path->comm != 0 &&
                   path->port == port && record->sent_bytes >= path->sent &&
                   record->failures >= path->failures;

    if (!is_same) /* one that was not seen before: what it did until now may be long ago */
        *path = (struct sl_mon_path){.sent = record->sent_bytes,
                                     .received = record->received_bytes,
                                     .failures = record->failures,
                                     .resent = record->resent};
    change.failures = more(path->failures, record->failures);
    change.resent = more(path->resent, record->resent);
    change.bytes =
        more(path->sent, record->sent_bytes) + more(path->received, record->received_bytes);
    if (change.bytes > 0)
        path->moved_ns = now_ns;
    if (change.failures > 0)
        path->failed_ns = now_ns;
    path->turn = record->turn;
    path->comm = record->comm;
    path->peer = record->peer;
    path->port = port;
    path->sent = record->sent_bytes;
    path->received = record->received_bytes;
    path->failures = record->failures;
    path->resent = record->resent;
    path->ups = record->ups;
    path->is_up = strcmp(record->state, "up") == 0;
    return change;
}

void sl_mon_path_end(struct sl_mon_path *path)
{
    *path = (struct sl_mon_path){.comm = 0};
}

/* ---- of all paths of a rank ---- */

static bool carries(const struct sl_mon_path *path, uint64_t now_ns)
{
    return path->is_up && path->moved_ns != 0 && now_ns - path->moved_ns <= SL_MON_PATH_FRESH_NS;
}

/* Is there another port over which the same peer was reached after that? When a peer dies all paths
 * to it end, one after the other. */
static bool is_reached(const struct sl_mon_path *paths, unsigned count,
                       const struct sl_mon_path *path, uint64_t now_ns)
{
    for (unsigned i = 0; i < count; i++)
        if (paths[i].comm == path->comm && paths[i].peer == path->peer && paths[i].port >= 0 &&
            paths[i].port != path->port && carries(&paths[i], now_ns) &&
            paths[i].moved_ns > path->failed_ns)
            return true;
    return false;
}

void sl_mon_path_judge(const struct sl_mon_path *paths, unsigned count, uint64_t now_ns,
                       uint64_t since_ns, struct sl_mon_path_verdict *ports, unsigned port_count)
{
    for (unsigned i = 0; i < count; i++) {
        const struct sl_mon_path *path = &paths[i];

        if (path->comm == 0 || path->port < 0 || (unsigned)path->port >= port_count)
            continue;
        /* One that was never up is on its way there. */
        bool is_down = !path->is_up && path->ups > 0;
        bool has_failed = path->failed_ns != 0 && path->failed_ns > since_ns;

        ports[path->port].paths++;
        ports[path->port].down += is_down;
        ports[path->port].carries += carries(path, now_ns);
        if ((is_down || has_failed) && is_reached(paths, count, path, now_ns))
            ports[path->port].accuse++;
    }
}

void sl_mon_path_sample(struct sl_mon *mon, struct sl_mon_subject *port,
                        const struct sl_mon_path_verdict *verdict, uint64_t failures_before,
                        uint64_t failures)
{
    struct sl_mon_evidence evidence = {
        .source = "state pages", .before = failures_before, .after = failures};

    if (verdict->accuse == 0) {
        if (verdict->carries > 0)
            sl_mon_sample(mon, port, SL_MON_CHECK_PORT_PATHS, false, NULL);
        return;
    }
    snprintf(evidence.text, sizeof(evidence.text),
             "%u of %u paths of ranks over this port fail, while other ports carry to the same "
             "peers; %u are down",
             verdict->accuse, verdict->paths, verdict->down);
    sl_mon_sample(mon, port, SL_MON_CHECK_PORT_PATHS, true, &evidence);
}
