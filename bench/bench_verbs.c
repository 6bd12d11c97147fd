/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the verbs transport itself costs per message: two ends over the fake libibverbs, for
 * counting instructions. Times say nothing, as most of them are the fake's; run it as
 * docs/perf/rdma.md says.
 *
 *     bench_verbs frames|writes|idle|many|stats COUNT [noring]
 *
 * many: nothing happens on 1,000 connections, and the timers run in every 32nd round.
 */
#include "core/state.h"
#include "tests/fake/fake_ibv.h"
#include "verbs/config.h"
#include "tests/fake/loop.h"
#include "multipath/conn.h"
#include "multipath/fallback.h"
#include "verbs/iface.h"
#include "multipath/repair.h"
#include "verbs/verbs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FRAME_BYTES 64
#define MANY 1000
#define WRITE_BYTES (64u << 10) /* one grant, one piece */

static struct fake_ibv *fake;
static struct loop *loop;
static struct sl_config config[2];
static struct sl_worker workers[2];
static struct sl_event_ring rings[2];
static struct sl_iface *ifaces[2];
static struct sl_ep *eps[2], *others[MANY][2];
static uint8_t out[WRITE_BYTES], in[WRITE_BYTES];

static void fail(const char *what)
{
    fprintf(stderr, "bench_verbs: %s: %s\n", what, sluice_last_error());
    exit(1);
}

static void round_of_both(void)
{
    for (unsigned i = 0; i < 2; i++) {
        fake_ibv_run(fake, 4);
        if (ifaces[i]->ops->progress(ifaces[i], 64) < 0)
            fail("progress");
    }
    loop_pass(loop, 2000);
}

static void open_side(unsigned i, bool ring)
{
    struct fake_ibv_device params;
    char name[4];

    snprintf(name, sizeof(name), "%c0", 'a' + i);
    fake_ibv_device_init(&params, name);
    fake_ibv_device_add(fake, &params);
    sl_config_defaults(&config[i]);
    snprintf(sl_verbs_config_edit(&config[i])->devices, SL_TEXT_MAX, "%s", name);
    sl_verbs_config_edit(&config[i])->mp.staging_bytes = 2 << 20;
    workers[i] = (struct sl_worker){.clock = loop_clock(loop),
                                    .config = &config[i],
                                    .events = ring ? &rings[i] : NULL,
                                    .rank = (int)i};
    sl_rng_init(&workers[i].rng, i + 1);
    if (sl_verbs_ops.open(&workers[i], NULL, NULL, &ifaces[i]) != 0)
        fail("open");
}

static void connect_two(struct sl_ep *out_eps[2])
{
    struct sl_addr addr[2];
    struct sl_req req[2] = {{.status = SL_PENDING}, {.status = SL_PENDING}};

    for (unsigned i = 0; i < 2; i++) {
        if (ifaces[i]->ops->ep_create(ifaces[i], &out_eps[i]) != 0 ||
            ifaces[i]->ops->ep_addr(out_eps[i], &addr[i]) != 0)
            fail("ep_create");
        out_eps[i]->peer = (int)!i;
    }
    for (unsigned i = 0; i < 2; i++)
        if (ifaces[i]->ops->ep_connect(out_eps[i], &addr[!i], &req[i]) < 0)
            fail("ep_connect");
    while (req[0].status == SL_PENDING || req[1].status == SL_PENDING)
        round_of_both();
    if (req[0].status != 0 || req[1].status != 0)
        fail("connect");
}

static void world_open(bool ring)
{
    fake = fake_ibv_create(1);
    loop = loop_create(1);
    sl_ibv_replace(fake_ibv_table(fake), fake_ibv_mlx5(fake));
    open_side(0, ring);
    open_side(1, ring);
    connect_two(eps);
}

/* The wire stands still: the fake's steps through so many queue pairs take longest. */
static void quiet_round(void)
{
    for (unsigned i = 0; i < 2; i++)
        if (ifaces[i]->ops->progress(ifaces[i], 64) < 0)
            fail("progress");
    loop_pass(loop, SL_NS_PER_MS);
}

static void one_message(size_t len)
{
    struct sl_sink sink = {.dst = in, .len = len, .tag = 1};
    struct sl_buf buf = {.addr = out, .len = len};
    struct sl_req got = {.status = SL_PENDING}, sent = {.status = SL_PENDING};
    int rc;

    if (ifaces[1]->ops->recv(eps[1], &sink, &got) < 0)
        fail("recv");
    while ((rc = ifaces[0]->ops->send(eps[0], &buf, 1, &sent)) == -EAGAIN)
        round_of_both();
    if (rc < 0)
        fail("send");
    while (got.status == SL_PENDING || sent.status == SL_PENDING)
        round_of_both();
    if (got.status != 0 || sent.status != 0)
        fail("message");
}

static void world_close(void)
{
    for (unsigned i = 0; i < 2; i++) {
        ifaces[i]->ops->ep_destroy(eps[i]);
        for (unsigned k = 0; k < MANY; k++)
            ifaces[i]->ops->ep_destroy(others[k][i]);
    }
    for (unsigned i = 0; i < 2; i++)
        ifaces[i]->ops->close(ifaces[i]);
    fake_ibv_destroy(fake);
    loop_destroy(loop);
}

int main(int argc, char **argv)
{
    const char *what = argc > 2 ? argv[1] : "";
    unsigned count = argc > 2 ? (unsigned)atoi(argv[2]) : 0;
    static struct sl_state_path stats[SL_MP_PATHS_MAX];

    if (strcmp(what, "frames") != 0 && strcmp(what, "writes") != 0 && strcmp(what, "idle") != 0 &&
        strcmp(what, "many") != 0 && strcmp(what, "stats") != 0) {
        fprintf(stderr, "usage: bench_verbs frames|writes|idle|many|stats COUNT [noring]\n");
        return 2;
    }
    world_open(argc < 4);
    for (unsigned i = 0; i < MANY && what[0] == 'm'; i++)
        connect_two(others[i]);
    for (unsigned i = 0; i < count; i++) {
        if (what[0] == 'f')
            one_message(FRAME_BYTES);
        else if (what[0] == 'w')
            one_message(WRITE_BYTES);
        else if (what[0] == 'i')
            round_of_both();
        else if (what[0] == 'm')
            quiet_round();
        else
            ifaces[0]->ops->ep_stats(eps[0], stats, SL_MP_PATHS_MAX);
    }
    world_close();
    return 0;
}
