/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPU memory through the plugin: fake GPUs and fake NICs. Whoever touches GPU memory with the
 * processor is killed, so that each message which arrives was carried by devices alone.
 */
#include "core/err.h"
#include "tests/unit/nccl/ends.h"
#include "tests/unit/nccl/rails.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#define ROOM (1u << 20)
#define PAGE 4096u

static const struct sl_nccl_net_v11 *const net = &ncclNetPlugin_v11;
static char *gpu[2]; /* of the sender on GPU 0, of the receiver on GPU 1 */
static uint8_t host[2][ROOM];

enum place { HOST, GPU };

static int up(void **state)
{
    (void)state;
    rails_up(2);
    for (unsigned i = 0; i < 2; i++)
        gpu[i] = fake_cuda_alloc(rails_cuda, i, ROOM, FAKE_CUDA_DEVICE);
    return 0;
}

static int down(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; i++)
        fake_cuda_free(rails_cuda, gpu[i]);
    rails_down();
    return 0;
}

static void *reg(void *comm, enum place place, void *addr, size_t len)
{
    void *mr = NULL;

    assert_int_equal(
        net->reg_mr(comm, addr, len, place == GPU ? SL_NCCL_PTR_CUDA : SL_NCCL_PTR_HOST, &mr),
        SL_NCCL_SUCCESS);
    assert_non_null(mr);
    return mr;
}

static void *memory(unsigned end, enum place place)
{
    return place == GPU ? (void *)gpu[end] : host[end];
}

static uint8_t *bytes(void *addr, enum place place)
{
    return place == GPU ? fake_cuda_bytes(rails_cuda, addr) : addr;
}

static void carry(struct ends *e, enum place from, enum place to, size_t len)
{
    static uint8_t expected[ROOM];
    static uint64_t seed;
    void *recv, *flush = e, *data = memory(1, to);
    int sent = -1, got = -1, size = (int)len;

    ends_fill(expected, len, ++seed);
    memcpy(bytes(memory(0, from), from), expected, len);
    memset(bytes(memory(1, to), to), 0, len);
    recv = ends_irecv(e, memory(1, to), len, 4);
    ends_finish_both(ends_isend(e, memory(0, from), len, 4), &sent, recv, &got);
    assert_int_equal(sent, len);
    assert_int_equal(got, len);
    /* Done means that the GPU sees it, so there is no flush left to wait for. */
    assert_memory_equal(to == GPU ? fake_cuda_seen(rails_cuda, memory(1, to)) : host[1], expected,
                        len);
    assert_int_equal(net->iflush(e->recv, 1, &data, &size, &e->recv_mr, &flush), SL_NCCL_SUCCESS);
    assert_null(flush);
}

static void carry_all(struct ends *e, enum place from, enum place to)
{
    static const size_t lens[] = {0, 1, 64, PAGE, PAGE + 1, 70000, ROOM};

    e->send_mr = reg(e->send, from, memory(0, from), ROOM);
    e->recv_mr = reg(e->recv, to, memory(1, to), ROOM);
    for (unsigned i = 0; i < SL_ARRAY_LEN(lens); i++)
        carry(e, from, to, lens[i]);
    assert_int_equal(net->dereg_mr(e->send, e->send_mr), SL_NCCL_SUCCESS);
    assert_int_equal(net->dereg_mr(e->recv, e->recv_mr), SL_NCCL_SUCCESS);
}

static int pointers(void)
{
    struct sl_nccl_net_props_v11 props;
    void *ctx = ends_open_ctx();

    assert_int_equal(net->get_properties(0, &props), SL_NCCL_SUCCESS);
    assert_int_equal(net->finalize(ctx), SL_NCCL_SUCCESS);
    return props.ptr_support;
}

static void nccl_is_offered_gpu_memory_unless_something_is_in_the_way(void **state)
{
    (void)state;
    assert_int_equal(pointers(), SL_NCCL_PTR_HOST | SL_NCCL_PTR_CUDA | SL_NCCL_PTR_DMABUF);
    setenv("SLUICE_NCCL_GPU", "off", 1);
    assert_int_equal(pointers(), SL_NCCL_PTR_HOST);
    setenv("SLUICE_NCCL_GPU", "auto", 1);
    setenv("SLUICE_VERBS_FALLBACK", "tcp", 1); /* which touches memory with the processor */
    assert_int_equal(pointers(), SL_NCCL_PTR_HOST);
    setenv("SLUICE_NCCL_GPU", "on", 1);
    ends_warning[0] = '\0';
    assert_int_equal(pointers(), SL_NCCL_PTR_HOST);
    assert_non_null(strstr(ends_warning, "GPU memory goes through the host"));
    unsetenv("SLUICE_VERBS_FALLBACK");
    unsetenv("SLUICE_NCCL_GPU");
}

static void gpu_memory_is_carried_by_devices_alone(void **state)
{
    struct ends e;

    (void)state;
    ends_make(&e);
    carry_all(&e, GPU, GPU);
    carry_all(&e, HOST, GPU);
    carry_all(&e, GPU, HOST);
    carry_all(&e, HOST, HOST);
    ends_part(&e);
}

static void writes_that_are_not_ordered_are_flushed_before_a_receive_is_done(void **state)
{
    struct ends e;

    (void)state;
    fake_cuda_device(rails_cuda, 1)->ordering = 0;
    ends_make(&e);
    carry_all(&e, GPU, GPU);
    assert_true(fake_cuda_flushes(rails_cuda) > 0);
    ends_part(&e);
}

/* As NCCL does it: the dmabuf is of whole pages, the memory begins within, and the descriptor is
 * closed at once. */
static void *reg_dmabuf(void *comm, char *addr, size_t len)
{
    struct sl_cuda *table = fake_cuda_table(rails_cuda);
    int mode = SL_CU_STREAM_CAPTURE_MODE_RELAXED, fd = -1, device;
    void *context = NULL, *mr = NULL;
    uintptr_t page = (uintptr_t)addr / PAGE * PAGE;

    assert_int_equal(table->cuDeviceGet(&device, 1), 0);
    assert_int_equal(table->cuDevicePrimaryCtxRetain(&context, device), 0);
    assert_int_equal(table->cuCtxPushCurrent_v2(context), 0);
    table->cuThreadExchangeStreamCaptureMode(&mode);
    assert_int_equal(table->cuMemGetHandleForAddressRange(&fd, page, (len + 2 * PAGE) / PAGE * PAGE,
                                                          SL_CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
                                                          0),
                     0);
    table->cuCtxPopCurrent_v2(&context);
    assert_int_equal(
        net->reg_mr_dmabuf(comm, addr, len, SL_NCCL_PTR_CUDA, (uintptr_t)addr - page, fd, &mr),
        SL_NCCL_SUCCESS);
    assert_non_null(mr);
    close(fd);
    return mr;
}

static void a_dmabuf_of_nccls_is_taken(void **state)
{
    char *whole = gpu[1];
    struct ends e;

    (void)state;
    ends_make(&e);
    gpu[1] += 5 * PAGE + 72;
    e.send_mr = reg(e.send, GPU, gpu[0], ROOM);
    e.recv_mr = reg_dmabuf(e.recv, gpu[1], 30 * PAGE);
    carry(&e, GPU, GPU, 64);
    carry(&e, GPU, GPU, 30 * PAGE);
    net->dereg_mr(e.send, e.send_mr);
    net->dereg_mr(e.recv, e.recv_mr);
    gpu[1] = whole;
    ends_part(&e);
}

static void what_is_no_gpu_memory_is_refused(void **state)
{
    void *mr = host;
    struct ends e;

    (void)state;
    ends_make(&e);
    assert_int_not_equal(net->reg_mr(e.recv, host[0], ROOM, SL_NCCL_PTR_CUDA, &mr),
                         SL_NCCL_SUCCESS);
    assert_null(mr);
    mr = host;
    assert_int_not_equal(net->reg_mr_dmabuf(e.recv, gpu[1], ROOM, SL_NCCL_PTR_CUDA, 0, -1, &mr),
                         SL_NCCL_SUCCESS);
    assert_null(mr);
    ends_part(&e);
}

static void what_leaves_its_registration_is_refused(void **state)
{
    void *mr, *parent = NULL, *request = host, *data = gpu[1] + PAGE / 2;
    size_t len = PAGE / 2 + 1;
    int tag = 1;
    struct ends e;

    (void)state;
    ends_make(&e);
    mr = reg(e.recv, GPU, gpu[1], PAGE);
    assert_int_equal(net->irecv(e.recv, 1, &data, &len, &tag, &mr, &parent, &request),
                     SL_NCCL_INVALID_ARGUMENT);
    assert_null(request);
    assert_int_equal(net->dereg_mr(e.recv, mr), SL_NCCL_SUCCESS);
    ends_part(&e);
}

/* NCCL frees after it has deregistered, with requests in flight: no device may reach the memory any
 * more. */
static void gpu_memory_that_is_put_away_under_a_request_is_not_touched_again(void **state)
{
    struct ends e;
    int done = 0;
    void *send;

    (void)state;
    ends_make(&e);
    e.send_mr = reg(e.send, GPU, gpu[0], ROOM);
    e.recv_mr = reg(e.recv, GPU, gpu[1], ROOM);
    ends_irecv(&e, gpu[1], ROOM, 4);
    send = ends_isend(&e, gpu[0], ROOM, 4);
    assert_int_equal(net->dereg_mr(e.recv, e.recv_mr), SL_NCCL_SUCCESS);
    memset(fake_cuda_bytes(rails_cuda, gpu[1]), 0x5a, ROOM);
    for (int i = 0; i < 1000 && !done; i++)
        if (net->test(send, &done, NULL) != SL_NCCL_SUCCESS)
            break;
    for (size_t i = 0; i < ROOM; i++)
        assert_int_equal(fake_cuda_bytes(rails_cuda, gpu[1])[i], 0x5a);
    assert_int_equal(net->dereg_mr(e.send, e.send_mr), SL_NCCL_SUCCESS);
    ends_part(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nccl_is_offered_gpu_memory_unless_something_is_in_the_way,
                                        up, down),
        cmocka_unit_test_setup_teardown(gpu_memory_is_carried_by_devices_alone, up, down),
        cmocka_unit_test_setup_teardown(
            writes_that_are_not_ordered_are_flushed_before_a_receive_is_done, up, down),
        cmocka_unit_test_setup_teardown(a_dmabuf_of_nccls_is_taken, up, down),
        cmocka_unit_test_setup_teardown(what_is_no_gpu_memory_is_refused, up, down),
        cmocka_unit_test_setup_teardown(what_leaves_its_registration_is_refused, up, down),
        cmocka_unit_test_setup_teardown(
            gpu_memory_that_is_put_away_under_a_request_is_not_touched_again, up, down),
    };

    return cmocka_run_group_tests_name("gpu", tests, NULL, NULL);
}
