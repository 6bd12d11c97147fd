/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What measured link costs are worth. A job that is unlucky when it measures must not spoil those
 * after it: a figure counts when several rounds agree on it and hardware can have it, a set of
 * figures when several jobs agree on it, and for a month.
 */
#include "collectives/costs.h"

#include "core/err.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define COST_MAX 1e13 /* ns: hours for one message are no measurement */
#define ROUNDS_AGREE 3
#define KEPT_VERSION 3
#define CALM_SETTLED 3    /* quiet machines that found the same */
#define BUSY_SETTLED 8    /* busy ones, of which the lowest of each figure is kept */
#define CROWDED_SETTLED 8 /* measurements where ranks share cores, whatever they found */
#define JOBS_AGREE 1.6    /* a quarter of an octave either way from the same value */
#define DAY_S 86400
#define PARTED 4.0   /* of predicted and measured time: more than models and programs explain */
#define DOUBTS_MAX 3 /* measured anew so often, and still: then it is the model or the program */

const struct sl_costs sl_costs_built_in = {
    .shm = {.alpha = 250, .beta = 0.08},
    .net = {.alpha = 8000, .beta = 0.15},
    .sync = 150,
    .copy = 0.03,
    .reduce = 0.03,
    .cross = 0.05,
    .step = 10,
    .code = 0.04,
};

/* ---- which samples to believe ---- */

double sl_costs_tolerance(const struct sl_costs_facts *facts)
{
    return facts->ranks_per_core > 1 ? 1.5
                                     : 1.25; /* the scheduler takes part where cores are shared */
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double sl_costs_median(double *values, uint32_t count)
{
    qsort(values, count, sizeof(*values), by_value);
    return values[count / 2];
}

/* Other work only ever makes a round longer. One round alone may have been luck, such as a message
 * that had arrived before it was asked for. */
bool sl_series_estimate(const struct sl_series *series, double tolerance, double *out)
{
    double sorted[SL_ROUNDS_MAX];
    uint32_t n = series->count;

    memcpy(sorted, series->of_round, n * sizeof(sorted[0]));
    qsort(sorted, n, sizeof(sorted[0]), by_value);
    *out = n != 0 ? sorted[0] : 0;
    for (uint32_t i = 0; i + ROUNDS_AGREE <= n; i++)
        if (sorted[i + ROUNDS_AGREE - 1] <= sorted[i] * tolerance) {
            *out = sorted[i];
            return true;
        }
    return false;
}

bool sl_series_disturbed(const struct sl_series *series, double tolerance)
{
    double estimate;
    uint32_t near = 0;

    if (!sl_series_estimate(series, tolerance, &estimate))
        return series->count != 0;
    for (uint32_t i = 0; i < series->count; i++)
        near += series->of_round[i] <= estimate * tolerance;
    return 2 * near < series->count;
}

/* ---- what hardware can be ---- */

bool sl_costs_sane(const struct sl_costs *costs)
{
    const double all[] = {costs->shm.alpha, costs->shm.beta, costs->net.alpha, costs->net.beta,
                          costs->sync,      costs->copy,     costs->reduce,    costs->cross,
                          costs->step,      costs->code};

    for (size_t i = 0; i < SL_ARRAY_LEN(all); i++)
        if (!(all[i] > 0 && all[i] <= COST_MAX))
            return false;
    return true;
}

struct bound {
    double *value, least, most, usual;
    bool within; /* a host: measured in the same moment as the others of these */
};

static bool repair(const struct bound *b)
{
    if (*b->value >= b->least && *b->value <= b->most)
        return false;
    *b->value = b->usual;
    return true;
}

/*
 * Generous: from the best machine there is to a poor virtual one. Where ranks share cores each may
 * have to wait for turns of the scheduler, which some 10 us each allow for; a rank that waits while
 * other programs use its core waits milliseconds.
 */
unsigned sl_costs_repair(struct sl_costs *costs, const struct sl_costs_facts *facts)
{
    double n = facts->ranks, crowd = facts->ranks_per_core;
    double turns = crowd > 1 ? 1e4 * crowd : 0;
    const struct sl_costs *usual = &sl_costs_built_in;
    const struct sl_link_cost *link = facts->maps ? &usual->shm : &usual->net;
    const struct bound bounds[] = {
        {&costs->shm.alpha, facts->maps ? 20 : 200, (facts->maps ? 5e3 : 1e6) + 2 * turns,
         link->alpha + (crowd > 1 ? 1e3 * crowd : 0), true},
        {&costs->shm.beta, 1e-4, facts->maps ? 4 : 100, link->beta * crowd, true},
        {&costs->net.alpha, 200, 5e7, usual->net.alpha, false},
        {&costs->net.beta, 1e-4, 1e3, usual->net.beta, false},
        {&costs->sync, 5, 2e3 + 300 * n + n * turns, crowd > 1 ? 600 * n : usual->sync, true},
        {&costs->copy, 1e-3, 4, usual->copy, true},
        {&costs->reduce, 1e-3, 8, usual->reduce, true},
        {&costs->cross, 1e-4, 8, usual->cross, true},
        {&costs->step, 1, 1e3, usual->step, true},
        {&costs->code, 1e-3, 8, usual->code, true},
    };
    unsigned repaired = 0;
    bool within = false;

    for (size_t i = 0; i < SL_ARRAY_LEN(bounds); i++) {
        bool impossible = repair(&bounds[i]);

        repaired += impossible;
        within |= impossible && bounds[i].within;
    }
    /* Beside a usual figure, one that others' work made long, though not impossible, would decide
     * the choice. By tcp, or where cores are shared, hosts differ by far more than that. */
    within &= facts->maps && crowd <= 1;
    for (size_t i = 0; within && i < SL_ARRAY_LEN(bounds); i++)
        if (bounds[i].within && *bounds[i].value > bounds[i].usual)
            *bounds[i].value = bounds[i].usual;
    return repaired;
}

static double round_off(double value)
{
    uint64_t bits;

    if (!(value > 0))
        return 1e-3;
    memcpy(&bits, &value, sizeof(bits));
    bits = (bits + (UINT64_C(1) << 49)) & ~((UINT64_C(1) << 50) - 1); /* two bits of mantissa */
    memcpy(&value, &bits, sizeof(value));
    return value;
}

#define FIGURES 10

static void figures_of(struct sl_costs *costs, double *out[FIGURES])
{
    double *const all[FIGURES] = {
        &costs->shm.alpha, &costs->shm.beta, &costs->net.alpha, &costs->net.beta, &costs->sync,
        &costs->copy,      &costs->reduce,   &costs->cross,     &costs->step,     &costs->code};

    memcpy(out, all, sizeof(all));
}

void sl_costs_round_all(struct sl_costs *costs)
{
    double *all[FIGURES];

    figures_of(costs, all);
    for (size_t i = 0; i < FIGURES; i++)
        *all[i] = round_off(*all[i]);
}

bool sl_costs_equal(const struct sl_costs *a, const struct sl_costs *b)
{
    struct sl_costs copies[2] = {*a, *b};
    double *mine[FIGURES], *its[FIGURES];
    bool equal = true;

    figures_of(&copies[0], mine);
    figures_of(&copies[1], its);
    for (size_t i = 0; i < FIGURES; i++)
        equal &= *mine[i] == *its[i];
    return equal;
}

/* ---- from job to job ---- */

static bool figures_agree(double a, double b)
{
    return a <= b * JOBS_AGREE && b <= a * JOBS_AGREE;
}

/* What a byte costs on top, as the difference of two measurements, is small and uncertain: that of
 * copies and of the caches counts by what it adds to the byte's whole. */
static bool agree(const struct sl_costs *a, const struct sl_costs *b)
{
    return figures_agree(a->shm.alpha, b->shm.alpha) && figures_agree(a->net.alpha, b->net.alpha) &&
           figures_agree(a->sync, b->sync) && figures_agree(a->copy, b->copy) &&
           figures_agree(a->reduce, b->reduce) && figures_agree(a->code, b->code) &&
           figures_agree(a->shm.beta + a->copy, b->shm.beta + b->copy) &&
           figures_agree(a->net.beta + a->copy, b->net.beta + b->copy) &&
           figures_agree(a->cross + a->copy, b->cross + b->copy);
}

static void take_lower(struct sl_costs *costs, const struct sl_costs *other)
{
    struct sl_costs copy = *other;
    double *mine[FIGURES], *its[FIGURES];

    figures_of(costs, mine);
    figures_of(&copy, its);
    for (size_t i = 0; i < FIGURES; i++)
        *mine[i] = *its[i] < *mine[i] ? *its[i] : *mine[i];
}

static bool factor_sane(double factor)
{
    return factor == 0 || (factor >= 0.5 && factor <= 2);
}

bool sl_correction_sane(const struct sl_correction *correction)
{
    return factor_sane(correction->windows) && factor_sane(correction->messages);
}

bool sl_kept_usable(const struct sl_kept_costs *kept, const struct sl_costs_facts *facts,
                    uint64_t host, uint64_t now_s)
{
    struct sl_costs costs = kept->costs;

    return kept->version == KEPT_VERSION && kept->host == host && kept->calm <= 1 &&
           kept->measured_s <= now_s + DAY_S && /* the clock went back: not by much */
           now_s <= kept->measured_s + SL_COSTS_DAYS_MAX * DAY_S && sl_costs_sane(&costs) &&
           sl_costs_repair(&costs, facts) == 0 && sl_correction_sane(&kept->correction);
}

/* Where ranks share cores, turns of the scheduler make each measurement another one, and a
 * thousand times as long: it would never end. */
bool sl_kept_settled(const struct sl_kept_costs *kept, const struct sl_costs_facts *facts)
{
    return kept->confirmed >= (kept->calm ? CALM_SETTLED : BUSY_SETTLED) ||
           (facts->ranks_per_core > 1 && kept->looks >= CROWDED_SETTLED);
}

static void replace(struct sl_kept_costs *kept, const struct sl_kept_costs *fresh)
{
    uint64_t looks = kept->version == KEPT_VERSION ? kept->looks : 0;

    *kept = *fresh;
    kept->version = KEPT_VERSION;
    kept->confirmed = 1;
    kept->looks = looks;
    kept->doubts = 0;
    kept->correction = (struct sl_correction){0, 0};
}

bool sl_kept_merge(struct sl_kept_costs *kept, const struct sl_kept_costs *fresh, unsigned repaired)
{
    bool nothing = kept->version != KEPT_VERSION;

    if (nothing ||
        (fresh->calm && repaired == 0 && (!kept->calm || !agree(&kept->costs, &fresh->costs)))) {
        replace(kept, fresh);
        kept->looks++;
        return repaired == 0;
    }
    kept->looks++;
    if (repaired != 0 || (!fresh->calm && kept->calm))
        return true; /* what is there is better */
    if (!fresh->calm)
        take_lower(&kept->costs, &fresh->costs);
    kept->confirmed++;
    kept->measured_s = fresh->measured_s;
    return true;
}

/* ---- from operations ---- */

/* A quarter up or down at most, and half of the way: what operations take also holds the waiting
 * for ranks that come late. */
static double corrected(double old, double seen)
{
    double now = old != 0 ? old : 1;

    if (seen == 0)
        return old;
    seen = seen < 0.75 ? 0.75 : seen > 1.25 ? 1.25 : seen;
    now = round_off((now + seen) / 2);
    return now == 1 ? 0 : now;
}

static bool parted(double seen)
{
    return seen != 0 && (seen > PARTED || seen < 1 / PARTED);
}

bool sl_kept_learn(struct sl_kept_costs *kept, const struct sl_correction *seen)
{
    struct sl_correction now = {corrected(kept->correction.windows, seen->windows),
                                corrected(kept->correction.messages, seen->messages)};
    bool changed =
        now.windows != kept->correction.windows || now.messages != kept->correction.messages;

    if (parted(seen->windows) || parted(seen->messages)) {
        if (kept->doubts >= DOUBTS_MAX)
            return false;
        kept->doubts++;
        kept->confirmed = 0; /* the next job measures */
        kept->looks = 0;
        return true;
    }
    kept->correction = now;
    return changed;
}

void sl_kept_describe(const struct sl_kept_costs *kept, char *out, size_t cap)
{
    time_t when = (time_t)kept->measured_s;
    struct tm utc;
    char date[32] = "?", doubts[48] = "", factors[48] = "";
    const struct sl_correction *c = &kept->correction;

    if (gmtime_r(&when, &utc) != NULL)
        strftime(date, sizeof(date), "%Y-%m-%d %H:%M", &utc);
    if (kept->doubts != 0)
        snprintf(doubts, sizeof(doubts), ", doubted by %u job%s", kept->doubts,
                 kept->doubts == 1 ? "" : "s");
    if (c->windows != 0 || c->messages != 0)
        snprintf(factors, sizeof(factors), ", corrected: windows x%.2f, messages x%.2f",
                 c->windows != 0 ? c->windows : 1, c->messages != 0 ? c->messages : 1);
    snprintf(out, cap, "measured %s UTC on a %s machine, %u in a row%s%s", date,
             kept->calm ? "quiet" : "busy", kept->confirmed, doubts, factors);
}
