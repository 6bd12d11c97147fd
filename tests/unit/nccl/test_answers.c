/* SPDX-License-Identifier: Apache-2.0 */
/* A transport that has to answer in time (SL_CAP_TIMELY): the progress thread polls it while NCCL
 * makes no call, and leaves it alone while NCCL polls. */
#include "core/clock.h"
#include "core/registry.h"
#include "core/transport.h"
#include "tools/nccl/adapt.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#define PATIENCE_NS (20 * SL_NS_PER_S)

static struct sl_iface wire;
static uint32_t caps;
static _Thread_local bool is_nccl;
static _Atomic unsigned by_nccl, by_thread;
static uint64_t nccl_ns, closest_ns; /* NCCL's last poll; the least from one to the thread's */

static int probe(const struct sl_config *config, struct sl_device *out, size_t cap, size_t *count)
{
    (void)config, (void)cap;
    out[0] = (struct sl_device){.name = "p0"};
    *count = 1;
    return 0;
}

static int progress(struct sl_iface *iface, unsigned budget)
{
    (void)iface, (void)budget;
    uint64_t now_ns = sl_now(&sl_clock_monotonic);

    atomic_fetch_add(is_nccl ? &by_nccl : &by_thread, 1);
    if (is_nccl)
        nccl_ns = now_ns;
    else if (now_ns - nccl_ns < closest_ns)
        closest_ns = now_ns - nccl_ns;
    return 0;
}

static int open_wire(struct sl_worker *worker, const struct sl_device *dev,
                     const struct sl_handler *handler, struct sl_iface **out);

static void close_wire(struct sl_iface *iface)
{
    (void)iface;
}

static const struct sl_transport_ops pigeon = {.abi = SL_TRANSPORT_ABI,
                                               .name = "pigeon",
                                               .number = 20,
                                               .place = -1,
                                               .probe = probe,
                                               .open = open_wire,
                                               .close = close_wire,
                                               .progress = progress};

static int open_wire(struct sl_worker *worker, const struct sl_device *dev,
                     const struct sl_handler *handler, struct sl_iface **out)
{
    (void)dev, (void)handler;
    wire = (struct sl_iface){.ops = &pigeon, .worker = worker, .caps = caps};
    *out = &wire;
    return 0;
}

static struct sl_nccl_engine *engine_with(uint32_t its, struct sl_nccl_ctx **ctx)
{
    struct sl_nccl_engine *engine;
    struct sl_nccl_way *way;

    caps = its;
    assert_int_equal(sl_nccl_ctx_open(NULL, SL_NCCL_UNDEFINED, ctx), 0);
    assert_int_equal(sl_nccl_engine_get(*ctx, 0, SL_NCCL_UNDEFINED, &engine), 0);
    sl_nccl_lock(engine);
    nccl_ns = 0;
    closest_ns = SL_NEVER;
    assert_int_equal(sl_nccl_way_open(engine, SL_NCCL_BY_DEVICE, &way), 0);
    sl_nccl_unlock(engine);
    atomic_store(&by_nccl, 0);
    atomic_store(&by_thread, 0);
    return engine;
}

static void it_is_polled_while_nccl_makes_no_call(void **state)
{
    uint64_t end = sl_now(&sl_clock_monotonic) + PATIENCE_NS;
    struct sl_nccl_ctx *ctx;
    struct sl_nccl_engine *engine = engine_with(SL_CAP_TIMELY, &ctx);

    (void)state;
    is_nccl = true;
    while (atomic_load(&by_thread) < 100 && sl_now(&sl_clock_monotonic) < end)
        usleep(1000);
    assert_true(atomic_load(&by_thread) >= 100);
    assert_int_equal(atomic_load(&by_nccl), 0);
    sl_nccl_engine_put(engine);
    sl_nccl_ctx_close(ctx);
}

static void it_is_left_alone_while_nccl_polls(void **state)
{
    struct sl_nccl_ctx *ctx;
    struct sl_nccl_engine *engine = engine_with(SL_CAP_TIMELY, &ctx);

    (void)state;
    is_nccl = true;
    for (uint64_t end = sl_now(&sl_clock_monotonic) + 100 * SL_NS_PER_MS;
         sl_now(&sl_clock_monotonic) < end;) {
        sl_nccl_lock(engine);
        sl_nccl_progress(engine);
        sl_nccl_unlock(engine);
    }
    sl_nccl_lock(engine);
    /* Where this thread is kept from its core for so long, the other one may come. */
    assert_true(closest_ns >= 200 * 1000);
    sl_nccl_unlock(engine);
    sl_nccl_engine_put(engine);
    sl_nccl_ctx_close(ctx);
}

static void one_that_need_not_answer_is_not_polled(void **state)
{
    struct sl_nccl_ctx *ctx;
    struct sl_nccl_engine *engine = engine_with(0, &ctx);

    (void)state;
    usleep(50 * 1000);
    assert_int_equal(atomic_load(&by_thread), 0);
    sl_nccl_engine_put(engine);
    sl_nccl_ctx_close(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_polled_while_nccl_makes_no_call),
        cmocka_unit_test(it_is_left_alone_while_nccl_polls),
        cmocka_unit_test(one_that_need_not_answer_is_not_polled),
    };

    setenv("SLUICE_TRANSPORT", "pigeon", 1);
    if (sl_transport_register(&pigeon) != 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
