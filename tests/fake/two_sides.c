/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fake/two_sides.h"

#include "core/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

struct loop *world_loop;
struct world_side world[2];
void (*world_step)(void);

static void on_down(void *arg, struct sl_ep *ep, int status, const char *why)
{
    struct world_side *side = arg;

    (void)ep, (void)status;
    side->downs++;
    snprintf(side->why, sizeof(side->why), "%s", why);
}

void world_begin(void)
{
    world_loop = loop_create(3);
    memset(world, 0, sizeof(world));
    for (unsigned i = 0; i < 2; i++) {
        struct world_side *s = &world[i];

        sl_config_defaults(&s->config);
        s->worker = (struct sl_worker){.clock = loop_clock(world_loop),
                                       .config = &s->config,
                                       .events = &s->events,
                                       .rank = (int)i};
        sl_rng_init(&s->worker.rng, i + 1);
    }
}

void world_open_by(const struct sl_transport_ops *ops)
{
    for (unsigned i = 0; i < 2; i++) {
        struct world_side *s = &world[i];
        struct sl_handler handler = {.down = on_down, .arg = s};

        if (ops->open(&s->worker, NULL, &handler, &s->iface) != 0 ||
            s->iface->ops->ep_create(s->iface, &s->ep) != 0)
            fail_msg("%s", sluice_last_error());
        s->ep->peer = (int)!i;
    }
}

void world_progress(void)
{
    int moved = 0;

    for (unsigned i = 0; i < 2; i++) {
        if (world_step != NULL)
            world_step();
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

void world_close(void)
{
    for (unsigned i = 0; i < 2; i++)
        if (world[i].iface != NULL)
            world[i].iface->ops->ep_destroy(world[i].ep);
    for (unsigned i = 0; i < 2; i++)
        if (world[i].iface != NULL)
            world[i].iface->ops->close(world[i].iface);
    assert_null(loop_misuse(world_loop));
    loop_destroy(world_loop);
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
