/* SPDX-License-Identifier: Apache-2.0 */
/* The stage of the verbs transport over the fake libibverbs: two rails each, virtual time, and the
 * loop in the sideband's place. The wire moves when somebody makes progress or looks at the
 * clock. */
#include "core/config.h"
#include "verbs/config.h"
#include "core/err.h"
#include "tests/contract/stage.h"
#include "tests/fake/fake_ibv.h"
#include "tests/fake/loop.h"
#include "verbs/iface.h"
#include "verbs/verbs.h"

#include <stdio.h>
#include <stdlib.h>

#define STEPS 3 /* of the wire for each progress */
#define PASS_NS 2000

static struct sl_transport_ops ops;
const struct sl_transport_ops *const stage_ops = &ops;
const bool stage_forks = false;

static struct fake_ibv *fake;
static struct loop *loop;
static struct sl_config config[STAGE_WORKERS];
static struct sl_worker workers[STAGE_WORKERS];
static unsigned still; /* rounds in which nothing moved */

static int progress(struct sl_iface *iface, unsigned budget)
{
    fake_ibv_run(fake, STEPS);
    return sl_verbs_ops.progress(iface, budget);
}

__attribute__((constructor)) static void ops_fill(void)
{
    ops = sl_verbs_ops;
    ops.progress = progress;
}

static void look(void *arg)
{
    fake_ibv_step(arg);
}

/* Of the case before. */
static void check_before(void)
{
    if (fake == NULL)
        return;
    if (fake_ibv_misuse(fake) != NULL)
        fprintf(stderr, "%s\n", fake_ibv_misuse(fake));
    if (loop_misuse(loop) != NULL)
        fprintf(stderr, "%s\n", loop_misuse(loop));
    sl_assert(fake_ibv_misuse(fake) == NULL && loop_misuse(loop) == NULL);
    sl_assert(fake_ibv_live(fake) == 0 && loop_live(loop) == 0);
    fake_ibv_destroy(fake);
    loop_destroy(loop);
}

void stage_reset(void)
{
    struct fake_ibv_device params;

    check_before();
    fake = fake_ibv_create(7);
    loop = loop_create(7);
    loop_weather(loop, 5000, 20000, 0);
    loop_on_look(loop, look, fake);
    fake_ibv_delay(fake, 3);
    for (unsigned i = 0; i < STAGE_WORKERS; i++) {
        for (unsigned rail = 0; rail < 2; rail++) {
            char name[8];

            snprintf(name, sizeof(name), "%c%u", 'a' + i, rail);
            fake_ibv_device_init(&params, name);
            if (getenv("CONTRACT_FEW_BUFFERS") != NULL)
                params.attr.max_srq_wr = 64; /* the least: frames that wait are always copied out */
            if (getenv("CONTRACT_OWN_RECEIVES") != NULL)
                params.attr.max_srq = 0; /* each queue pair has its own */
            fake_ibv_device_add(fake, &params);
        }
        sl_config_defaults(&config[i]);
        snprintf(sl_verbs_config_edit(&config[i])->devices, SL_TEXT_MAX, "%c*", 'a' + i);
        /* One that is made later would look like memory that a close leaves behind. */
        sl_verbs_config_edit(&config[i])->mp.lazy = SL_OFF;
        if (getenv("CONTRACT_WINDOWS") != NULL)
            sl_verbs_config_edit(&config[i])->keys = SL_VERBS_KEYS_WINDOW;
        config[i].connect_timeout_ms = 2000;
        workers[i] =
            (struct sl_worker){.clock = loop_clock(loop), .config = &config[i], .rank = (int)i};
        sl_rng_init(&workers[i].rng, i + 1);
    }
    still = 0;
    sl_ibv_replace(fake_ibv_table(fake), fake_ibv_mlx5(fake));
}

struct sl_worker *stage_worker(unsigned idx)
{
    return &workers[idx];
}

void stage_idle(void)
{
    /* Quiet for long: what is awaited is a time limit. */
    still++;
    loop_pass(loop, still % 1000 < 900 ? PASS_NS : SL_NS_PER_MS);
}

uint64_t stage_now(void)
{
    return loop_now(loop);
}
