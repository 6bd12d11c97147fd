/* SPDX-License-Identifier: Apache-2.0 */
/* Runs what was drawn or scripted, and judges every rank's results and errors. */
#include "core/err.h"
#include "tests/sim/swarm.h"

#include <stdlib.h>
#include <string.h>

#define LIMIT_NS (60 * SL_NS_PER_S) /* of virtual time, whatever happened */

static bool names_a_rank(const char *text)
{
    return strstr(text, "rank") != NULL;
}

/* A result that is allowed in this mode, or not. Refused means the same on all ranks. */
static bool allowed(const struct swarm *s, const struct swarm_rank *r, int result, const char *text)
{
    if (result >= 0)
        return true;
    if (result == -EINVAL && strstr(text, "SLUICE_ALGO") != NULL)
        return true;
    switch (s->mode) {
    case SWARM_WELL: return false;
    case SWARM_MISMATCH: return result == -EPROTO && names_a_rank(text);
    case SWARM_ABORT: return (result == -ECANCELED || result == -ECONNRESET) && names_a_rank(text);
    case SWARM_FATAL: break;
    }
    return (result == -ECONNRESET || result == -ETIMEDOUT || result == -EHOSTUNREACH ||
            result == -ECONNREFUSED || result == -ECANCELED) &&
           (names_a_rank(text) || sl_sim_crashed(s->sim, r->rank));
}

static bool refused_somewhere(const struct swarm *s)
{
    for (uint32_t i = 0; i < s->ranks; i++)
        for (unsigned c = 0; c < s->call_count; c++)
            if (s->rank[i].result[c] == -EINVAL)
                return true;
    return false;
}

static bool judge_rank(const struct swarm *s, const struct swarm_rank *r, char *why, size_t cap)
{
    bool protested = false;

    if (r->wrong[0] != '\0') {
        snprintf(why, cap, "%s", r->wrong);
        return false;
    }
    if (!allowed(s, r, r->made, r->text[SWARM_CALLS])) {
        snprintf(why, cap, "rank %u: making communicators ended with %s: %s", r->rank,
                 sluice_strerror(r->made), r->text[SWARM_CALLS]);
        return false;
    }
    for (unsigned c = 0; c < s->call_count && r->made == 0; c++) {
        protested |= r->result[c] == -EPROTO;
        if (r->result[c] != 1 && allowed(s, r, r->result[c], r->text[c]))
            continue;
        snprintf(why, cap, "rank %u: call %u ended with %s: %s", r->rank, c,
                 r->result[c] == 1 ? "nothing" : sluice_strerror(r->result[c]), r->text[c]);
        return false;
    }
    if (s->mode == SWARM_MISMATCH && !protested && !refused_somewhere(s)) {
        snprintf(why, cap, "rank %u was not told that the calls differ", r->rank);
        return false;
    }
    return true;
}

static bool judge(struct swarm *s, int ran, char *why, size_t cap)
{
    if (ran != 0) {
        snprintf(why, cap, "%s", sluice_last_error());
        return false;
    }
    for (uint32_t i = 0; i < s->ranks; i++)
        if (!judge_rank(s, &s->rank[i], why, cap))
            return false;
    sl_sim_check_empty(s->sim);
    if (sl_sim_violation(s->sim) != NULL) {
        snprintf(why, cap, "%s", sl_sim_violation(s->sim));
        return false;
    }
    return true;
}

bool swarm_run(struct swarm *s, char *why, size_t cap)
{
    s->rank = calloc(s->ranks, sizeof(s->rank[0]));
    sl_assert(s->rank != NULL && sl_sim_create(&s->params, &s->sim) == 0);
    sl_assert(sl_sim_meeting_create(s->sim, s->ranks, 2 * SL_NS_PER_S, &s->meeting) == 0);
    for (uint32_t i = 0; i < 2 && s->anew; i++)
        sl_assert(sl_sim_meeting_create(s->sim, (s->ranks + 1 - i) / 2, 2 * SL_NS_PER_S,
                                        &s->halves[i]) == 0);
    for (uint32_t i = 0; i < s->ranks; i++) {
        s->rank[i].swarm = s;
        s->rank[i].rank = i;
        s->rank[i].exchange = sl_sim_meeting_exchange(s->meeting, i, i);
        if (s->anew)
            s->rank[i].half = sl_sim_meeting_exchange(s->halves[i % 2], i / 2, i);
        sl_assert(sl_sim_spawn(s->sim, i, swarm_program, &s->rank[i]) == 0);
    }
    s->ran = sl_sim_run(s->sim, LIMIT_NS);
    return judge(s, s->ran, why, cap);
}

void swarm_clean_up(struct swarm *s)
{
    sl_sim_meeting_destroy(s->meeting);
    sl_sim_meeting_destroy(s->halves[0]);
    sl_sim_meeting_destroy(s->halves[1]);
    /* What is stuck cannot be taken down: it ends with the program. */
    if (s->ran == 0)
        sl_sim_destroy(s->sim);
    if (s->ran == 0)
        free(s->rank);
}
