/* SPDX-License-Identifier: Apache-2.0 */
/* What public calls refuse, each with its sentence; memory of sluice_alloc() and
 * sluice_register(). */
#include "world.h"

#include "core/err.h"
#include "core/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/util/host_mem.h"

#define N 16

static void null_communicators(struct sluice_comm **comm, int rank)
{
    int32_t buf[N] = {0};
    void *memory;

    (void)rank;
    EXPECT_ERROR(sluice_allreduce(NULL, buf, buf, N, SLUICE_I32, SLUICE_SUM, NULL), -EINVAL,
                 "the communicator is NULL");
    EXPECT_ERROR(sluice_barrier(NULL, NULL), -EINVAL, "the communicator is NULL");
    EXPECT_ERROR(sluice_send(NULL, buf, N, SLUICE_I32, 0, NULL), -EINVAL,
                 "the communicator is NULL");
    EXPECT_ERROR(sluice_comm_rank(NULL), -EINVAL, "the communicator is NULL");
    EXPECT_ERROR(sluice_comm_size(NULL), -EINVAL, "the communicator is NULL");
    EXPECT_ERROR(sluice_comm_async_error(NULL), -EINVAL, "the communicator is NULL");
    EXPECT_ERROR(sluice_comm_split(*comm, 0, 0, NULL), -EINVAL, "the place for the new one");
    EXPECT_ERROR(sluice_test(NULL), -EINVAL, "the request is NULL");
    EXPECT_ERROR(sluice_wait(NULL), -EINVAL, "the request is NULL");
    EXPECT_ERROR(sluice_alloc(*comm, 0, &memory), -EINVAL, "sluice_alloc");
    EXPECT_ERROR(sluice_register(*comm, NULL, 8, NULL), -EINVAL, "sluice_register");
    EXPECT_ERROR(sluice_memory_gone(NULL, buf, 8), -EINVAL, "sluice_memory_gone");
    EXPECT_ERROR(sluice_memory_gone(*comm, NULL, 8), -EINVAL, "sluice_memory_gone");
    EXPECT(sluice_memory_gone(*comm, NULL, 0) == 0);
    EXPECT(sluice_memory_gone(*comm, buf, sizeof(buf)) == 0);
    sluice_req_free(NULL);
    sluice_free(*comm, NULL);
    sluice_deregister(*comm, NULL);
    sluice_comm_destroy(NULL);
}

static void types_and_roots(struct sluice_comm **comm, int rank)
{
    int32_t a[3 * N] = {0}, b[3 * N] = {0};

    EXPECT_ERROR(sluice_allreduce(*comm, a, b, N, (enum sluice_dtype)77, SLUICE_SUM, NULL), -EINVAL,
                 "77 is no element type");
    EXPECT_ERROR(sluice_allreduce(*comm, a, b, N, SLUICE_I32, (enum sluice_op)9, NULL), -EINVAL,
                 "9 is no operator");
    EXPECT_ERROR(sluice_reduce_scatter(*comm, a, b, N, SLUICE_I32, (enum sluice_op) - 1, NULL),
                 -EINVAL, "-1 is no operator");
    EXPECT_ERROR(sluice_broadcast(*comm, a, b, N, SLUICE_I32, 3, NULL), -EINVAL,
                 "broadcast: rank 3 is not one of the 3");
    EXPECT_ERROR(sluice_reduce(*comm, a, b, N, SLUICE_I32, SLUICE_SUM, -1, NULL), -EINVAL,
                 "reduce: rank -1 is not one of the 3");
    EXPECT_ERROR(sluice_gather(*comm, a, b, N, SLUICE_I32, 4, NULL), -EINVAL, "gather: rank 4");
    EXPECT_ERROR(sluice_scatter(*comm, a, b, N, SLUICE_I32, 5, NULL), -EINVAL, "scatter: rank 5");
    EXPECT_ERROR(sluice_send(*comm, a, N, SLUICE_I32, 3, NULL), -EINVAL, "send: rank 3 is not one");
    EXPECT_ERROR(sluice_recv(*comm, a, N, SLUICE_I32, rank, NULL), -EINVAL, "is this rank");
}

static void buffers(struct sluice_comm **comm, int rank)
{
    int32_t a[4 * N] = {0}, b[4 * N] = {0};
    void *odd = (char *)b + 1;

    EXPECT_ERROR(sluice_allreduce(*comm, NULL, b, N, SLUICE_I32, SLUICE_SUM, NULL), -EINVAL,
                 "allreduce: the input buffer is NULL");
    EXPECT_ERROR(sluice_all_gather(*comm, a, NULL, N, SLUICE_I32, NULL), -EINVAL,
                 "all_gather: the output buffer is NULL");
    EXPECT_ERROR(sluice_allreduce(*comm, a, odd, N, SLUICE_I32, SLUICE_SUM, NULL), -EINVAL,
                 "allreduce: a buffer is not aligned to its elements of 4 bytes");
    EXPECT_ERROR(sluice_allreduce(*comm, a, b, SIZE_MAX / 4, SLUICE_I32, SLUICE_SUM, NULL), -EINVAL,
                 "are more than memory can hold");
    EXPECT_ERROR(sluice_allreduce(*comm, a, a + 1, N, SLUICE_I32, SLUICE_SUM, NULL), -EINVAL,
                 "allreduce: input and output overlap");
    EXPECT_ERROR(sluice_all_gather(*comm, a + (rank == 0), a, N, SLUICE_I32, NULL), -EINVAL,
                 "all_gather: input and output overlap");
    /* Roots and others need different buffers. */
    EXPECT(sluice_reduce(*comm, a, rank == 1 ? b : NULL, N, SLUICE_I32, SLUICE_SUM, 1, NULL) == 0);
    EXPECT(sluice_scatter(*comm, rank == 2 ? a : NULL, b, N, SLUICE_I32, 2, NULL) == 0);
    EXPECT(sluice_broadcast(*comm, rank == 0 ? a : NULL, b, N, SLUICE_I32, 0, NULL) == 0);
    EXPECT(sluice_allreduce(*comm, NULL, NULL, 0, SLUICE_I32, SLUICE_SUM, NULL) == 0);
}

static void v_arrays(struct sluice_comm **comm, int rank)
{
    size_t in_counts[2] = {1, 1}, out_counts[2] = {1, 1}, offsets[2] = {0, 1};
    int32_t a[N] = {0}, b[N] = {0};

    EXPECT_ERROR(
        sluice_all_to_all_v(*comm, a, NULL, offsets, b, out_counts, offsets, SLUICE_I32, NULL),
        -EINVAL, "all_to_all_v: an array of counts or offsets is NULL");
    out_counts[rank] = 2;
    EXPECT_ERROR(
        sluice_all_to_all_v(*comm, a, in_counts, offsets, b, out_counts, offsets, SLUICE_I32, NULL),
        -EINVAL, "sends itself 1 elements but receives 2");
    out_counts[rank] = 1;
    EXPECT_ERROR(sluice_all_to_all_v(*comm, NULL, in_counts, offsets, b, out_counts, offsets,
                                     SLUICE_I32, NULL),
                 -EINVAL, "all_to_all_v: the input buffer is NULL");
    EXPECT_ERROR(sluice_all_to_all_v(*comm, a, in_counts, offsets, a + 1, out_counts, offsets,
                                     SLUICE_I32, NULL),
                 -EINVAL, "all_to_all_v: input and output overlap");
    offsets[1] = SIZE_MAX;
    EXPECT_ERROR(
        sluice_all_to_all_v(*comm, a, in_counts, offsets, b, out_counts, offsets, SLUICE_I32, NULL),
        -EINVAL, "more than memory can hold");
}

static void nothing_given_is_refused(void **state)
{
    (void)state;
    RUN(1, "", null_communicators);
}

static void types_operators_and_roots_are_checked(void **state)
{
    (void)state;
    RUN(3, "", types_and_roots);
}

static void buffers_are_checked_where_this_rank_needs_them(void **state)
{
    (void)state;
    RUN(3, "", buffers);
}

static void counts_and_offsets_of_all_to_all_v_are_checked(void **state)
{
    (void)state;
    RUN(2, "", v_arrays);
}

/* ---- memory ---- */

static void allocated(struct sluice_comm **comm, int rank)
{
    struct sluice_buffer *buffer = NULL;
    char *a, *b;
    void *memory;

    EXPECT(sluice_alloc(*comm, 10000, &memory) == 0);
    a = memory;
    EXPECT(((uintptr_t)a & 4095) == 0);
    for (int i = 0; i < 10000; i++)
        EXPECT(a[i] == 0);
    EXPECT(sluice_alloc(*comm, 1, &memory) == 0);
    b = memory;
    EXPECT(b != a);
    EXPECT(sluice_all_gather(*comm, a + 100 * rank, a, 100, SLUICE_U8, NULL) == 0);
    int err = sluice_register(*comm, a, 10000, &buffer);

    EXPECT(err == 0 || err == -ENOTSUP);
    EXPECT((err == 0) == (buffer != NULL));
    if (err == 0)
        sluice_deregister(*comm, buffer);
    sluice_free(*comm, a);
    sluice_free(*comm, b);
}

static void memory_is_page_aligned_and_zero_and_can_be_registered(void **state)
{
    (void)state;
    RUN(1, "", allocated);
    RUN(2, "", allocated);
}

/* A transport that registers through the cache, as verbs does. Rank 0 alone uses it. */
static struct sl_mem_cache pins;
static unsigned pins_allowed;
static uintptr_t pins_made;

static int pin(void *arg, const struct sl_mem *mem, void **out)
{
    (void)arg;
    if (pins.count >= pins_allowed)
        return sl_fail(-ENOMEM, "%zu bytes are more than may be locked", mem->len);
    *out = (void *)++pins_made;
    return 0;
}

static void unpin(void *arg, void *handle)
{
    (void)arg, (void)handle;
}

static int pin_reg(struct sl_iface *iface, const struct sl_mem *mem, struct sl_mr **out,
                   struct sl_key *key)
{
    struct sl_mem_region *region;
    int err = get_host_mem(&pins, mem->addr, mem->len, &region);

    (void)iface, (void)key;
    if (err == 0)
        *out = (struct sl_mr *)region;
    return err;
}

static void pin_dereg(struct sl_iface *iface, struct sl_mr *mr)
{
    (void)iface;
    sl_mem_cache_put(&pins, (struct sl_mem_region *)mr);
}

static unsigned pin_gone(struct sl_iface *iface, void *addr, size_t len)
{
    (void)iface;
    return sl_mem_cache_invalidate(&pins, addr, len);
}

static void registered(struct sluice_comm **comm, int rank)
{
    const struct sl_mem_device device = {.reg = pin, .dereg = unpin};
    struct sluice_buffer *buffer = NULL, *inside = NULL, *refused = NULL;
    static struct sl_transport_ops ops; /* outlives a check that fails */
    static char memory[8192], other[64];
    void *allocated_memory = NULL;

    if (rank != 0)
        return;
    ops = *(*comm)->worker->slots[0].ops;
    ops.mr_reg = pin_reg;
    ops.mr_dereg = pin_dereg;
    ops.mem_gone = pin_gone;
    (*comm)->worker->slots[0].ops = &ops;
    sl_mem_cache_init(&pins, &device, 1 << 20, 16);
    pins_allowed = 1;
    EXPECT(sluice_register(*comm, memory, sizeof(memory), &buffer) == 0);
    EXPECT(sluice_register(*comm, memory + 100, 8, &inside) == 0 && inside != buffer);
    EXPECT(pins.count == 1);
    EXPECT_ERROR(sluice_register(*comm, other, sizeof(other), &refused), -ENOMEM, "may be locked");
    EXPECT_ERROR(sluice_alloc(*comm, 4096, &allocated_memory), -ENOMEM, "may be locked");
    EXPECT(refused == NULL && allocated_memory == NULL);
    EXPECT(sluice_memory_gone(*comm, other, sizeof(other)) == 0);
    EXPECT_ERROR(sluice_memory_gone(*comm, memory + 108, 1), -EBUSY,
                 "1 registrations of the 1 bytes");
    EXPECT(sl_mem_cache_find(&pins, memory + 100, 8) != NULL);
    EXPECT_ERROR(sluice_memory_gone(*comm, memory, sizeof(memory)), -EBUSY, "1 registrations");
    EXPECT(sl_mem_cache_find(&pins, memory + 100, 8) == NULL);
    sluice_deregister(*comm, buffer);
    EXPECT(pins.count == 1);
    sluice_deregister(*comm, inside);
    EXPECT(pins.count == 0);
    /* Allocated memory goes with its registration, kept or not. */
    EXPECT(sluice_alloc(*comm, 4096, &allocated_memory) == 0 && pins.count == 1);
    sluice_free(*comm, allocated_memory);
    EXPECT(pins.count == 0);
    (*comm)->worker->slots[0].ops = (*comm)->worker->slots[0].iface->ops;
    EXPECT(sl_mem_cache_fini(&pins) == 0);
}

static void registrations_are_counted_and_their_memory_may_go_only_without_them(void **state)
{
    (void)state;
    RUN(2, "", registered);
}

static void configs_are_checked(void **state)
{
    struct sluice_config config = {.rank = 0, .size = 1};
    struct sluice_unique_id id;
    struct sluice_comm *comm = NULL;
    char text[SL_TEXT_MAX + 1];

    (void)state;
    assert_int_equal(sluice_comm_create(&config, &comm), -EINVAL);
    assert_non_null(strstr(sluice_last_error(), "sluice_config_init"));
    sluice_config_init(&config);
    assert_int_equal(sluice_comm_create(&config, NULL), -EINVAL);
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    config.job = text;
    assert_int_equal(sluice_comm_create(&config, &comm), -EINVAL);
    assert_non_null(strstr(sluice_last_error(), "job is longer than 255 bytes"));
    assert_int_equal(sluice_unique_id_create(NULL), -EINVAL);
    assert_int_equal(sluice_comm_create_id(NULL, 0, 1, NULL, &comm), -EINVAL);
    assert_int_equal(sluice_comm_create_id(&id, 0, 1, NULL, NULL), -EINVAL);
    assert_null(comm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_given_is_refused),
        cmocka_unit_test(types_operators_and_roots_are_checked),
        cmocka_unit_test(buffers_are_checked_where_this_rank_needs_them),
        cmocka_unit_test(counts_and_offsets_of_all_to_all_v_are_checked),
        cmocka_unit_test(memory_is_page_aligned_and_zero_and_can_be_registered),
        cmocka_unit_test(registrations_are_counted_and_their_memory_may_go_only_without_them),
        cmocka_unit_test(configs_are_checked),
    };

    return cmocka_run_group_tests_name("calls", tests, NULL, NULL);
}
