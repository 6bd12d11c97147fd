/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the network, the ranks and their communicators, and takes them down. */
#include "world.h"

#include "testing/sim/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANKS_MAX 8
#define LIMIT_NS (60 * SL_NS_PER_S)

struct place {
    struct sl_sim *sim;
    struct sl_exchange *exchange;
    const struct sl_config *config;
    world_body *body;
    uint32_t rank;
};

static char trouble[1024];
bool world_maps = true;

void world_failed(const char *file, int line, const char *what)
{
    if (trouble[0] == '\0')
        snprintf(trouble, sizeof(trouble), "%s:%d: %s; last error: %s", file, line, what,
                 sluice_last_error());
}

static void live(void *arg)
{
    static struct sl_transport_ops complete;
    struct place *place = arg;
    struct sl_comm_transport transport = {.ops = sl_transport_complete(&sl_sim_ops, &complete)};
    struct sl_comm_params params = {
        .config = place->config,
        .clock = sl_sim_clock(place->sim),
        .seed = place->rank,
        .idle = sl_sim_idle,
        .idle_arg = sl_sim_idle_arg(place->sim, place->rank),
        .wire = &sl_sim_wire_ops,
        .transports = &transport,
        .transport_count = 1,
    };
    struct sluice_comm *comm = NULL;

    if (sl_comm_create(place->exchange, &params, &comm) != 0) {
        world_failed(__FILE__, __LINE__, "sl_comm_create()");
        return;
    }
    place->body(&comm, (int)place->rank);
    sluice_comm_destroy(comm);
}

static int configure(struct sl_config *config, const char *settings)
{
    char text[512], *rest = text;
    int err = 0;

    sl_config_defaults(config);
    config->timeout_ms = 400;
    config->connect_timeout_ms = 2000;
    config->shm_window_bytes = 64 << 10;
    config->tune = SL_TUNE_OFF;
    snprintf(text, sizeof(text), "%s", settings);
    for (char *item; err == 0 && (item = strsep(&rest, " ")) != NULL;) {
        char *value = strchr(item, '=');

        if (value == NULL)
            continue;
        *value = '\0';
        err = sl_config_set(config, item, value + 1);
    }
    return err;
}

const char *world_run(int ranks, const char *settings, world_body *body)
{
    struct place place[RANKS_MAX];
    struct sl_sim_meeting *meeting;
    struct sl_sim_params params;
    struct sl_config config;
    struct sl_sim *sim;

    trouble[0] = '\0';
    sl_assert(ranks <= RANKS_MAX && configure(&config, settings) == 0);
    sl_sim_params_init(&params, (uint32_t)ranks, 1);
    params.windows = world_maps;
    sl_assert(sl_sim_create(&params, &sim) == 0);
    sl_assert(sl_sim_meeting_create(sim, (uint32_t)ranks, 2 * SL_NS_PER_S, &meeting) == 0);
    for (uint32_t i = 0; i < (uint32_t)ranks; i++) {
        place[i] = (struct place){sim, sl_sim_meeting_exchange(meeting, i, i), &config, body, i};
        sl_assert(sl_sim_spawn(sim, i, live, &place[i]) == 0);
    }
    int err = sl_sim_run(sim, LIMIT_NS);

    if (err != 0)
        world_failed(__FILE__, __LINE__, "sl_sim_run()");
    sl_sim_meeting_destroy(meeting);
    if (err == 0) { /* ranks that hang cannot be taken down */
        sl_sim_check_empty(sim);
        if (sl_sim_violation(sim) != NULL)
            world_failed(__FILE__, __LINE__, sl_sim_violation(sim));
        sl_sim_destroy(sim);
    }
    return trouble[0] != '\0' ? trouble : NULL;
}
