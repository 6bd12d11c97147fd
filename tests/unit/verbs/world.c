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
struct loop *world_loop;
struct world_side world[2];
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

static void on_down(void *arg, struct sl_ep *ep, int status, const char *why)
{
    (void)ep, (void)status, (void)why;
    ((struct world_side *)arg)->downs++;
}

void world_prepare(void (*more)(struct fake_ibv_device *params))
{
    struct fake_ibv_device params;

    world_fake = fake_ibv_create(3);
    world_loop = loop_create(3);
    loop_on_look(world_loop, look, world_fake);
    sl_ibv_replace(fake_ibv_table(world_fake), fake_ibv_mlx5(world_fake));
    memset(world, 0, sizeof(world));
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

        sl_config_defaults(&s->config);
        snprintf(sl_verbs_config_edit(&s->config)->devices, SL_TEXT_MAX, "%c*", 'a' + i);
        sl_verbs_config_edit(&s->config)->mp.staging_bytes = 2 << 20;
        sl_verbs_config_edit(&s->config)->mp.piece_bytes = 64 << 10;
        sl_verbs_config_edit(&s->config)->mp.lazy = SL_OFF;
        if (getenv("WORLD_WINDOWS") != NULL)
            sl_verbs_config_edit(&s->config)->keys = SL_VERBS_KEYS_WINDOW;
        s->worker = (struct sl_worker){.clock = loop_clock(world_loop),
                                       .config = &s->config,
                                       .events = &s->events,
                                       .rank = (int)i};
        sl_rng_init(&s->worker.rng, i + 1);
    }
}

void world_open(void)
{
    for (unsigned i = 0; i < 2; i++) {
        struct world_side *s = &world[i];
        struct sl_handler handler = {.down = on_down, .arg = s};

        if (sl_verbs_ops.open(&s->worker, NULL, &handler, &s->iface) != 0 ||
            s->iface->ops->ep_create(s->iface, &s->ep) != 0)
            fail_msg("%s", sluice_last_error());
        s->ep->peer = (int)!i;
    }
}

void world_progress(void)
{
    int moved = 0;

    for (unsigned i = 0; i < 2; i++) {
        fake_ibv_run(world_fake, 3);
        int n = world[i].iface->ops->progress(world[i].iface, 64);

        assert_true(n >= 0);
        moved += n;
    }
    loop_pass(world_loop, moved != 0 ? 2000 : 100000);
}

void world_connect(void)
{
    struct sl_addr addr[2];
    struct sl_req req[2] = {{.status = SL_PENDING}, {.status = SL_PENDING}};

    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(world[i].iface->ops->ep_addr(world[i].ep, &addr[i]), 0);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(world[i].iface->ops->ep_connect(world[i].ep, &addr[!i], &req[i]), 0);
    WORLD_UNTIL(req[0].status != SL_PENDING && req[1].status != SL_PENDING);
    if (req[0].status != 0 || req[1].status != 0)
        fail_msg("not connected: %d, %d: %s", req[0].status, req[1].status, sluice_last_error());
}

void world_join(void)
{
    world_open();
    world_connect();
}

void world_end(void)
{
    for (unsigned i = 0; i < 2; i++)
        if (world[i].iface != NULL)
            world[i].iface->ops->ep_destroy(world[i].ep);
    for (unsigned i = 0; i < 2; i++)
        if (world[i].iface != NULL)
            world[i].iface->ops->close(world[i].iface);
    if (fake_ibv_misuse(world_fake) != NULL)
        fail_msg("%s", fake_ibv_misuse(world_fake));
    assert_null(loop_misuse(world_loop));
    assert_int_equal(fake_ibv_live(world_fake), 0);
    fake_ibv_destroy(world_fake);
    loop_destroy(world_loop);
    sl_ibv_replace(NULL, NULL);
    world_rails[0] = world_rails[1] = 2;
}

int world_clean(void **state)
{
    (void)state;
    world_end();
    return 0;
}

int world_send(unsigned side, const struct sl_buf *buf, uint64_t tag, struct sl_req *req)
{
    int rc;

    *req = (struct sl_req){.status = SL_PENDING};
    WORLD_UNTIL((rc = world[side].iface->ops->send(world[side].ep, buf, tag, req)) != -EAGAIN);
    return rc;
}

int world_recv(unsigned side, const struct sl_sink *sink, struct sl_req *req)
{
    int rc;

    *req = (struct sl_req){.status = SL_PENDING};
    WORLD_UNTIL((rc = world[side].iface->ops->recv(world[side].ep, sink, req)) != -EAGAIN);
    return rc;
}

void world_message(size_t len)
{
    uint8_t *sent = malloc(len + 1), *got = calloc(1, len + 1);

    for (size_t i = 0; i < len; i++)
        sent[i] = (uint8_t)(i * 2654435761u >> 13);
    for (unsigned from = 0; from < 2; from++) {
        struct sl_buf buf = {.addr = sent, .len = len};
        struct sl_sink sink = {.dst = got, .len = len, .tag = 7};
        struct sl_req send_req, recv_req;

        memset(got, 0, len);
        assert_true(world_recv(!from, &sink, &recv_req) >= 0);
        assert_true(world_send(from, &buf, 7, &send_req) >= 0);
        WORLD_UNTIL(send_req.status != SL_PENDING && recv_req.status != SL_PENDING);
        assert_int_equal(send_req.status, 0);
        assert_int_equal(recv_req.status, 0);
        assert_memory_equal(sent, got, len);
    }
    free(sent);
    free(got);
}
