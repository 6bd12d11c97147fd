/* SPDX-License-Identifier: Apache-2.0 */
/* What a seed means: rails, sizes, messages, faults. */
#include "tests/sim/mp_swarm.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *const mode_names[] = {"calm",  "passing", "tcp",   "away",
                                         "alone", "leave",   "broken"};
static const char *const fault_names[] = {"kill",        "cut",        "lose data",   "lose acks",
                                          "block",       "block acks", "rail",        "hold",
                                          "refuse",      "stall",      "pause",       "path table",
                                          "all blocked", "lose",       "device dies", "leaves"};

#define SPREAD UINT64_C(0x9e3779b97f4a7c15) /* what the seed's low bits decide, this does not */
#define HOLD_NS (20 * SL_NS_PER_MS)
#define RAILS_FEW 4
#define PATHS_MOST 16 /* of a rail */
#define LARGE_IN 8    /* runs: one has up to 16 rails and 64 paths */

static uint64_t below(struct ms_run *run, uint64_t bound)
{
    return sl_rng_below(&run->traffic.rng, bound);
}

static bool chance(struct ms_run *run, uint64_t in)
{
    return sl_rng_chance(&run->traffic.rng, in);
}

/* Mostly few: those runs are short. Some have all that there may be. */
static unsigned draw_rails(struct ms_run *run)
{
    return 1 + (unsigned)below(run, run->large ? LANES_RAILS : RAILS_FEW);
}

static unsigned draw_paths(struct ms_run *run, unsigned rails)
{
    unsigned most = run->large ? SL_MP_PATHS_MAX / rails : 2;

    return 1 + (unsigned)below(run, most < PATHS_MOST ? most : PATHS_MOST);
}

static void draw_sides(struct ms_run *run)
{
    static const uint32_t eagers[] = {128, 256, 1024};
    static const int64_t pieces[] = {0, 512, 2048, 8192};
    uint32_t eager = eagers[below(run, 3)];
    int64_t piece = pieces[below(run, 4)], wait_ms = chance(run, 2) ? 500 : 3000;
    unsigned rails = draw_rails(run), paths = draw_paths(run, rails);
    bool reserve = chance(run, 8);
    bool fallback = run->mode == MS_TCP || (run->mode == MS_BROKEN && run->seed % 3 == 0);

    for (unsigned i = 0; i < 2; i++)
        run->side[i] = (struct lanes_side){
            .settings = {.connect_timeout_ms = 20000,
                         .path_wait_ms =
                             run->mode == MS_AWAY || run->mode == MS_BROKEN ? wait_ms : 60000,
                         .piece_bytes = piece,
                         .fallback = fallback,
                         .lazy = (run->seed * SPREAD >> 62 & 1) != 0,
                         .standby = run->seed * SPREAD >> 63 != 0,
                         .listed = (run->seed / 32 >> i & 1) != 0,
                         .reserve = reserve},
            .eager_bytes = i == 1 && chance(run, 4) ? 64 : eager,
            .rails = i == 1 && chance(run, 3) ? draw_rails(run) : rails,
            .paths = paths,
            .far = run->seed / 64 % 2 == 0 ? (uint16_t)(run->seed * SPREAD >> (40 + 8 * i)) : 0,
            .shift = run->seed / 32 % 3 == 0 ? i : 0,
            .buffers = chance(run, 2) ? 24 : 128,
            .everywhere = (run->seed * SPREAD >> (20 + 4 * i) & 3) == 0};
}

static void draw_fault(struct ms_run *run, unsigned kinds)
{
    struct ms_fault *fault = &run->faults[run->fault_count++];

    *fault = (struct ms_fault){.kind = (enum ms_fault_kind)below(run, kinds),
                               .at_round = (unsigned)below(run, run->calm_round),
                               .pick = (uint32_t)sl_rng_u64(&run->traffic.rng),
                               .pick2 = (uint32_t)sl_rng_u64(&run->traffic.rng)};
    fault->for_ns = below(run, chance(run, 2) ? 3 * SL_NS_PER_MS : 3 * SL_NS_PER_S);
    if (fault->kind == MS_HOLD)
        fault->for_ns %= HOLD_NS;
}

/* With so many paths that some are left whatever fails meanwhile. */
static void draw_alone(struct ms_run *run)
{
    unsigned rails = run->large ? LANES_RAILS : RAILS_FEW, paths;

    for (unsigned side = 0; side < 2; side++) {
        run->side[side].rails = rails;
        run->side[side].paths = 1 + (unsigned)(run->seed / 16 % (run->large ? 4 : 2));
        run->side[side].settings.reserve = false;
        run->side[side].settings.listed = false;
        run->side[side].settings.lazy = false; /* one alone would be the last */
    }
    paths = rails * run->side[0].paths;
    draw_fault(run, 1);
    run->faults[0].kind = MS_LOSE;
    run->faults[0].at_round %= 60;
    run->lost_for_good = chance(run, 2);
    for (unsigned i = 0; i + 2 < paths && run->fault_count < MS_FAULTS && !chance(run, 3); i++) {
        draw_fault(run, MS_LOSE_ACKS + 1);
        run->faults[i + 1].pick = i; /* another one each time */
    }
}

static void draw_faults(struct ms_run *run)
{
    unsigned count = 1 + (unsigned)below(run, MS_FAULTS - 2);

    run->calm_round = 100 + (unsigned)below(run, 1500);
    if (run->mode == MS_ALONE) {
        draw_alone(run);
        return;
    }
    if (run->mode == MS_CALM || (run->mode == MS_LEAVE && chance(run, 2)))
        count = 0;
    for (unsigned i = 0; i < count; i++) {
        draw_fault(run, run->mode == MS_BROKEN ? MS_LEAVES : MS_LOSE);
        if ((run->mode == MS_PASSING || run->mode == MS_TCP) && chance(run, 4))
            run->faults[run->fault_count - 1].kind = MS_LOSE;
    }
    for (unsigned i = 0; run->mode == MS_TCP && i < 2 && run->fault_count < MS_FAULTS; i++) {
        draw_fault(run, 1);
        run->faults[run->fault_count - 1].kind = MS_ALL;
        run->faults[run->fault_count - 1].at_round %= 200;
        run->faults[run->fault_count - 1].for_ns = (300 + below(run, 2000)) * SL_NS_PER_MS;
    }
    run->stays = run->mode == MS_TCP && chance(run, 3);
    if ((run->mode == MS_AWAY && chance(run, 3)) || run->mode == MS_LEAVE) {
        draw_fault(run, 1);
        run->faults[run->fault_count - 1].kind = run->mode == MS_AWAY ? MS_LOSE : MS_LEAVES;
    }
    /* Where it breaks for good, only pings tell that a path has died. */
    run->lost_for_good = run->mode == MS_AWAY;
}

void ms_draw(struct ms_run *run, uint64_t seed)
{
    static const enum ms_mode modes[16] = {
        MS_CALM, MS_PASSING, MS_PASSING, MS_PASSING, MS_ALONE, MS_ALONE,  MS_TCP,    MS_TCP,
        MS_TCP,  MS_TCP,     MS_AWAY,    MS_AWAY,    MS_LEAVE, MS_BROKEN, MS_BROKEN, MS_PASSING};

    memset(run, 0, sizeof(*run));
    run->seed = seed;
    run->mode = modes[seed % 16];
    sl_rng_init(&run->traffic.rng, seed);
    run->large = chance(run, LARGE_IN);
    draw_sides(run);
    traffic_draw(&run->traffic, run->side[0].eager_bytes);
    /* A close under way may cost paths, and where the sideband is lost all of them. */
    run->traffic.quiet_ends = run->mode == MS_CALM || run->mode == MS_ALONE;
    draw_faults(run);
    run->goes_down = chance(run, 2);
    run->one_way = chance(run, 3);
    run->steps_max = 1 + (unsigned)below(run, 16);
    run->post_in = 1 + (unsigned)below(run, 8);
    run->retry_ns = (1 + below(run, 100)) * SL_NS_PER_MS;
    run->latency_ns = 1000 + below(run, 50000);
    run->jitter_ns = below(run, 2) * below(run, 400000);
    run->eagain_in = chance(run, 3) ? 3 : 0;
}

void ms_print(const struct ms_run *run)
{
    const struct traffic *traffic = &run->traffic;

    printf("# seed %" PRIu64
           ": %s, %u and %u rails of %u paths, %u connections, eager %u/%u, piece "
           "%d, buffers %u/%u, all memory reached %d/%d\n",
           run->seed, mode_names[run->mode], run->side[0].rails, run->side[1].rails,
           run->side[0].paths, traffic->conn_count, run->side[0].eager_bytes,
           run->side[1].eager_bytes, (int)run->side[0].settings.piece_bytes, run->side[0].buffers,
           run->side[1].buffers, run->side[0].everywhere, run->side[1].everywhere);
    for (unsigned c = 0; c < traffic->conn_count; c++) {
        printf("#   connection %u: %u and %u messages, %u and %u control messages\n", c,
               traffic->conns[c].queue[0].count, traffic->conns[c].queue[1].count,
               traffic->conns[c].queue[0].ctrl_count, traffic->conns[c].queue[1].ctrl_count);
        for (unsigned k = 1; k < traffic->conns[c].channel_count; k++)
            printf("#     channel %u: %u and %u messages%s\n", traffic->conns[c].channels[k].id,
                   traffic->conns[c].queue[2 * k].count, traffic->conns[c].queue[2 * k + 1].count,
                   traffic->conns[c].channels[k].closes ? ", closes" : "");
    }
    for (unsigned i = 0; i < run->fault_count; i++)
        printf("#   round %u: %s for %.3f ms (%u)\n", run->faults[i].at_round,
               fault_names[run->faults[i].kind], (double)run->faults[i].for_ns / 1e6,
               run->faults[i].pick);
    printf("#   calm from round %u\n", run->calm_round);
}
