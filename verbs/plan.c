/* SPDX-License-Identifier: Apache-2.0 */
/* Reads SLUICE_VERBS_PATHS, or makes the list that stands for auto. */
#include "verbs/plan.h"

#include "core/config.h"
#include "core/err.h"
#include "core/log.h"
#include "core/rng.h"
#include "verbs/device.h"

#include <stdbool.h>
#include <string.h>

#define SPORT_BITS 14
#define SPORT_MASK UINT32_C(0x3fff)
#define LABEL_OPEN UINT32_MAX
#define SPORT_FIRST UINT32_C(0xc000) /* RoCE v2 keeps to the dynamic ports */

struct plan {
    struct sl_verbs_path_spec *specs;
    size_t cap, count;
    unsigned local_rails, remote_rails;
    const uint8_t *lag_ports;
};

uint16_t sl_verbs_udp_sport(uint32_t flow_label)
{
    uint32_t label = flow_label & SL_VERBS_FLOW_LABEL_MAX;

    return (uint16_t)(SPORT_FIRST | ((label ^ (label >> SPORT_BITS)) & SPORT_MASK));
}

static bool sport_taken(const struct plan *plan, uint32_t label)
{
    for (size_t i = 0; i < plan->count; i++)
        if (plan->specs[i].flow_label != LABEL_OPEN &&
            sl_verbs_udp_sport(plan->specs[i].flow_label) == sl_verbs_udp_sport(label))
            return true;
    return false;
}

/* Gives every path that has none a label: the first of a random row whose source port is still free. */
static void draw_labels(struct plan *plan, uint64_t seed)
{
    for (size_t i = 0; i < plan->count; i++) {
        struct sl_rng rng;
        uint32_t label;

        if (plan->specs[i].flow_label != LABEL_OPEN)
            continue;
        sl_rng_init(&rng, seed ^ (i * UINT64_C(0xd1342543de82ef95)));
        do
            label = (uint32_t)sl_rng_range(&rng, 1, SL_VERBS_FLOW_LABEL_MAX);
        while (plan->count < SPORT_MASK / 2 && sport_taken(plan, label));
        plan->specs[i].flow_label = label;
    }
}

struct entry {
    const char *text;
    size_t len;
    unsigned local, remote, lag_port;
    uint32_t label;
};

/* A number in that base at *at, which moves behind it. -1: there is none, or it is above max. */
static int64_t take_number(const char **at, const char *end, unsigned base, uint32_t max)
{
    static const char digits[] = "0123456789abcdef";
    const char *start = *at;
    uint64_t number = 0;

    for (; *at < end; (*at)++) {
        char c = **at >= 'A' && **at <= 'F' ? (char)(**at - 'A' + 'a') : **at;
        const char *digit = memchr(digits, c, base);

        if (digit == NULL)
            break;
        number = number * base + (uint64_t)(digit - digits);
        if (number > max)
            return -1;
    }
    return *at == start ? -1 : (int64_t)number;
}

static int bad_entry(const struct entry *entry, const char *what)
{
    return sl_fail(-EINVAL, "SLUICE_VERBS_PATHS: '%.*s' %s", (int)entry->len, entry->text, what);
}

/* LOCAL>REMOTE[/LABEL][@PORT] */
static int read_entry(struct entry *entry)
{
    const char *at = entry->text, *end = entry->text + entry->len;
    int64_t local, remote, label, port;

    local = take_number(&at, end, 10, SL_VERBS_RAILS_MAX - 1);
    if (local < 0)
        return bad_entry(entry, "does not start with the number of a local rail (0 to 7)");
    if (at == end || *at++ != '>')
        return bad_entry(entry, "lacks a '>' behind its local rail: LOCAL>REMOTE[/LABEL][@PORT]");
    remote = take_number(&at, end, 10, SL_VERBS_RAILS_MAX - 1);
    if (remote < 0)
        return bad_entry(entry, "has no number of a remote rail (0 to 7) behind its '>'");
    entry->local = (unsigned)local;
    entry->remote = (unsigned)remote;
    entry->label = LABEL_OPEN;
    entry->lag_port = 0;
    if (at < end && *at == '/') {
        at++;
        if (end - at > 2 && at[0] == '0' && (at[1] == 'x' || at[1] == 'X'))
            at += 2;
        label = take_number(&at, end, 16, SL_VERBS_FLOW_LABEL_MAX);
        if (label < 0 || (at < end && *at != '@'))
            return bad_entry(entry, "has no flow label in hex (0 to fffff) behind its '/'");
        entry->label = (uint32_t)label;
    }
    if (at == end)
        return 0;
    if (*at++ != '@')
        return bad_entry(entry, "goes on behind its rails, but not with /LABEL or @PORT");
    port = take_number(&at, end, 10, SL_VERBS_LAG_PORTS_MAX);
    if (port < 1 || at != end)
        return bad_entry(entry, "has no port of a bond (1 to 4) behind its '@'");
    entry->lag_port = (unsigned)port;
    return 0;
}

static int add(struct plan *plan, unsigned local, unsigned remote, unsigned lag_port, uint32_t label)
{
    if (plan->count == plan->cap)
        return sl_fail(-EINVAL, "path %u>%u is one more than the %zu that a connection can have; shorten "
                       "SLUICE_VERBS_PATHS or lower SLUICE_VERBS_PATHS_PER_RAIL",
                       local, remote, plan->cap);
    plan->specs[plan->count++] = (struct sl_verbs_path_spec){
        .local_rail = (uint8_t)local, .remote_rail = (uint8_t)remote, .lag_port = (uint8_t)lag_port,
        .flow_label = label};
    return 0;
}

static int read_list(struct plan *plan, const char *list)
{
    const char *at = list;

    for (;;) {
        struct entry entry = {.text = at, .len = strcspn(at, ",")};
        int err = read_entry(&entry);

        if (err != 0)
            return err;
        if (entry.local < plan->local_rails && entry.remote < plan->remote_rails)
            err = add(plan, entry.local, entry.remote, entry.lag_port, entry.label);
        else
            sl_info("verbs", "SLUICE_VERBS_PATHS: '%.*s' is left out: there are %u local and %u remote rails",
                    (int)entry.len, entry.text, plan->local_rails, plan->remote_rails);
        if (err != 0)
            return err;
        at += entry.len;
        if (*at == '\0')
            break;
        at++;
    }
    if (plan->count == 0)
        return sl_fail(-EINVAL, "SLUICE_VERBS_PATHS '%s' names none of the %u local and %u remote rails that "
                       "there are (they count from 0)", list, plan->local_rails, plan->remote_rails);
    return 0;
}

/* Ports of the bond that a rail is, in turns, for those that name none. */
static void deal_lag_ports(struct plan *plan)
{
    for (unsigned rail = 0; rail < plan->local_rails; rail++) {
        unsigned turn = 0;

        for (size_t i = 0; i < plan->count && plan->lag_ports[rail] > 1; i++)
            if (plan->specs[i].local_rail == rail && plan->specs[i].lag_port == 0)
                plan->specs[i].lag_port = (uint8_t)(1 + turn++ % plan->lag_ports[rail]);
    }
}

/* One path for each port of the bonds, if so many paths can be had. */
static int64_t choose_per_rail(const struct plan *plan, unsigned rails)
{
    int64_t most = 1;

    for (unsigned i = 0; i < plan->local_rails; i++)
        most = plan->lag_ports[i] > most ? plan->lag_ports[i] : most;
    while (most > 1 && (size_t)most * rails > plan->cap)
        most--;
    return most;
}

/* Every rail once before any twice. */
static int make_list(struct plan *plan, int64_t per_rail)
{
    unsigned rails = plan->local_rails > plan->remote_rails ? plan->local_rails : plan->remote_rails;

    if (per_rail == 0)
        per_rail = choose_per_rail(plan, rails);
    for (int64_t turn = 0; turn < per_rail; turn++) {
        for (unsigned i = 0; i < rails; i++) {
            int err = add(plan, i % plan->local_rails, i % plan->remote_rails, 0, LABEL_OPEN);

            if (err != 0)
                return err;
        }
    }
    return 0;
}

int sl_verbs_plan(const struct sl_config *config, const struct sl_verbs_plan_ends *ends, uint64_t seed,
                  struct sl_verbs_path_spec *out, size_t cap, size_t *count)
{
    struct plan plan = {.specs = out, .cap = cap, .local_rails = ends->local_rails,
                        .remote_rails = ends->remote_rails, .lag_ports = ends->lag_ports};
    const char *list = config->verbs_paths;
    int err;

    if (ends->local_rails == 0 || ends->remote_rails == 0)
        return sl_fail(-EINVAL, "no path is possible between %u local and %u remote rails",
                       ends->local_rails, ends->remote_rails);
    if (list[0] == '\0' || strcmp(list, "auto") == 0)
        err = make_list(&plan, config->verbs_paths_per_rail);
    else
        err = read_list(&plan, list);
    if (err != 0)
        return err;
    draw_labels(&plan, seed);
    deal_lag_ports(&plan);
    *count = plan.count;
    return 0;
}
