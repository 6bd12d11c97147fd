/* SPDX-License-Identifier: Apache-2.0 */
/* The stage of the verbs transport over the fake libibverbs: two rails each, virtual time, and the
 * loop in the sideband's place. The wire moves when somebody makes progress or looks at the
 * clock. */
#include "verbs/config.h"
#include "core/err.h"
#include "tests/contract/stage_virtual.h"
#include "tests/fake/fake_ibv.h"
#include "verbs/iface.h"
#include "verbs/verbs.h"

#include <stdio.h>
#include <stdlib.h>

#define STEPS 3 /* of the wire for each progress */

static struct sl_transport_ops ops;
const struct sl_transport_ops *const stage_ops = &ops;
const bool stage_forks = false;

static struct fake_ibv *fake;

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
    stage_virtual_check();
    if (fake == NULL)
        return;
    if (fake_ibv_misuse(fake) != NULL)
        fprintf(stderr, "%s\n", fake_ibv_misuse(fake));
    sl_assert(fake_ibv_misuse(fake) == NULL && fake_ibv_live(fake) == 0);
    fake_ibv_destroy(fake);
}

void stage_reset(void)
{
    struct fake_ibv_device params;

    check_before();
    fake = fake_ibv_create(7);
    stage_virtual_reset(0);
    loop_on_look(stage_loop, look, fake);
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
        snprintf(sl_verbs_config_edit(&stage_config[i])->devices, SL_TEXT_MAX, "%c*", 'a' + i);
        /* One that is made later would look like memory that a close leaves behind. */
        sl_verbs_config_edit(&stage_config[i])->mp.lazy = SL_OFF;
        if (getenv("CONTRACT_WINDOWS") != NULL)
            sl_verbs_config_edit(&stage_config[i])->keys = SL_VERBS_KEYS_WINDOW;
    }
    sl_ibv_replace(fake_ibv_table(fake), fake_ibv_mlx5(fake));
}
