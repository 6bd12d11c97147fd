/* SPDX-License-Identifier: Apache-2.0 */
#include "multipath/trial.h"

#include "multipath/conn.h"
#include "multipath/iface.h"

#define REST_NS_MIN (50 * SL_NS_PER_MS)
#define QUARANTINE_NS_MAX (60 * SL_NS_PER_S)
#define FORGIVE_NS (30 * SL_NS_PER_S) /* up for so long: one of its losses is forgotten */
#define TRIES_MAX 100
#define LOSSES_MAX 12
#define PINGS 2      /* of a new path, by either end */
#define PINGS_MAX 64 /* of one with a bad record */

/* Do others carry meanwhile? */
static bool is_spare(const struct sl_mp_path *path)
{
    return path->conn->paths_up > (path->state == SL_MP_PATH_UP);
}

void sl_mp_trial_over(struct sl_mp_path *path, uint64_t now_ns)
{
    uint64_t forgotten = path->up_ns == 0 ? 0 : (now_ns - path->up_ns) / FORGIVE_NS;

    path->losses = forgotten < path->losses ? (uint8_t)(path->losses - forgotten) : 0;
    if (path->sound || path->excused || !path->rail->usable)
        return;
    path->misses++;
    if (path->up_ns == 0)
        path->tries += path->tries < TRIES_MAX;
    else
        path->losses += path->losses < LOSSES_MAX;
}

/* The least rest after the first time, twice as much after each that follows. */
static uint64_t rest_after(unsigned times, uint64_t most)
{
    uint64_t ns = REST_NS_MIN;

    while (times-- > 1 && ns < most)
        ns *= 2;
    return ns < most ? ns : most;
}

/* A try that fails hurts nobody, so there is one every other second; a path that comes up and fails
 * again holds up what it carries each time. */
uint64_t sl_mp_trial_rest_ns(const struct sl_mp_path *path)
{
    uint64_t ns = rest_after(path->tries + path->losses, SL_MP_TRY_NS);
    uint64_t quarantine_ns = rest_after(path->losses, QUARANTINE_NS_MAX);

    return is_spare(path) && quarantine_ns > ns ? quarantine_ns : ns;
}

bool sl_mp_is_on_trial(const struct sl_mp_path *path)
{
    return path->tries + path->losses > 0 && is_spare(path);
}

unsigned sl_mp_trial_pings(const struct sl_mp_path *path)
{
    unsigned bad = path->tries + path->losses;

    if (!sl_mp_is_on_trial(path))
        return PINGS;
    return bad < 4 ? 4u << bad : PINGS_MAX;
}

/* That this end did not look for the acknowledge meanwhile is no fault of the path: so it must have
 * been missing when it looked last. */
bool sl_mp_trial_is_lost(const struct sl_mp_path *path)
{
    const struct sl_mp_wr *ping = &path->wrs[(path->posted - 1) % SL_MP_WINDOW];

    return path->posted != path->retired && sl_mp_is_on_trial(path) && path->repeat_ns != 0 &&
           path->conn->iface->ticked_before_ns > ping->posted_ns + path->repeat_ns / 2;
}

uint8_t sl_mp_trial_writes(const struct sl_mp_path *path)
{
    return path->losses > 0 && is_spare(path) ? 1 : SL_MP_WRITES_ANY;
}
