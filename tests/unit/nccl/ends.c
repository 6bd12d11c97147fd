/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts, connections and requests as tests of the plugin need them. */
#include "tests/unit/nccl/ends.h"

#include <stdio.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static const struct sl_nccl_net_v11 *const net = &ncclNetPlugin_v11;

char ends_warning[1024];
unsigned ends_warnings;

void ends_logger(enum sl_nccl_log_level level, unsigned long flags, const char *file, int line,
                 const char *fmt, ...)
{
    va_list args;

    (void)flags, (void)file, (void)line;
    if (level != SL_NCCL_LOG_WARN)
        return;
    va_start(args, fmt);
    vsnprintf(ends_warning, sizeof(ends_warning), fmt, args);
    va_end(args);
    ends_warnings++;
}

uint64_t ends_now(void)
{
    return sl_now(&sl_clock_monotonic);
}

void *ends_open_ctx(void)
{
    struct sl_nccl_net_config_v10 config = {.traffic_class = SL_NCCL_UNDEFINED};
    void *ctx = NULL;

    assert_int_equal(net->init(&ctx, 1, &config, ends_logger, NULL), SL_NCCL_SUCCESS);
    assert_non_null(ctx);
    return ctx;
}

void ends_listen(struct ends *e)
{
    if (net->listen(e->ctx, 0, e->handle, &e->listen) != SL_NCCL_SUCCESS)
        fail_msg("%s", ends_warning);
    assert_non_null(e->listen);
}

void ends_meet(struct ends *e)
{
    uint64_t end = ends_now() + ENDS_PATIENCE_NS;

    while ((e->send == NULL || e->recv == NULL) && ends_now() < end) {
        if (e->send == NULL)
            assert_int_equal(net->connect(e->ctx, 0, e->handle, &e->send, NULL), SL_NCCL_SUCCESS);
        if (e->recv == NULL)
            assert_int_equal(net->accept(e->listen, &e->recv, NULL), SL_NCCL_SUCCESS);
    }
    assert_non_null(e->send);
    assert_non_null(e->recv);
}

void ends_part(struct ends *e)
{
    if (e->send != NULL)
        assert_int_equal(net->close_send(e->send), SL_NCCL_SUCCESS);
    if (e->recv != NULL)
        assert_int_equal(net->close_recv(e->recv), SL_NCCL_SUCCESS);
    if (e->listen != NULL)
        assert_int_equal(net->close_listen(e->listen), SL_NCCL_SUCCESS);
    if (e->ctx != NULL)
        assert_int_equal(net->finalize(e->ctx), SL_NCCL_SUCCESS);
    memset(e, 0, sizeof(*e));
}

void ends_make(struct ends *e)
{
    memset(e, 0, sizeof(*e));
    e->ctx = ends_open_ctx();
    ends_listen(e);
    ends_meet(e);
}

void *ends_irecv(struct ends *e, void *data, size_t len, int tag)
{
    void *request = SL_NCCL_RECV_OPTIONAL, *parent = NULL;

    assert_int_equal(net->irecv(e->recv, 1, &data, &len, &tag, &e->recv_mr, &parent, &request),
                     SL_NCCL_SUCCESS);
    assert_ptr_not_equal(request, SL_NCCL_RECV_OPTIONAL);
    return request;
}

void *ends_isend(struct ends *e, const void *data, size_t len, int tag)
{
    uint64_t end = ends_now() + ENDS_PATIENCE_NS;
    void *request = NULL;

    while (request == NULL && ends_now() < end)
        assert_int_equal(
            net->isend(e->send, (void *)(uintptr_t)data, len, tag, e->send_mr, NULL, &request),
            SL_NCCL_SUCCESS);
    assert_non_null(request);
    return request;
}

void ends_finish(void *request, int *sizes)
{
    uint64_t end = ends_now() + ENDS_PATIENCE_NS;
    int done = 0;

    while (!done && ends_now() < end)
        assert_int_equal(net->test(request, &done, sizes), SL_NCCL_SUCCESS);
    assert_true(done);
}

void ends_finish_both(void *a, int *size_a, void *b, int *sizes_b)
{
    uint64_t end = ends_now() + ENDS_PATIENCE_NS;
    int done_a = 0, done_b = 0;

    while (!(done_a && done_b) && ends_now() < end) {
        if (!done_a)
            assert_int_equal(net->test(a, &done_a, size_a), SL_NCCL_SUCCESS);
        if (!done_b)
            assert_int_equal(net->test(b, &done_b, sizes_b), SL_NCCL_SUCCESS);
    }
    assert_true(done_a && done_b);
}

void ends_fill(uint8_t *bytes, size_t len, uint64_t seed)
{
    struct sl_rng rng;

    sl_rng_init(&rng, seed);
    for (size_t i = 0; i < len; i++)
        bytes[i] = (uint8_t)sl_rng_u64(&rng);
}
