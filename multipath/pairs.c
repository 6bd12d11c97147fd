/* SPDX-License-Identifier: Apache-2.0 */
/* Pairs rails: a largest matching by augmenting paths, then those that are left over. */
#include "multipath/pairs.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

#define NOBODY UINT8_MAX

static_assert(SL_MP_RAILS_MAX <= 32, "a bit for each in a mask");

struct matching {
    const struct sl_mp_reaches *reaches;
    uint32_t local_direct, remote_direct; /* rails that the other end has one of their subnet for */
    bool direct;                          /* only one subnet counts at present */
    bool near;                            /* ... and only what is far at neither end */
    uint8_t of_local[SL_MP_RAILS_MAX];    /* the other rail of the pair, or NOBODY */
    uint8_t of_remote[SL_MP_RAILS_MAX];
    unsigned local_paths[SL_MP_RAILS_MAX], remote_paths[SL_MP_RAILS_MAX];
    struct sl_mp_pair *out;
    size_t count;
};

/* May these two be paired? Through a router only where neither has any of its own subnet. */
static bool suit(const struct matching *m, unsigned local, unsigned remote)
{
    if (m->near &&
        ((m->reaches->local_far >> local & 1) != 0 || (m->reaches->remote_far >> remote & 1) != 0))
        return false;
    switch ((enum sl_mp_reach)m->reaches->reach[local][remote]) {
    case SL_MP_REACH_DIRECT: return m->direct;
    case SL_MP_REACH_UNKNOWN: return !m->direct;
    case SL_MP_REACH_ROUTED:
        return !m->direct && (m->local_direct & 1u << local) == 0 &&
               (m->remote_direct & 1u << remote) == 0;
    case SL_MP_REACH_NEVER: break;
    }
    return false;
}

static bool take(struct matching *m, unsigned local, unsigned remote)
{
    m->of_local[local] = (uint8_t)remote;
    m->of_remote[remote] = (uint8_t)local;
    return true;
}

static bool is_free(const struct matching *m, unsigned local, unsigned remote)
{
    return remote < m->reaches->remote_rails && m->of_remote[remote] == NOBODY &&
           suit(m, local, remote);
}

/* Finds a partner for a local rail, moving others if need be; seen: remote rails that are not to be
 * asked again. */
static bool find(struct matching *m, unsigned local, uint32_t *seen)
{
    if (is_free(m, local, local))
        return take(m, local, local);
    for (unsigned i = 0; i < m->reaches->remote_rails; i++)
        if (is_free(m, local, i))
            return take(m, local, i);
    for (unsigned i = 0; i < m->reaches->remote_rails; i++) {
        if ((*seen & 1u << i) != 0 || !suit(m, local, i))
            continue;
        *seen |= 1u << i;
        if (find(m, m->of_remote[i], seen))
            return take(m, local, i);
    }
    return false;
}

static void match_numbers(struct matching *m)
{
    for (unsigned i = 0; i < m->reaches->local_rails; i++)
        if (m->of_local[i] == NOBODY && is_free(m, i, i))
            take(m, i, i);
}

static void match_all(struct matching *m, uint32_t settled)
{
    for (unsigned i = 0; i < m->reaches->local_rails; i++) {
        uint32_t seen = settled;

        if (m->of_local[i] == NOBODY)
            find(m, i, &seen);
    }
}

/* Pairs that are there stay. Those that are near at both ends come first, and give way only where
 * that makes one pair more; the others keep to their numbers around them. */
static void match(struct matching *m, bool direct)
{
    uint32_t settled = 0;

    m->direct = direct;
    for (unsigned i = 0; i < m->reaches->remote_rails; i++)
        settled |= m->of_remote[i] != NOBODY ? 1u << i : 0;
    if (direct && (m->reaches->local_far | m->reaches->remote_far) != 0) {
        m->near = true;
        match_numbers(m);
        match_all(m, settled);
        m->near = false;
        match_numbers(m);
    }
    match_all(m, settled);
}

static void add(struct matching *m, unsigned local, unsigned remote)
{
    m->local_paths[local]++;
    m->remote_paths[remote]++;
    m->out[m->count++] = (struct sl_mp_pair){(uint8_t)local, (uint8_t)remote};
}

/* With the remote rail that has the fewest paths. */
static void share_remote(struct matching *m, unsigned local)
{
    unsigned best = NOBODY;

    for (unsigned i = 0; i < m->reaches->remote_rails; i++)
        if (suit(m, local, i) && (best == NOBODY || m->remote_paths[i] < m->remote_paths[best]))
            best = i;
    if (best != NOBODY)
        add(m, local, best);
}

static void share_local(struct matching *m, unsigned remote)
{
    unsigned best = NOBODY;

    for (unsigned i = 0; i < m->reaches->local_rails; i++)
        if (suit(m, i, remote) && (best == NOBODY || m->local_paths[i] < m->local_paths[best]))
            best = i;
    if (best != NOBODY)
        add(m, best, remote);
}

static void find_subnets(struct matching *m)
{
    for (unsigned i = 0; i < m->reaches->local_rails; i++)
        for (unsigned j = 0; j < m->reaches->remote_rails; j++)
            if (m->reaches->reach[i][j] == SL_MP_REACH_DIRECT) {
                m->local_direct |= 1u << i;
                m->remote_direct |= 1u << j;
            }
}

/* None can be connected: the attempts will tell why. */
static size_t by_number(struct matching *m)
{
    unsigned local = m->reaches->local_rails, remote = m->reaches->remote_rails;

    for (unsigned i = 0; i < local; i++)
        add(m, i, i < remote ? i : 0);
    for (unsigned i = local; i < remote; i++)
        add(m, 0, i);
    return m->count;
}

size_t sl_mp_pairs(const struct sl_mp_reaches *reaches, struct sl_mp_pair out[SL_MP_PAIRS_MAX])
{
    struct matching m = {.reaches = reaches, .out = out};

    memset(m.of_local, NOBODY, sizeof(m.of_local));
    memset(m.of_remote, NOBODY, sizeof(m.of_remote));
    find_subnets(&m);
    match(&m, true);
    match(&m, false);
    for (unsigned i = 0; i < reaches->local_rails; i++)
        if (m.of_local[i] != NOBODY)
            add(&m, i, m.of_local[i]);
    m.direct = m.local_direct != 0;
    for (unsigned i = 0; i < reaches->local_rails; i++)
        if (m.local_paths[i] == 0)
            share_remote(&m, i);
    for (unsigned i = 0; i < reaches->remote_rails; i++)
        if (m.remote_paths[i] == 0)
            share_local(&m, i);
    return m.count > 0 ? m.count : by_number(&m);
}
