/* SPDX-License-Identifier: Apache-2.0 */
/* What a seed means: rails, sizes, messages, faults. */
#include "tests/sim/verbs_swarm.h"
#include "verbs/config.h"

#include "core/err.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *const mode_names[] = {"calm", "passing", "tcp", "away", "leave", "broken"};
static const char *const fault_names[] = {"kill",  "cut",          "cut one way",    "qp fatal",
                                          "block", "one way",      "flap",           "gid move",
                                          "call",  "stall",        "pause",          "lose",
                                          "hold",  "device fatal", "device removed", "leaves"};

#define HOLD_NS                                                                                    \
    (20 * SL_NS_PER_MS) /* longest time without what only waits: completions that are not shown */

#define SPREAD UINT64_C(0x9e3779b97f4a7c15) /* what the seed's low bits decide, this does not */

static uint64_t below(struct vs_run *run, uint64_t bound)
{
    return sl_rng_below(&run->traffic.rng, bound);
}

static bool chance(struct vs_run *run, uint64_t in)
{
    return sl_rng_chance(&run->traffic.rng, in);
}

/* One of the values of a list. */
#define ONE_OF(run, ...)                                                                           \
    (((const int64_t[]){                                                                           \
        __VA_ARGS__})[below(run, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t))])

static void draw_config(struct vs_run *run)
{
    static const int64_t lazies[] = {SL_OFF, SL_ON, SL_AUTO};
    int64_t eager = ONE_OF(run, 256, 256, 1024, 4096), eager2 = chance(run, 4) ? 512 : eager;
    int64_t piece = ONE_OF(run, 0, 2048, 8192, 65536),
            staging = ONE_OF(run, 65536, 2 << 20, 4 << 20);
    int64_t per_rail = ONE_OF(run, 0, 1, 2, 4), wait_ms = ONE_OF(run, 500, 3000);

    /* Few, mostly: those runs are short. */
    unsigned rails = chance(run, 16) ? SL_MP_RAILS_MAX : 4;

    run->rails[0] = 1 + (unsigned)below(run, rails);
    run->rails[1] = chance(run, 3) ? 1 + (unsigned)below(run, rails) : run->rails[0];
    if (per_rail * (run->rails[0] > run->rails[1] ? run->rails[0] : run->rails[1]) >
        SL_MP_PATHS_MAX)
        per_rail = 1;
    for (unsigned i = 0; i < 2; i++) {
        struct sl_config *config = &run->config[i];

        sl_config_defaults(config);
        config->connect_timeout_ms = 20000;
        sl_verbs_config_edit(config)->mp.eager_bytes = i == 0 ? eager : eager2;
        sl_verbs_config_edit(config)->mp.piece_bytes = piece;
        sl_verbs_config_edit(config)->keys =
            run->seed % 4 == 3 ? SL_VERBS_KEYS_WINDOW : SL_VERBS_KEYS_REGION;
        sl_verbs_config_edit(config)->mp.staging_bytes = staging;
        sl_verbs_config_edit(config)->mp.paths_per_rail = per_rail;
        sl_verbs_config_edit(config)->mp.lazy = lazies[(run->seed * SPREAD >> 32) % 3];
        /* Of either end by itself: rails in reserve sleep until a path needs them. */
        sl_verbs_config_edit(config)->mp.reserve =
            ((run->seed * SPREAD >> (40 + 2 * i)) & 3) == 0 ? SL_ON : SL_OFF;
        sl_verbs_config_edit(config)->retry_count = 2 + (int64_t)below(run, 6);
        /* Longer than faults that pass last, or short where they do not. */
        sl_verbs_config_edit(config)->mp.path_wait_ms =
            run->mode == VS_AWAY || run->mode == VS_BROKEN ? wait_ms : 60000;
        snprintf(sl_verbs_config_edit(config)->devices, SL_TEXT_MAX, "%c*", 'a' + i);
        if (run->mode == VS_TCP || (run->mode == VS_BROKEN && run->seed % 3 == 0))
            sl_verbs_config_edit(config)->mp.fallback = SL_MP_FALLBACK_TCP;
    }
}

static void draw_fault(struct vs_run *run, struct vs_fault *fault, unsigned kinds)
{
    static const int errors[] = {EIO, ENOMEM, EAGAIN, EINVAL};

    *fault = (struct vs_fault){.kind = (enum vs_fault_kind)below(run, kinds),
                               .at_round = (unsigned)below(run, run->calm_round),
                               .pick = (uint32_t)sl_rng_u64(&run->traffic.rng),
                               .pick2 = (uint32_t)sl_rng_u64(&run->traffic.rng),
                               .error = errors[below(run, SL_ARRAY_LEN(errors))]};
    fault->for_ns = below(run, chance(run, 2) ? 3 * SL_NS_PER_MS : 3 * SL_NS_PER_S);
    if (fault->kind == VS_HOLD)
        fault->for_ns %= HOLD_NS;
}

static void draw_faults(struct vs_run *run)
{
    unsigned count = 1 + (unsigned)below(run, VS_FAULTS - 2);

    run->calm_round = 100 + (unsigned)below(run, 2000);
    if (run->mode == VS_CALM || (run->mode == VS_LEAVE && chance(run, 2)))
        count = 0;
    for (unsigned i = 0; i < count; i++) {
        struct vs_fault *fault = &run->faults[run->fault_count++];

        draw_fault(run, fault, run->mode == VS_BROKEN ? VS_LEAVES : VS_LOSE);
        if ((run->mode == VS_PASSING || run->mode == VS_TCP) && chance(run, 4))
            fault->kind = VS_LOSE;
    }
    if (run->mode == VS_AWAY && chance(run, 3)) {
        draw_fault(run, &run->faults[run->fault_count], 1);
        run->faults[run->fault_count++].kind = VS_LOSE;
    }
    if (run->mode == VS_LEAVE) {
        draw_fault(run, &run->faults[run->fault_count], 1);
        run->faults[run->fault_count++].kind = VS_LEAVES;
    }
    run->early_faults = count > 0 && chance(run, 6);
    if (count > 0 && chance(run, 3)) {
        run->chaos.kill_in = (unsigned)ONE_OF(run, 0, 300, 1500);
        run->chaos.cut_in = (unsigned)ONE_OF(run, 0, 500, 2000);
        run->chaos.cut_steps = 1 + (unsigned)below(run, 200);
        run->chaos.flap_in = (unsigned)ONE_OF(run, 0, 1500);
        run->chaos.flap_steps = 1 + (unsigned)below(run, 300);
        run->chaos.gid_in = (unsigned)ONE_OF(run, 0, 2000);
    }
}

void vs_draw(struct vs_run *run, uint64_t seed)
{
    static const enum vs_mode modes[16] = {
        VS_CALM, VS_PASSING, VS_PASSING, VS_PASSING, VS_PASSING, VS_PASSING, VS_PASSING, VS_TCP,
        VS_TCP,  VS_TCP,     VS_AWAY,    VS_AWAY,    VS_LEAVE,   VS_BROKEN,  VS_BROKEN,  VS_CALM};

    memset(run, 0, sizeof(*run));
    run->seed = seed;
    run->mode = modes[seed % 16];
    sl_rng_init(&run->traffic.rng, seed);
    draw_config(run);
    traffic_draw(&run->traffic, (size_t)sl_verbs_config_edit(&run->config[0])->mp.eager_bytes);
    run->traffic.quiet_ends = run->mode == VS_CALM; /* a close under way may cost paths */
    draw_faults(run);
    run->goes_down = chance(run, 2);
    run->away = chance(run, 2) ? 0 : 1 + (unsigned)below(run, 4);
    run->sleeps = chance(run, 2);
    run->keeps_wcs = chance(run, 2);
    run->delay = (unsigned)ONE_OF(run, 0, 0, 2, 20);
    run->timeout_steps = run->mode == VS_CALM ? 200 : 20 + (unsigned)below(run, 40);
    run->rnr_steps = 1 + (unsigned)below(run, 6);
    run->steps_max = 1 + (unsigned)below(run, 10);
    run->post_in = 1 + (unsigned)below(run, 8);
    run->latency_ns = 1000 + below(run, 50000);
    run->jitter_ns = below(run, 2) * below(run, 400000);
    run->eagain_in = (uint32_t)ONE_OF(run, 0, 0, 3);
    run->repeats = run->mode == VS_CALM ? 0 : (unsigned)ONE_OF(run, 0, 0, 0, 100);
    run->event_delay = (unsigned)ONE_OF(run, 0, 0, 20, 2000);
    run->ahead_steps = (unsigned)ONE_OF(run, 0, 5, 15);
}

void vs_plain(struct vs_run *run, uint64_t seed, enum vs_mode mode, unsigned rails)
{
    memset(run, 0, sizeof(*run));
    run->seed = seed;
    run->mode = mode;
    sl_rng_init(&run->traffic.rng, seed);
    draw_config(run);
    run->rails[0] = run->rails[1] = rails;
    run->traffic.conn_count = 1;
    run->calm_round = 800;
    run->timeout_steps = 30;
    run->rnr_steps = 2;
    run->steps_max = 4;
    run->post_in = 2;
    run->latency_ns = 5000;
    for (unsigned side = 0; side < 2; side++) {
        sl_verbs_config_edit(&run->config[side])->mp.paths_per_rail = 1;
        sl_verbs_config_edit(&run->config[side])->mp.lazy = SL_OFF;
        sl_verbs_config_edit(&run->config[side])->mp.reserve = SL_OFF;
    }
}

void vs_plain_messages(struct vs_run *run, unsigned side, unsigned count, size_t len)
{
    struct traffic_queue *queue = &run->traffic.conns[0].queue[side];

    queue->count = queue->window[0] = queue->window[1] = count;
    for (unsigned i = 0; i < count; i++)
        queue->messages[i] = (struct traffic_message){.len = len,
                                                      .wanted_len = len,
                                                      .tag = i,
                                                      .wanted_tag = i,
                                                      .key = i * 7 + side,
                                                      .dst = true,
                                                      .send_reg = i % 2,
                                                      .recv_reg = i % 3 == 0};
}

struct vs_fault *vs_plain_fault(struct vs_run *run, enum vs_fault_kind kind, unsigned at_round,
                                uint64_t for_ns)
{
    struct vs_fault *fault = &run->faults[run->fault_count++];

    *fault = (struct vs_fault){.kind = kind,
                               .at_round = at_round,
                               .for_ns = for_ns,
                               .pick = (uint32_t)sl_rng_u64(&run->traffic.rng)};
    return fault;
}

void vs_print(const struct vs_run *run)
{
    printf("# seed %" PRIu64
           ": %s, %u and %u rails, %u connections, eager %d/%d, piece %d, staging %d, %d "
           "paths per rail, delay %u, %s\n",
           run->seed, mode_names[run->mode], run->rails[0], run->rails[1], run->traffic.conn_count,
           (int)sl_verbs_config(&run->config[0])->mp.eager_bytes,
           (int)sl_verbs_config(&run->config[1])->mp.eager_bytes,
           (int)sl_verbs_config(&run->config[0])->mp.piece_bytes,
           (int)sl_verbs_config(&run->config[0])->mp.staging_bytes,
           (int)sl_verbs_config(&run->config[0])->mp.paths_per_rail, run->delay,
           run->sleeps ? "sleeps" : "polls");
    for (unsigned c = 0; c < run->traffic.conn_count; c++)
        printf("#   connection %u: %u and %u messages, %u and %u control messages\n", c,
               run->traffic.conns[c].queue[0].count, run->traffic.conns[c].queue[1].count,
               run->traffic.conns[c].queue[0].ctrl_count,
               run->traffic.conns[c].queue[1].ctrl_count);
    for (unsigned i = 0; i < run->fault_count; i++)
        printf("#   round %u: %s for %.3f ms (%u)\n", run->faults[i].at_round,
               fault_names[run->faults[i].kind], (double)run->faults[i].for_ns / 1e6,
               run->faults[i].pick);
    printf("#   calm from round %u; chaos: kill %u, cut %u, flap %u, gid %u%s\n", run->calm_round,
           run->chaos.kill_in, run->chaos.cut_in, run->chaos.flap_in, run->chaos.gid_in,
           run->early_faults ? "; from the start" : "");
}
