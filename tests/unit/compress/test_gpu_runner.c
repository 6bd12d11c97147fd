/* SPDX-License-Identifier: Apache-2.0 */
/* The runner of codecs' steps on a GPU, over an emulated one. */
#include "compress/cuda/gpu_runner.h"

#include "core/clock.h"
#include "core/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/compress/emulated_gpu.h"

#define N 5000
#define ROOM ((size_t)N * 4 + 4096)
#define SLICE 100
#define PLACES 256 /* steps that it takes at once */

static struct sl_code_runner plain;
static struct sl_gpu_runner *gpu;
static struct sl_runner *runner;
static float *elements; /* of the GPU */
static void *wire, *sums;
static unsigned ended;

/* So much time passes whenever somebody looks. */
static uint64_t step_ns;

static uint64_t stepping_now(const struct sl_clock *clock)
{
    static uint64_t now_ns;

    (void)clock;
    now_ns += step_ns;
    return now_ns;
}

static const struct sl_clock stepping = {.now_ns = stepping_now};

static void count(struct sl_req *req)
{
    (void)req;
    ended++;
}

static int setup(void **state)
{
    struct sl_gpu_memory memory;
    struct sl_codec_spec spec;
    float given[N];

    (void)state;
    emulated_gpu_use(7);
    for (unsigned i = 0; i < N; i++)
        given[i] = (float)((int)(i * 7919 % 2001) - 1000) / 777.0f;
    elements = emulated_gpu_alloc(0, sizeof(given));
    emulated_gpu_put(elements, given, sizeof(given));
    assert_int_equal(sl_codec_parse("bq8", &spec), 0);
    sl_code_runner_init(&plain, &spec);
    assert_true(sl_gpu_look(elements, &memory));
    assert_int_equal(sl_gpu_runner_create(&memory, &plain, &stepping, &gpu), 0);
    runner = sl_gpu_runner_base(gpu);
    assert_int_equal(runner->ops->take(runner, sizeof(given), ROOM, &sums, &wire), 0);
    ended = 0;
    step_ns = 1;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    runner->ops->give(runner, sums, wire);
    sl_gpu_runner_destroy(gpu);
    emulated_gpu_free(elements);
    assert_null(emulated_gpu_misuse());
    assert_int_equal(emulated_gpu_live(), 0);
    return 0;
}

static struct sl_work encodes(uint64_t many)
{
    return (struct sl_work){.kind = SL_WORK_ENCODE,
                            .dtype = SLUICE_F32,
                            .op = SLUICE_SUM,
                            .divisor = 1,
                            .count = many,
                            .src = elements,
                            .dst = wire,
                            .src_len = many * sizeof(float),
                            .dst_len = ROOM};
}

static struct sl_work decodes(enum sl_work_kind kind, uint64_t many, size_t len)
{
    return (struct sl_work){.kind = kind,
                            .dtype = SLUICE_F32,
                            .op = SLUICE_SUM,
                            .divisor = 1,
                            .count = many,
                            .src = wire,
                            .dst = sums,
                            .src_len = len,
                            .dst_len = many * sizeof(float)};
}

static int start(const struct sl_work *work, struct sl_req *req)
{
    *req = (struct sl_req){.status = SL_PENDING, .done = count};
    return runner->ops->start(runner, work, req);
}

/* Until so many have ended. */
static void go_on(unsigned until)
{
    for (unsigned i = 0; ended < until && i < 100000; i++)
        runner->ops->progress(runner, 64);
    assert_int_equal(ended, until);
}

static void a_step_ends_when_its_bytes_are_in_the_wire_buffer(void **state)
{
    static _Alignas(64) unsigned char want[ROOM];
    const struct sl_codec_at at = {.first = 0};
    struct sl_work work = encodes(N);
    struct sl_req req;
    float given[N];
    size_t len;

    (void)state;
    emulated_gpu_get(given, elements, sizeof(given));
    len = plain.codec->encode(&plain.codes[0].spec, &at, given, N, want);
    assert_int_equal(start(&work, &req), 0);
    assert_int_equal(req.status, SL_PENDING);
    go_on(1);
    assert_int_equal(req.status, 0);
    assert_int_equal(req.len, len);
    assert_memory_equal(wire, want, len);
    assert_true(plain.tally.messages == 1 && plain.tally.elements == N && plain.tally.bytes == len);
}

/* Streams of the emulated GPU go on by turns at random. */
static void a_step_that_is_after_another_begins_when_that_is_over(void **state)
{
    size_t len = plain.codec->size(&plain.codes[0].spec, N);
    struct sl_work work[4] = {encodes(N), decodes(SL_WORK_DECODE, N, len),
                              decodes(SL_WORK_DECODE_REDUCE, N, len),
                              decodes(SL_WORK_DECODE_REDUCE, N, len)};
    static float given[N], got[N], want[N];
    static _Alignas(64) unsigned char bytes[ROOM];
    const struct sl_codec_at at = {.first = 0};
    struct sl_req reqs[4];

    (void)state;
    emulated_gpu_get(given, elements, sizeof(given));
    plain.codec->encode(&plain.codes[0].spec, &at, given, N, bytes);
    assert_int_equal(plain.codec->decode(&plain.codes[0].spec, &at, bytes, len, N, want), 0);
    for (unsigned i = 0; i < N; i++)
        want[i] += want[i] + want[i];
    for (unsigned round = 1; round <= 20; round++) {
        memset(wire, 0xff, len);
        for (unsigned i = 0; i < 4; i++) {
            work[i].after = i != 0 ? &reqs[i - 1] : NULL;
            assert_int_equal(start(&work[i], &reqs[i]), 0);
            if (round % 2 == 0)
                runner->ops->progress(runner, 0); /* one by one onto the streams */
        }
        go_on(4 * round);
        emulated_gpu_get(got, sums, sizeof(got));
        assert_memory_equal(got, want, sizeof(want));
    }
}

/* A call on one stream of the user's, and before all its steps have begun one on another. */
static void steps_begin_after_what_all_streams_had_that_were_named(void **state)
{
    static _Alignas(64) unsigned char want[ROOM];
    static float given[N];
    const struct sl_codec_at at = {.first = 0};
    void *second = emulated_gpu_stream(), *first = emulated_gpu_stream();
    struct sl_work work = encodes(N);
    struct sl_req req;
    size_t len;

    (void)state;
    for (unsigned round = 1; round <= 20; round++) {
        for (unsigned i = 0; i < N; i++)
            given[i] = (float)(i % 100 + round);
        len = plain.codec->encode(&plain.codes[0].spec, &at, given, N, want);
        for (unsigned i = 0; i < N; i += SLICE) /* it takes its time */
            emulated_gpu_copy_later(first, elements + i, given + i, SLICE * sizeof(float));
        assert_int_equal(sl_gpu_runner_after(gpu, first), 0);
        assert_int_equal(sl_gpu_runner_after(gpu, second), 0);
        assert_int_equal(start(&work, &req), 0);
        go_on(round);
        assert_memory_equal(wire, want, len);
    }
    emulated_gpu_stream_end(first);
    emulated_gpu_stream_end(second);
}

static void it_is_full_with_all_places_taken_and_goes_on_later(void **state)
{
    static struct sl_req reqs[PLACES], more;
    struct sl_work work = encodes(1);

    (void)state;
    for (unsigned i = 0; i < PLACES; i++)
        assert_int_equal(start(&work, &reqs[i]), 0);
    assert_int_equal(start(&work, &more), -EAGAIN);
    go_on(PLACES);
    for (unsigned i = 0; i < PLACES; i++)
        assert_int_equal(reqs[i].status, 0);
    assert_int_equal(emulated_gpu_kernels(), PLACES);
    assert_int_equal(start(&work, &more), 0);
    go_on(PLACES + 1);
}

static void eight_steps_are_started_without_being_asked_for_progress(void **state)
{
    struct sl_work work = encodes(1);
    struct sl_req reqs[8];

    (void)state;
    emulated_gpu_fail("cuLaunchKernel", 8, 700);
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(start(&work, &reqs[i]), 0);
    emulated_gpu_fail("cuLaunchKernel", 0, 0);
    go_on(8);
    for (unsigned i = 0; i < 7; i++)
        assert_int_equal(reqs[i].status, 0);
    assert_int_equal(reqs[7].status, -EIO);
    assert_string_equal(sluice_last_error(), "cuLaunchKernel failed: CUDA_ERROR_ILLEGAL_ADDRESS "
                                             "(CUDA_ERROR_ILLEGAL_ADDRESS)");
}

static void a_step_that_is_cancelled_in_the_queue_never_runs(void **state)
{
    struct sl_work work = encodes(1);
    struct sl_req reqs[2];

    (void)state;
    assert_int_equal(start(&work, &reqs[0]), 0);
    assert_int_equal(start(&work, &reqs[1]), 0);
    runner->ops->cancel(runner, &reqs[0]);
    assert_int_equal(reqs[0].status, -ECANCELED);
    go_on(2);
    assert_int_equal(reqs[1].status, 0);
    assert_int_equal(emulated_gpu_kernels(), 1);
}

static void a_step_that_is_cancelled_on_its_stream_is_waited_for(void **state)
{
    struct sl_work work = encodes(N);
    struct sl_req reqs[9];

    (void)state;
    for (unsigned i = 0; i < 9; i++) /* one more than streams */
        assert_int_equal(start(&work, &reqs[i]), 0);
    runner->ops->cancel(runner, &reqs[3]);
    assert_int_equal(reqs[3].status, -ECANCELED);
    assert_true(emulated_gpu_kernels() >= 1);
    go_on(9);
    assert_int_equal(reqs[8].status, 0);
    /* What the driver does late would touch memory that is no more: see teardown. */
}

static void what_cannot_be_done_is_refused_before_it_is_taken(void **state)
{
    size_t len = plain.codec->size(&plain.codes[0].spec, N);
    struct sl_work work = encodes(N);
    struct sl_req req;

    (void)state;
    work.dst_len = len - 1;
    assert_int_equal(start(&work, &req), -EMSGSIZE);
    work = decodes(SL_WORK_DECODE, N, len - 1);
    assert_int_equal(start(&work, &req), -EBADMSG);
    work = decodes(SL_WORK_DECODE_REDUCE, N, len + 16);
    assert_int_equal(start(&work, &req), -EBADMSG);
    work = decodes(SL_WORK_DECODE_REDUCE, N, len);
    work.op = SLUICE_MAX;
    assert_int_equal(start(&work, &req), -ENOTSUP);
    work = encodes(N);
    work.dtype = SLUICE_I32;
    assert_int_equal(start(&work, &req), -ENOTSUP);
    work = encodes(N);
    work.kind = SL_WORK_REDUCE;
    assert_int_equal(start(&work, &req), -ENOTSUP);
    work = encodes(N);
    work.kind = SL_WORK_COPY;
    work.dtype = SLUICE_BF16;
    work.dst_wide = true; /* only sums become elements */
    assert_int_equal(start(&work, &req), -ENOTSUP);
    runner->ops->progress(runner, 64);
    assert_int_equal(ended, 0);
}

/* A kernel that stores where it cannot would cost the user the context. */
static void elements_at_odd_addresses_are_refused_by_a_sentence(void **state)
{
    struct sl_work work = encodes(N / 2);
    struct sl_req req;

    (void)state;
    work.kind = SL_WORK_COPY;
    work.dtype = SLUICE_BF16;
    work.src = sums;
    work.src_wide = true;
    work.dst = (char *)elements + 1;
    work.dst_len = N / 2 * sizeof(uint16_t);
    assert_int_equal(start(&work, &req), 0);
    go_on(1);
    assert_int_equal(req.status, -EINVAL);
    assert_non_null(strstr(sluice_last_error(), "not aligned"));
    assert_int_equal(emulated_gpu_launched(), 0);
}

static void steps_after_a_lost_context_end_with_the_drivers_words(void **state)
{
    struct sl_work work = encodes(1);
    struct sl_req reqs[2];

    (void)state;
    emulated_gpu_fail("cuCtxPushCurrent", 1, 700);
    assert_int_equal(start(&work, &reqs[0]), 0);
    go_on(1);
    assert_int_equal(reqs[0].status, -EIO);
    assert_non_null(strstr(sluice_last_error(), "cuCtxPushCurrent failed: CUDA_ERROR_ILLEGAL"));
    assert_int_equal(start(&work, &reqs[1]), 0);
    go_on(2);
    assert_int_equal(reqs[1].status, 0);
}

static void a_gpu_that_hangs_is_given_up_and_keeps_its_memory(void **state)
{
    struct sl_work work = encodes(1);
    struct sl_req reqs[2];
    unsigned before = emulated_gpu_live();

    (void)state;
    assert_int_equal(start(&work, &reqs[0]), 0);
    assert_int_equal(start(&work, &reqs[1]), 0);
    emulated_gpu_hang(true);
    step_ns = SL_NS_PER_S;
    runner->ops->progress(runner, 64);
    runner->ops->cancel(runner, &reqs[0]);
    runner->ops->cancel(runner, &reqs[1]);
    assert_true(reqs[0].status == -ECANCELED && reqs[1].status == -ECANCELED);
    runner->ops->give(runner, sums, wire);
    sl_gpu_runner_destroy(gpu);
    assert_int_equal(emulated_gpu_live(), before); /* whatever it writes, nobody else has it */
    emulated_gpu_hang(false);
}

/* Each part of it fails in turn. */
static void what_setup_lacks_leaves_nothing_behind(void **state)
{
    static const struct {
        const char *call;
        unsigned nth;
    } calls[] = {{"cuCtxPushCurrent", 1}, {"cuModuleLoadData", 1}, {"cuModuleLoadData", 2},
                 {"cuEventCreate", 1},    {"cuEventCreate", 5},    {"cuStreamCreate", 1},
                 {"cuStreamCreate", 8}};
    struct sl_gpu_runner *none = NULL;
    struct sl_gpu_memory memory;
    unsigned before = emulated_gpu_live();

    (void)state;
    assert_true(sl_gpu_look(elements, &memory));
    for (unsigned i = 0; i < SL_ARRAY_LEN(calls); i++) {
        emulated_gpu_fail(calls[i].call, calls[i].nth, 700);
        assert_int_equal(sl_gpu_runner_create(&memory, &plain, &stepping, &none), -EIO);
        assert_null(none);
        assert_int_equal(emulated_gpu_live(), before);
    }
    memory.context = NULL;
    assert_int_equal(sl_gpu_runner_create(&memory, &plain, &stepping, &none), -ENOTSUP);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(a_step_ends_when_its_bytes_are_in_the_wire_buffer),
        CASE(a_step_that_is_after_another_begins_when_that_is_over),
        CASE(steps_begin_after_what_all_streams_had_that_were_named),
        CASE(it_is_full_with_all_places_taken_and_goes_on_later),
        CASE(eight_steps_are_started_without_being_asked_for_progress),
        CASE(a_step_that_is_cancelled_in_the_queue_never_runs),
        CASE(a_step_that_is_cancelled_on_its_stream_is_waited_for),
        CASE(what_cannot_be_done_is_refused_before_it_is_taken),
        CASE(elements_at_odd_addresses_are_refused_by_a_sentence),
        CASE(steps_after_a_lost_context_end_with_the_drivers_words),
        CASE(what_setup_lacks_leaves_nothing_behind),
        cmocka_unit_test_setup(a_gpu_that_hangs_is_given_up_and_keeps_its_memory, setup),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
