/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPU memory over the verbs transport: fake GPUs and fake NICs. Whoever touches GPU memory with the
 * processor is killed, so that each message which arrives was carried by devices alone.
 */
#include "tests/unit/verbs/world.h"
#include "verbs/config.h"

#include "tests/fake/fake_cuda.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define ROOM (1u << 20)
#define EAGER 4096u

static struct fake_cuda *cuda;
static char *gpu[2]; /* memory of GPU 0 for side 0, of GPU 1 for side 1 */
static struct sl_mr *mr[2];

static void prepare(void)
{
    world_prepare(NULL);
    cuda = fake_cuda_create(2);
    sl_cuda_replace(fake_cuda_table(cuda));
    for (unsigned i = 0; i < 2; i++) {
        gpu[i] = fake_cuda_alloc(cuda, i, ROOM, FAKE_CUDA_DEVICE);
        mr[i] = NULL;
    }
}

static int reg(unsigned side, void *addr, size_t len, struct sl_mr **out)
{
    struct sl_mem mem = {.addr = addr, .len = len, .kind = SL_MEM_CUDA, .fd = -1};

    return world[side].iface->ops->mr_reg(world[side].iface, &mem, out, NULL);
}

static void join(void)
{
    world_join();
    for (unsigned i = 0; i < 2; i++)
        if (reg(i, gpu[i], ROOM, &mr[i]) != 0)
            fail_msg("%s", sluice_last_error());
}

static int clean(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; i++)
        if (world[i].iface != NULL && mr[i] != NULL) {
            /* The contract: endpoints may still be there, nothing of that memory is under way. */
            world[i].iface->ops->mr_dereg(world[i].iface, mr[i]);
        }
    world_end();
    for (unsigned i = 0; i < 2; i++)
        fake_cuda_free(cuda, gpu[i]);
    if (fake_cuda_misuse(cuda) != NULL)
        fail_msg("%s", fake_cuda_misuse(cuda));
    assert_int_equal(fake_cuda_live(cuda), 0);
    sl_cuda_replace(NULL);
    fake_cuda_destroy(cuda);
    return 0;
}

static void fill(uint8_t *bytes, size_t len, unsigned seed)
{
    for (size_t i = 0; i < len; i++)
        bytes[i] = (uint8_t)((i + seed) * 2654435761u >> 13);
}

enum place { HOST, GPU };

/* One message from side 0 to side 1; late: the receive is posted when its bytes are there, or
 * wait. */
static void carry(enum place from, enum place to, size_t len, bool late)
{
    static uint8_t sent[ROOM], got[ROOM], expected[ROOM];
    static unsigned seed;
    struct sl_buf buf = {.addr = sent, .len = len};
    struct sl_sink sink = {.dst = got, .len = len, .tag = 7};
    struct sl_req send_req, recv_req;
    uint64_t waited_ns;

    fill(expected, len, ++seed);
    memcpy(from == GPU ? fake_cuda_bytes(cuda, gpu[0]) : sent, expected, len);
    memset(to == GPU ? fake_cuda_bytes(cuda, gpu[1]) : got, 0, len);
    if (from == GPU)
        buf = (struct sl_buf){.addr = gpu[0], .len = len, .mr = mr[0]};
    if (to == GPU) {
        sink.dst = gpu[1];
        sink.mr = mr[1];
    }
    if (!late)
        assert_true(world_recv(1, &sink, &recv_req) >= 0);
    assert_true(world_send(0, &buf, 7, &send_req) >= 0);
    if (late) {
        waited_ns = loop_now(world_loop);
        WORLD_UNTIL(loop_now(world_loop) > waited_ns + 5 * SL_NS_PER_MS);
        assert_true(world_recv(1, &sink, &recv_req) >= 0);
    }
    WORLD_UNTIL(send_req.status != SL_PENDING && recv_req.status != SL_PENDING);
    assert_int_equal(send_req.status, 0);
    assert_int_equal(recv_req.status, 0);
    assert_int_equal(recv_req.len, len);
    assert_memory_equal(to == GPU ? fake_cuda_seen(cuda, gpu[1]) : got, expected, len);
}

static const size_t sizes[] = {0, 1, 8, 100, EAGER - 1, EAGER, EAGER + 1, 70000, ROOM};

static void messages_of_any_size_between_gpus_are_carried_by_devices_alone(void **state)
{
    (void)state;
    prepare();
    join();
    for (unsigned late = 0; late < 2; late++)
        for (unsigned i = 0; i < SL_ARRAY_LEN(sizes); i++)
            carry(GPU, GPU, sizes[i], late != 0);
    assert_int_equal(fake_cuda_copies(cuda), 0);
    world_message(100);
}

static void host_and_gpu_memory_meet_either_way(void **state)
{
    (void)state;
    prepare();
    join();
    for (unsigned late = 0; late < 2; late++)
        for (unsigned i = 0; i < SL_ARRAY_LEN(sizes); i++) {
            carry(GPU, HOST, sizes[i], late != 0);
            carry(HOST, GPU, sizes[i], late != 0);
        }
}

static void a_short_message_is_written_into_gpu_memory_that_was_granted_in_time(void **state)
{
    struct sl_sink sink = {.len = 64, .tag = 7};
    struct sl_req send_req, recv_req;
    char sent[64] = "short";
    struct sl_buf buf = {.addr = sent, .len = sizeof(sent)};

    (void)state;
    prepare();
    join();
    sink.dst = gpu[1];
    sink.mr = mr[1];
    assert_int_equal(world_recv(1, &sink, &recv_req), 0);
    WORLD_UNTIL(world_channel(0)->early_count == 1);
    assert_int_equal(world_channel(0)->early_gpu_count, 1);
    assert_int_equal(world_send(0, &buf, 7, &send_req), 0); /* not done at once: it is no frame */
    WORLD_UNTIL(send_req.status == 0 && recv_req.status == 0);
    assert_memory_equal(fake_cuda_bytes(cuda, gpu[1]), sent, sizeof(sent));
    assert_int_equal(fake_cuda_copies(cuda), 0);
    assert_int_equal(world_channel(0)->early_gpu_count, 0);
}

static void a_frame_that_came_before_the_grant_is_copied_by_the_gpu(void **state)
{
    (void)state;
    prepare();
    join();
    fake_cuda_delay(cuda, 50);
    carry(HOST, GPU, 64, true);
    carry(HOST, GPU, EAGER, true);
    assert_int_equal(fake_cuda_copies(cuda), 2);
    /* The grants that their receives would have made are no burden. */
    carry(HOST, GPU, 64, false);
    carry(GPU, GPU, 64, false);
}

static void a_message_may_be_shorter_than_its_room_in_gpu_memory(void **state)
{
    static const size_t lens[] = {0, 1, EAGER, EAGER + 1, 100000};

    (void)state;
    prepare();
    join();
    for (unsigned from = HOST; from <= GPU; from++)
        for (unsigned late = 0; late < 2; late++)
            for (unsigned i = 0; i < SL_ARRAY_LEN(lens); i++) {
                static uint8_t sent[ROOM];
                struct sl_buf buf = {.addr = sent, .len = lens[i]};
                struct sl_sink sink = {
                    .dst = gpu[1], .len = 200000, .tag = 7, .shorter = true, .mr = mr[1]};
                struct sl_req send_req, recv_req;
                uint64_t start_ns = loop_now(world_loop);

                fill(sent, lens[i], i);
                if (from == GPU) {
                    memcpy(fake_cuda_bytes(cuda, gpu[0]), sent, lens[i]);
                    buf.addr = gpu[0];
                    buf.mr = mr[0];
                }
                memset(fake_cuda_bytes(cuda, gpu[1]), 0xee, sink.len);
                if (late == 0)
                    assert_true(world_recv(1, &sink, &recv_req) >= 0);
                assert_true(world_send(0, &buf, 7, &send_req) >= 0);
                if (late != 0) {
                    WORLD_UNTIL(loop_now(world_loop) > start_ns + 5 * SL_NS_PER_MS);
                    assert_true(world_recv(1, &sink, &recv_req) >= 0);
                }
                WORLD_UNTIL(send_req.status != SL_PENDING && recv_req.status != SL_PENDING);
                assert_int_equal(recv_req.status, 0);
                assert_int_equal(recv_req.len, lens[i]);
                assert_memory_equal(fake_cuda_bytes(cuda, gpu[1]), sent, lens[i]);
                assert_int_equal(fake_cuda_bytes(cuda, gpu[1])[lens[i]], 0xee);
            }
}

static unsigned gpu_waits(void)
{
    unsigned count = 0;

    sl_list_foreach(&world_ep(1)->gpu_waits, node) count++;
    return count;
}

static void more_frames_than_copy_buffers_wait_and_all_arrive(void **state)
{
    enum { BURST = 8, COUNT = 15 * BURST };
    unsigned most = 0;
    struct sl_sink sinks[COUNT];
    struct sl_req recvs[COUNT], req;
    uint32_t sent;

    (void)state;
    prepare();
    join();
    fake_cuda_delay(cuda, 1000);
    for (uint32_t i = 0; i < COUNT; i++) {
        struct sl_buf buf = {.addr = &sent, .len = sizeof(sent)};

        sent = i + 1000;
        assert_int_equal(world_send(0, &buf, 1, &req), 1);
        if (i % BURST != BURST - 1)
            continue;
        WORLD_UNTIL(world_ep(1)->held - gpu_waits() == BURST);
        for (uint32_t k = i + 1 - BURST; k <= i; k++) {
            sinks[k] = (struct sl_sink){.dst = gpu[1] + 4 * k, .len = 4, .tag = 1, .mr = mr[1]};
            assert_int_equal(world_recv(1, &sinks[k], &recvs[k]), 0);
        }
        most = most > gpu_waits() ? most : gpu_waits();
    }
    assert_true(most > 0);
    for (uint32_t i = 0; i < COUNT; i++) {
        WORLD_UNTIL(recvs[i].status != SL_PENDING);
        assert_int_equal(recvs[i].status, 0);
        memcpy(&sent, fake_cuda_bytes(cuda, gpu[1]) + 4 * i, 4);
        assert_int_equal(sent, i + 1000);
    }
    assert_int_equal(fake_cuda_copies(cuda), COUNT);
}

static void a_receive_is_done_when_its_gpu_can_see_the_bytes(void **state)
{
    (void)state;
    prepare();
    fake_cuda_device(cuda, 1)->ordering = 0; /* needs a flush */
    join();
    carry(GPU, GPU, 100, false);
    assert_int_equal(fake_cuda_flushes(cuda), 1);
    carry(HOST, GPU, 100000, true);
    assert_int_equal(fake_cuda_flushes(cuda), 2);
    carry(HOST, GPU, 64, true); /* a copy of the GPU's own needs none */
    assert_int_equal(fake_cuda_flushes(cuda), 2);
    /* A GPU that fails has no message. */
    struct sl_sink sink = {.dst = gpu[1], .len = 9, .tag = 7, .mr = mr[1]};
    struct sl_buf buf = {.addr = gpu[0], .len = 9, .mr = mr[0]};
    struct sl_req send_req, recv_req;

    fake_cuda_fail(cuda, "cuFlushGPUDirectRDMAWrites", 1, 700);
    assert_int_equal(world_recv(1, &sink, &recv_req), 0);
    assert_int_equal(world_send(0, &buf, 7, &send_req), 0);
    WORLD_UNTIL(send_req.status != SL_PENDING && recv_req.status != SL_PENDING);
    assert_int_equal(recv_req.status, -EIO);
}

static void a_copy_that_fails_ends_its_receive_alone(void **state)
{
    struct sl_sink sink = {.len = 8, .tag = 7};
    struct sl_req recv_req, send_req;
    struct sl_buf buf = {.addr = "8 bytes", .len = 8};

    (void)state;
    prepare();
    join();
    sink.dst = gpu[1];
    sink.mr = mr[1];
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(world_send(0, &buf, 7, &send_req), 1);
        WORLD_UNTIL(world_ep(1)->held == 1);
        fake_cuda_fail(cuda, i == 0 ? "cuMemcpyHtoDAsync" : "cuEventQuery", 1, 700);
        assert_int_equal(world_recv(1, &sink, &recv_req), 0);
        WORLD_UNTIL(recv_req.status != SL_PENDING);
        assert_int_equal(recv_req.status, -EIO);
    }
    carry(HOST, GPU, 8, true);
}

static void an_endpoint_that_goes_leaves_no_copy_behind(void **state)
{
    struct sl_sink sink = {.len = 8, .tag = 7};
    struct sl_req recv_req, send_req;
    struct sl_buf buf = {.addr = "8 bytes", .len = 8};

    (void)state;
    prepare();
    join();
    sink.dst = gpu[1];
    sink.mr = mr[1];
    fake_cuda_delay(cuda, 1000);
    assert_int_equal(world_send(0, &buf, 7, &send_req), 1);
    WORLD_UNTIL(world_ep(1)->held == 1);
    assert_int_equal(world_recv(1, &sink, &recv_req), 0);
    assert_int_equal(world_ep(1)->gpu_copies, 1);
    assert_true(world[1].iface->ops->arm(world[1].iface) == -EAGAIN); /* nothing would wake it */
    world[1].iface->ops->ep_destroy(world[1].ep);
    world[1].ep = NULL;
    assert_int_equal(recv_req.status, -ECANCELED);
    /* It is over: the memory is the user's. */
    assert_memory_equal(fake_cuda_bytes(cuda, gpu[1]), "8 bytes", 8);
}

static void a_path_that_fails_between_gpus_loses_nothing(void **state)
{
    struct sl_sink sink = {.len = ROOM, .tag = 7};
    struct sl_buf buf = {.len = ROOM};
    struct sl_req send_req, recv_req;

    (void)state;
    prepare();
    join();
    fill(fake_cuda_bytes(cuda, gpu[0]), ROOM, 5);
    sink.dst = gpu[1];
    sink.mr = mr[1];
    buf.addr = gpu[0];
    buf.mr = mr[0];
    assert_int_equal(world_recv(1, &sink, &recv_req), 0);
    assert_int_equal(world_send(0, &buf, 7, &send_req), 0);
    WORLD_UNTIL(sl_mp_tx_at(world_channel(0), world_channel(0)->tx_oldest)->done > 0);
    fake_ibv_kill(world_fake, sl_verbs_path_of(world_ep(0)->paths[0])->qp, FAKE_IBV_ANY,
                  FAKE_IBV_ANY, FAKE_IBV_ANY);
    WORLD_UNTIL(send_req.status != SL_PENDING && recv_req.status != SL_PENDING);
    assert_int_equal(recv_req.status, 0);
    assert_memory_equal(fake_cuda_bytes(cuda, gpu[1]), fake_cuda_bytes(cuda, gpu[0]), ROOM);
    assert_true(world_ep(0)->paths[0]->stats.failures == 1);
}

/* ---- registering ---- */

static void a_dmabuf_of_somebody_else_is_enough_and_may_be_closed_at_once(void **state)
{
    struct sl_mem mem;
    struct sl_gpu_memory memory;
    struct sl_mr *part;
    unsigned page = 4096;

    (void)state;
    prepare();
    join();
    assert_true(sl_gpu_look(gpu[1], &memory));
    world[1].iface->ops->mr_dereg(world[1].iface, mr[1]);
    mr[1] = NULL;
    assert_int_equal(fake_cuda_table(cuda)->cuCtxPushCurrent_v2(memory.context), 0);
    int mode = SL_CU_STREAM_CAPTURE_MODE_RELAXED, fd = -1;
    void *context;

    fake_cuda_table(cuda)->cuThreadExchangeStreamCaptureMode(&mode);
    assert_int_equal(
        fake_cuda_table(cuda)->cuMemGetHandleForAddressRange(
            &fd, (uintptr_t)gpu[1] + page, 8 * page, SL_CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
        0);
    fake_cuda_table(cuda)->cuCtxPopCurrent_v2(&context);
    mem = (struct sl_mem){.addr = gpu[1] + page + 100,
                          .len = 3 * page,
                          .kind = SL_MEM_DMABUF,
                          .fd = fd,
                          .fd_off = 100};
    assert_int_equal(world[1].iface->ops->mr_reg(world[1].iface, &mem, &part, NULL), 0);
    close(fd);
    char *whole = gpu[1];
    struct sl_mr *none = mr[1];

    gpu[1] += page + 100;
    mr[1] = part;
    carry(GPU, GPU, 3 * page, false);
    carry(HOST, GPU, 64, true);
    gpu[1] = whole;
    mr[1] = none;
    world[1].iface->ops->mr_dereg(world[1].iface, part);
    /* Not alike in their pages: the kernel would refuse it with less of a reason. */
    mem.fd_off = 101;
    assert_int_equal(world[1].iface->ops->mr_reg(world[1].iface, &mem, &part, NULL), -EINVAL);
    assert_non_null(strstr(sluice_last_error(), "do not lie alike in their pages"));
    mem.fd = -1;
    assert_int_equal(world[1].iface->ops->mr_reg(world[1].iface, &mem, &part, NULL), -EINVAL);
}

static unsigned open_files(void)
{
    unsigned count = 0;

    for (int fd = 0; fd < 256; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static void an_export_of_our_own_is_closed_when_it_is_registered(void **state)
{
    unsigned before;

    (void)state;
    prepare();
    world_join();
    before = open_files();
    assert_int_equal(reg(0, gpu[0] + 5, 5000, &mr[0]), 0);
    assert_int_equal(fake_cuda_exports(cuda), 1);
    assert_int_equal(open_files(), before);
    /* A part of it is registered already. */
    struct sl_mr *part;

    assert_int_equal(reg(0, gpu[0] + 10, 100, &part), 0);
    assert_int_equal(fake_cuda_exports(cuda), 1);
    world[0].iface->ops->mr_dereg(world[0].iface, part);
    /* Relaxed ordering may be refused, by the second rail here. */
    fake_ibv_fail(world_fake, FAKE_IBV_REG_MR, 2, EOPNOTSUPP);
    assert_int_equal(reg(0, gpu[0] + 70000, 100, &part), 0);
    world[0].iface->ops->mr_dereg(world[0].iface, part);
    assert_int_equal(open_files(), before);
}

static void refusal(struct fake_ibv_device *params)
{
    params->dmabuf = params->name[1] == '0'; /* the first rail of each side would */
}

static uint8_t *peer_bytes(const void *addr)
{
    return sl_gpu_look(addr, NULL) ? fake_cuda_bytes(cuda, addr) : NULL;
}

static void a_device_that_takes_no_gpu_memory_is_named(void **state)
{
    unsigned files, regions;

    (void)state;
    prepare();
    sl_ibv_replace(NULL, NULL);
    fake_ibv_destroy(world_fake);
    loop_destroy(world_loop);
    world_prepare(refusal);
    world_join();
    files = open_files();
    regions = fake_ibv_live_of(world_fake, FAKE_IBV_MR);
    assert_true(access("/sys/module/nvidia_peermem", F_OK) == 0 ||
                (world[0].iface->caps & SL_CAP_GPU) == 0);
    assert_int_equal(reg(0, gpu[0], 5000, &mr[0]), -ENOTSUP);
    assert_null(mr[0]);
    assert_non_null(strstr(sluice_last_error(),
                           "a1 takes no GPU memory: its driver or this kernel knows no "
                           "dma-buf; and without dma-buf it takes the kernel module"));
    assert_int_equal(open_files(), files);
    assert_int_equal(fake_ibv_live_of(world_fake, FAKE_IBV_MR), regions);
    /* With that module it goes by the address. */
    fake_ibv_peer_memory(world_fake, peer_bytes);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(reg(i, gpu[i], ROOM, &mr[i]), 0);
    carry(GPU, GPU, 100, false);
    carry(GPU, GPU, ROOM, false);
}

static void an_old_library_is_told(void **state)
{
    (void)state;
    prepare();
    fake_ibv_table(world_fake)->ibv_reg_dmabuf_mr = NULL;
    world_join();
    assert_int_equal(reg(0, gpu[0], 5000, &mr[0]), -ENOTSUP);
    assert_non_null(strstr(sluice_last_error(), "rdma-core 34 or later"));
}

static void what_devices_and_settings_allow_is_a_capability(void **state)
{
    (void)state;
    prepare();
    sl_verbs_config_edit(&world[1].config)->mp.fallback = SL_MP_FALLBACK_TCP;
    world_open();
    assert_int_equal(world[0].iface->caps & SL_CAP_GPU, SL_CAP_GPU);
    assert_int_equal(world[1].iface->caps & SL_CAP_GPU, 0);
    assert_int_equal(reg(1, gpu[1], 100, &mr[1]), -ENOTSUP);
    assert_non_null(strstr(sluice_last_error(), "SLUICE_VERBS_FALLBACK=tcp"));
}

static void a_gpu_that_cannot_order_writes_is_refused(void **state)
{
    (void)state;
    prepare();
    fake_cuda_device(cuda, 0)->ordering = 0;
    fake_cuda_device(cuda, 0)->flush_options = 0;
    world_join();
    assert_int_equal(reg(0, gpu[0], 100, &mr[0]), -ENOTSUP);
    assert_non_null(strstr(sluice_last_error(), "GPU 0 sees what a NIC wrote in no certain order"));
}

/* ---- a device that returns ---- */

static struct sl_verbs_rail *rail(void)
{
    return &world_iface(0)->rails[0];
}

static void goes(unsigned device)
{
    fake_ibv_device_remove(world_fake, device);
    WORLD_UNTIL(world_ep(0)->paths_up == 1 && world_ep(1)->paths_up == 1);
}

static void comes_back(unsigned device)
{
    fake_ibv_device_return(world_fake, device);
    WORLD_UNTIL(world_ep(0)->paths_up == 2 && world_ep(1)->paths_up == 2);
}

/* By that device alone. */
static void carries(void)
{
    goes(1);
    carry(GPU, GPU, ROOM, false);
    comes_back(1);
}

static void returning(void)
{
    prepare();
    /* One attempt for each region. */
    sl_verbs_config_edit(&world[0].config)->relaxed_ordering = SL_OFF;
    join();
}

/* It is there, and is not used. */
static void is_kept_out(const char *why)
{
    uint64_t start_ns = loop_now(world_loop);

    fake_ibv_device_return(world_fake, 0);
    WORLD_UNTIL(loop_now(world_loop) > start_ns + 3 * SL_NS_PER_S);
    assert_false(rail()->base.usable);
    assert_non_null(strstr(rail()->base.why, why));
    carry(GPU, GPU, ROOM, false);
}

static void gpu_memory_is_exported_again_for_a_device_that_returns(void **state)
{
    unsigned before;

    (void)state;
    returning();
    before = fake_cuda_exports(cuda);
    goes(0);
    comes_back(0);
    assert_int_equal(fake_cuda_exports(cuda) - before, 1);
    carries();
}

/* Or one that has only that device left waits for ever. */
static void without_the_gpu_memory_it_is_not_used(void **state)
{
    (void)state;
    returning();
    goes(0);
    fake_cuda_device(cuda, 0)->dma_buf = false;
    is_kept_out("exports no dma-buf");
    fake_cuda_device(cuda, 0)->dma_buf = true;
    WORLD_UNTIL(world_ep(0)->paths_up == 2 && world_ep(1)->paths_up == 2);
    carries();
}

static void it_may_have_the_memory_by_its_address(void **state)
{
    (void)state;
    returning();
    goes(0);
    fake_cuda_device(cuda, 0)->dma_buf = false;
    fake_ibv_peer_memory(world_fake, peer_bytes);
    comes_back(0);
    carries();
}

static void what_could_not_be_registered_once_is_tried_again(void **state)
{
    uint64_t calls;

    (void)state;
    returning();
    goes(0);
    calls = fake_ibv_calls(world_fake, FAKE_IBV_REG_MR);
    comes_back(0);
    calls = fake_ibv_calls(world_fake, FAKE_IBV_REG_MR) - calls; /* the GPU's is the last one */
    goes(0);
    fake_ibv_fail(world_fake, FAKE_IBV_REG_MR, (unsigned)calls, ENOMEM);
    fake_ibv_device_return(world_fake, 0);
    WORLD_UNTIL(strstr(rail()->base.why, "of GPU memory") != NULL);
    assert_false(rail()->base.usable);
    WORLD_UNTIL(world_ep(0)->paths_up == 2 && world_ep(1)->paths_up == 2);
    carries();
}

/* ---- mistakes ---- */

static void one_kind_of_memory_is_not_registered_as_the_other(void **state)
{
    struct sl_mem mem = {.len = 100, .kind = SL_MEM_HOST, .fd = -1};
    char host[100];
    struct sl_mr *out = NULL;

    (void)state;
    prepare();
    world_join();
    mem.addr = gpu[0];
    assert_int_equal(world[0].iface->ops->mr_reg(world[0].iface, &mem, &out, NULL), -EINVAL);
    assert_non_null(
        strstr(sluice_last_error(), "is GPU memory, and is registered as ordinary memory"));
    assert_int_equal(reg(0, host, sizeof(host), &out), -ENOTSUP);
    assert_non_null(
        strstr(sluice_last_error(), "is no memory of a GPU that this process uses through CUDA"));
    assert_null(out);
}

static void gpu_memory_that_went_away_is_not_sent_from_nor_received_into(void **state)
{
    struct sl_buf buf = {.len = 100};
    struct sl_sink sink = {.len = 100, .tag = 1};
    struct sl_req req = {.status = SL_PENDING};

    (void)state;
    prepare();
    join();
    buf.addr = sink.dst = gpu[0];
    buf.mr = sink.mr = mr[0];
    assert_int_equal(world[0].iface->ops->mem_gone(world[0].iface, gpu[0], 1), 1);
    assert_int_equal(world[0].iface->ops->send(world[0].ep, &buf, 1, &req), -EINVAL);
    assert_non_null(strstr(sluice_last_error(), "the GPU memory of this message went away"));
    assert_int_equal(world[0].iface->ops->recv(world[0].ep, &sink, &req), -EINVAL);
    assert_int_equal(req.status, SL_PENDING);
    world_message(100);
}

static void never_consume(const struct sl_sink *sink, const void *bytes, size_t off, size_t len)
{
    (void)sink, (void)bytes, (void)off, (void)len;
    fail();
}

static void gpu_memory_is_known_by_its_registration_and_handed_to_nobody(void **state)
{
    struct sl_sink sink = {.len = 100, .tag = 7, .consume = never_consume};
    struct sl_req send_req, recv_req;
    struct sl_buf buf = {.len = 100};

    (void)state;
    prepare();
    join();
    sink.dst = gpu[1];
    assert_int_equal(world[1].iface->ops->recv(world[1].ep, &sink, &recv_req), -EINVAL);
    assert_non_null(strstr(sluice_last_error(), "nothing here can read the GPU memory"));
    /* Without a region given: found by its address. */
    sink.consume = NULL;
    buf.addr = gpu[0];
    fill(fake_cuda_bytes(cuda, gpu[0]), 100, 3);
    assert_int_equal(world_recv(1, &sink, &recv_req), 0);
    assert_int_equal(world_send(0, &buf, 7, &send_req), 0);
    WORLD_UNTIL(send_req.status == 0 && recv_req.status == 0);
    assert_memory_equal(fake_cuda_bytes(cuda, gpu[1]), fake_cuda_bytes(cuda, gpu[0]), 100);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_teardown(name, clean)
    const struct CMUnitTest tests[] = {
        CASE(messages_of_any_size_between_gpus_are_carried_by_devices_alone),
        CASE(host_and_gpu_memory_meet_either_way),
        CASE(a_short_message_is_written_into_gpu_memory_that_was_granted_in_time),
        CASE(a_frame_that_came_before_the_grant_is_copied_by_the_gpu),
        CASE(a_message_may_be_shorter_than_its_room_in_gpu_memory),
        CASE(more_frames_than_copy_buffers_wait_and_all_arrive),
        CASE(a_receive_is_done_when_its_gpu_can_see_the_bytes),
        CASE(a_copy_that_fails_ends_its_receive_alone),
        CASE(an_endpoint_that_goes_leaves_no_copy_behind),
        CASE(a_path_that_fails_between_gpus_loses_nothing),
        CASE(a_dmabuf_of_somebody_else_is_enough_and_may_be_closed_at_once),
        CASE(an_export_of_our_own_is_closed_when_it_is_registered),
        CASE(a_device_that_takes_no_gpu_memory_is_named),
        CASE(an_old_library_is_told),
        CASE(what_devices_and_settings_allow_is_a_capability),
        CASE(a_gpu_that_cannot_order_writes_is_refused),
        CASE(gpu_memory_is_exported_again_for_a_device_that_returns),
        CASE(without_the_gpu_memory_it_is_not_used),
        CASE(it_may_have_the_memory_by_its_address),
        CASE(what_could_not_be_registered_once_is_tried_again),
        CASE(one_kind_of_memory_is_not_registered_as_the_other),
        CASE(gpu_memory_that_went_away_is_not_sent_from_nor_received_into),
        CASE(gpu_memory_is_known_by_its_registration_and_handed_to_nobody)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
