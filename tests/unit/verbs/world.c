/* SPDX-License-Identifier: Apache-2.0 */
/* Two ends of a connection over the fake libibverbs. */
#include "tests/unit/verbs/world.h"
#include "verbs/config.h"

#include "verbs/memlock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

struct fake_ibv *world_fake;
unsigned world_rails[2] = {2, 2};

/* The machine's own limit is not what is tested. */
bool __wrap_sl_verbs_memlock_fits(uint64_t more, char *why, size_t cap);

bool __wrap_sl_verbs_memlock_fits(uint64_t more, char *why, size_t cap)
{
    (void)more, (void)why, (void)cap;
    return true;
}

static void look(void *arg)
{
    fake_ibv_run(arg, 2);
}

static void step(void)
{
    fake_ibv_run(world_fake, 3);
}

void world_prepare(void (*more)(struct fake_ibv_device *params))
{
    struct fake_ibv_device params;

    world_fake = fake_ibv_create(3);
    world_begin();
    world_step = step;
    loop_on_look(world_loop, look, world_fake);
    sl_ibv_replace(fake_ibv_table(world_fake), fake_ibv_mlx5(world_fake));
    for (unsigned i = 0; i < world_rails[0] + world_rails[1]; i++) {
        unsigned side = i >= world_rails[0];
        char name[16];

        snprintf(name, sizeof(name), "%c%u", 'a' + side, side == 0 ? i : i - world_rails[0]);
        fake_ibv_device_init(&params, name);
        if (more != NULL)
            more(&params);
        fake_ibv_device_add(world_fake, &params);
    }
    for (unsigned i = 0; i < 2; i++) {
        struct world_side *s = &world[i];

        snprintf(sl_verbs_config_edit(&s->config)->devices, SL_TEXT_MAX, "%c*", 'a' + i);
        sl_verbs_config_edit(&s->config)->mp.staging_bytes = 2 << 20;
        sl_verbs_config_edit(&s->config)->mp.piece_bytes = 64 << 10;
        sl_verbs_config_edit(&s->config)->mp.lazy = SL_OFF;
        if (getenv("WORLD_WINDOWS") != NULL)
            sl_verbs_config_edit(&s->config)->keys = SL_VERBS_KEYS_WINDOW;
    }
}

void world_open(void)
{
    world_open_by(&sl_verbs_ops);
}

void world_join(void)
{
    world_open();
    world_connect();
}

void world_end(void)
{
    world_close();
    if (fake_ibv_misuse(world_fake) != NULL)
        fail_msg("%s", fake_ibv_misuse(world_fake));
    assert_int_equal(fake_ibv_live(world_fake), 0);
    fake_ibv_destroy(world_fake);
    sl_ibv_replace(NULL, NULL);
    world_rails[0] = world_rails[1] = 2;
}

int world_clean(void **state)
{
    (void)state;
    world_end();
    return 0;
}
