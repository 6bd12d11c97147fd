/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What measured link costs are worth: which of many samples to believe, what hardware can be at
 * all, and what one job leaves to the next. Pure: samples, dates and files are handed in
 * (docs/design/0012-measured-costs.md).
 */
#ifndef SL_COLLECTIVES_COSTS_H
#define SL_COLLECTIVES_COSTS_H

#include "schedules/schedule.h"

#include <stddef.h>

#define SL_ROUNDS_MAX 32
#define SL_COSTS_DAYS_MAX 30

/* One figure, measured again and again: the median of every round. */
struct sl_series {
    double of_round[SL_ROUNDS_MAX];
    uint32_t count;
};

/* What the costs are of. */
struct sl_costs_facts {
    uint32_t ranks, ranks_per_core; /* of the host */
    bool maps;                      /* ranks of the host share memory */
};

/* How far two rounds may lie apart and still say the same. */
double sl_costs_tolerance(const struct sl_costs_facts *facts);

/* The upper one of two in the middle; sorts the values. */
double sl_costs_median(double *values, uint32_t count);

/* The lowest value that three rounds agree on. False: there is none, and *out is the lowest of
 * all. */
bool sl_series_estimate(const struct sl_series *series, double tolerance, double *out);

/* Fewer than half of the rounds agree with the estimate: something else used the machine. */
bool sl_series_disturbed(const struct sl_series *series, double tolerance);

/* What SLUICE_TUNE=off means: a common server. */
extern const struct sl_costs sl_costs_built_in;

/* All are numbers above 0 and none is absurd. */
bool sl_costs_sane(const struct sl_costs *costs);

/* Puts a usual value in place of each that no hardware has; returns how many. Where one of a host's
 * own is among them, and each of its ranks has a core, its others are no longer than usual
 * either. */
unsigned sl_costs_repair(struct sl_costs *costs, const struct sl_costs_facts *facts);

/* To a quarter of an octave, so that small differences from run to run do not change a choice, and
 * with it the order of additions. */
void sl_costs_round_all(struct sl_costs *costs);

bool sl_costs_equal(const struct sl_costs *a, const struct sl_costs *b);

/* By how much operations took more or less than their predicted time; 0: not known, as 1. */
struct sl_correction {
    double windows, messages;
};

/* Known factors are between a half and two. */
bool sl_correction_sane(const struct sl_correction *correction);

/* What the cache keeps under a key. */
struct sl_kept_costs {
    uint32_t version;
    uint32_t calm; /* 1: measured while nothing else used the machine */
    /* measurements in a row that found the same; of a busy machine: how many there were */
    uint32_t confirmed;
    uint32_t doubts;     /* jobs whose operations took very much more or less than predicted */
    uint64_t measured_s; /* the last of them, in seconds since 1970 */
    uint64_t host;       /* of the facts of the host that the key does not name */
    struct sl_costs costs;
    struct sl_correction correction;
    uint64_t looks; /* measurements since the first one or the last doubt, whatever they found */
};

/* May be used at all: of this version and host, no older than a month, possible. */
bool sl_kept_usable(const struct sl_kept_costs *kept, const struct sl_costs_facts *facts,
                    uint64_t host, uint64_t now_s);

/* So often confirmed, or looked at, that no job needs to measure again. */
bool sl_kept_settled(const struct sl_kept_costs *kept, const struct sl_costs_facts *facts);

/*
 * What is kept after a measurement: *kept is what was there (version 0: nothing) and becomes what
 * is now, which is also what this job uses. A quiet machine's word replaces a busy one's, and
 * another word replaces the old one; a busy machine's never touches a quiet one's. False: not
 * to be written.
 */
bool sl_kept_merge(struct sl_kept_costs *kept, const struct sl_kept_costs *fresh,
                   unsigned repaired);

/* Takes what operations of a job took over what was predicted, without the correction so far (0:
 * too few were seen). True: *kept has changed. */
bool sl_kept_learn(struct sl_kept_costs *kept, const struct sl_correction *seen);

/* For people: when and how well they were measured. */
void sl_kept_describe(const struct sl_kept_costs *kept, char *out, size_t cap);

#endif
