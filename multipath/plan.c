/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the paths that the user lists, or makes the list that stands for auto. */
#include "multipath/plan.h"

#include "core/err.h"
#include "core/log.h"
#include "core/rng.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#define SPORT_BITS 14
#define SPORT_MASK UINT32_C(0x3fff)
#define SPORT_FIRST UINT32_C(0xc000) /* RoCE v2 keeps to the dynamic ports */

static_assert(SL_MP_PAIRS_MAX <= SL_MP_PATHS_MAX, "each pair of rails has a path");
static_assert(SL_MP_RAILS_MAX == SL_PATH_RAILS_MAX, "a list can name every rail and no other");

struct plan {
    const struct sl_mp_path_wishes *wishes;
    struct sl_mp_path_spec *specs;
    size_t cap, count;
    const struct sl_mp_reaches *rails;
    const uint8_t *lag_ports;
};

uint16_t sl_mp_udp_sport(uint32_t flow_label)
{
    uint32_t label = flow_label & SL_PATH_LABEL_MAX;

    return (uint16_t)(SPORT_FIRST | ((label ^ (label >> SPORT_BITS)) & SPORT_MASK));
}

static bool same_sport(uint32_t a, uint32_t b)
{
    return a != SL_PATH_LABEL_OPEN && b != SL_PATH_LABEL_OPEN &&
           sl_mp_udp_sport(a) == sl_mp_udp_sport(b);
}

static int add(struct plan *plan, unsigned local, unsigned remote, unsigned lag_port,
               uint32_t label)
{
    if (plan->count == plan->cap)
        return sl_fail(-EINVAL,
                       "path %u>%u is one more than the %zu that a connection can have; shorten %s",
                       local, remote, plan->cap, plan->wishes->variable);
    unsigned turn = 0;

    for (size_t i = 0; i < plan->count; i++)
        turn += plan->specs[i].local_rail == local && plan->specs[i].remote_rail == remote;
    plan->specs[plan->count++] = (struct sl_mp_path_spec){.local_rail = (uint8_t)local,
                                                          .remote_rail = (uint8_t)remote,
                                                          .turn = (uint8_t)turn,
                                                          .lag_port = (uint8_t)lag_port,
                                                          .flow_label = label};
    return 0;
}

static int read_list(struct plan *plan)
{
    const struct sl_mp_path_wishes *wishes = plan->wishes;
    const char *at = wishes->list;
    struct sl_path_entry entry;
    int last, err = 0;

    do {
        last = sl_path_entry_read(wishes->variable, &at, &entry);
        if (last < 0)
            return last;
        if (entry.local < plan->rails->local_rails && entry.remote < plan->rails->remote_rails)
            err = add(plan, entry.local, entry.remote, entry.lag_port, entry.label);
        else
            sl_info(wishes->area, "%s: '%.*s' is left out: there are %u local and %u remote rails",
                    wishes->variable, (int)entry.len, entry.text, plan->rails->local_rails,
                    plan->rails->remote_rails);
        if (err != 0)
            return err;
    } while (last == 0);
    if (plan->count == 0)
        return sl_fail(
            -EINVAL,
            "%s '%s' names none of the %u local and %u remote rails that there are (they "
            "count from 0)",
            wishes->variable, wishes->list, plan->rails->local_rails, plan->rails->remote_rails);
    return 0;
}

/* One path for each port of the bonds, if so many paths can be had. */
static int64_t choose_per_rail(const struct plan *plan, size_t pairs)
{
    int64_t most = 1;

    for (unsigned i = 0; i < plan->rails->local_rails; i++)
        most = plan->lag_ports[i] > most ? plan->lag_ports[i] : most;
    while (most > 1 && (size_t)most * pairs > plan->cap)
        most--;
    return most;
}

/* As many as were asked for, or as there is room for. */
static int64_t fit_per_rail(const struct plan *plan, int64_t per_rail, size_t pairs)
{
    static _Atomic bool said;
    int64_t most = (int64_t)(plan->cap / pairs);

    if (per_rail <= most || most == 0)
        return per_rail;
    sl_log(
        atomic_exchange(&said, true) ? SL_LOG_DEBUG : SL_LOG_WARN, plan->wishes->area,
        "%s_PER_RAIL %lld is too much for %zu pairs of rails: a connection has %zu paths at most, "
        "so these have %lld each",
        plan->wishes->variable, (long long)per_rail, pairs, plan->cap, (long long)most);
    return most;
}

/* Every pair once before any twice. */
static int make_list(struct plan *plan, int64_t per_rail)
{
    struct sl_mp_pair pairs[SL_MP_PAIRS_MAX];
    size_t count = sl_mp_pairs(plan->rails, pairs);

    if (per_rail == 0)
        per_rail = choose_per_rail(plan, count);
    per_rail = fit_per_rail(plan, per_rail, count);
    for (int64_t turn = 0; turn < per_rail; turn++) {
        for (size_t i = 0; i < count; i++) {
            int err = add(plan, pairs[i].local, pairs[i].remote, 0, SL_PATH_LABEL_OPEN);

            if (err != 0)
                return err;
        }
    }
    return 0;
}

int sl_mp_plan(const struct sl_mp_path_wishes *wishes, const struct sl_mp_plan_ends *ends,
               struct sl_mp_path_spec *out, size_t cap, size_t *count)
{
    struct plan plan = {.wishes = wishes,
                        .specs = out,
                        .cap = cap,
                        .rails = &ends->rails,
                        .lag_ports = ends->lag_ports};
    int err;

    if (ends->rails.local_rails == 0 || ends->rails.remote_rails == 0)
        return sl_fail(-EINVAL, "no path is possible between %u local and %u remote rails",
                       ends->rails.local_rails, ends->rails.remote_rails);
    if (sl_path_list_auto(wishes->list))
        err = make_list(&plan, wishes->per_rail);
    else
        err = read_list(&plan);
    if (err != 0)
        return err;
    *count = plan.count;
    return 0;
}

/* ---- routes ---- */

/* What the list says of a path; false: nothing, as it does not have it, or is none. */
static bool listed(const struct sl_mp_path_wishes *wishes, const struct sl_mp_path_spec *spec,
                   struct sl_path_entry *out)
{
    const char *list = wishes->list;
    unsigned turn = spec->turn;
    int last = sl_path_list_auto(list);

    while (last == 0) {
        last = sl_path_entry_read(wishes->variable, &list, out);
        if (last >= 0 && out->local == spec->local_rail && out->remote == spec->remote_rail &&
            turn-- == 0)
            return true;
    }
    return false;
}

static bool sport_listed(const struct sl_mp_path_wishes *wishes, uint32_t label)
{
    const char *list = wishes->list;
    struct sl_path_entry entry;
    int last = sl_path_list_auto(list);

    while (last == 0) {
        last = sl_path_entry_read(wishes->variable, &list, &entry);
        if (last >= 0 && same_sport(entry.label, label))
            return true;
    }
    return false;
}

/* The first of a random row whose source port is free, and is not the path's own of before. */
static uint32_t draw_label(const struct sl_mp_path_wishes *wishes, uint64_t seed,
                           const struct sl_mp_path_spec *specs, size_t count)
{
    struct sl_rng rng;
    uint32_t label;
    bool taken;

    sl_rng_init(&rng, seed);
    do {
        label = (uint32_t)sl_rng_range(&rng, 1, SL_PATH_LABEL_MAX);
        taken = sport_listed(wishes, label);
        for (size_t i = 0; i < count; i++)
            taken |= same_sport(specs[i].flow_label, label);
    } while (taken);
    return label;
}

/* Those that leave the choice take the ports of the bond in turns. */
static uint8_t deal_lag_port(const struct sl_mp_path_wishes *wishes, unsigned lag_ports,
                             const struct sl_mp_path_spec *specs, size_t at)
{
    struct sl_path_entry entry;
    unsigned turn = 0;

    for (size_t i = 0; i < at; i++)
        turn += specs[i].local_rail == specs[at].local_rail &&
                !(listed(wishes, &specs[i], &entry) && entry.lag_port != 0);
    return (uint8_t)(1 + turn % lag_ports);
}

bool sl_mp_plan_route(const struct sl_mp_path_wishes *wishes, unsigned lag_ports, uint64_t seed,
                      struct sl_mp_path_spec *specs, size_t count, size_t at)
{
    struct sl_mp_path_spec *spec = &specs[at];
    struct sl_path_entry entry = {.label = SL_PATH_LABEL_OPEN};
    bool is_listed = listed(wishes, spec, &entry);

    if (!is_listed)
        entry = (struct sl_path_entry){.label = SL_PATH_LABEL_OPEN};
    static_assert(SL_MP_PATHS_MAX < SPORT_MASK / 4, "enough ports are free, and soon found");
    spec->flow_label =
        entry.label != SL_PATH_LABEL_OPEN ? entry.label : draw_label(wishes, seed, specs, count);
    spec->lag_port = (uint8_t)entry.lag_port;
    if (spec->lag_port == 0 && lag_ports > 1)
        spec->lag_port = deal_lag_port(wishes, lag_ports, specs, at);
    return is_listed || sl_path_list_auto(wishes->list);
}
