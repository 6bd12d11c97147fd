/* SPDX-License-Identifier: Apache-2.0 */
#include "core/err.h"
#include "core/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <sys/resource.h>
#include <cmocka.h>

#include "tests/util/host_mem.h"

/* Notes what it was asked for; handles are numbers from 1. */
static struct {
    struct sl_mem_cache cache;
    uintptr_t made, ended[64];
    unsigned ended_count;
    unsigned refusals; /* how many registrations to refuse */
    int refuse_with;
} t;

static int note_reg(void *arg, const struct sl_mem *mem, void **out)
{
    (void)mem;
    assert_ptr_equal(arg, &t);
    if (t.refusals > 0) {
        t.refusals--;
        return sl_fail(t.refuse_with, "the device refused");
    }
    *out = (void *)++t.made;
    return 0;
}

static void note_dereg(void *arg, void *handle)
{
    assert_ptr_equal(arg, &t);
    assert_true(t.ended_count < SL_ARRAY_LEN(t.ended));
    t.ended[t.ended_count++] = (uintptr_t)handle;
}

static void start(size_t keep_bytes, uint32_t keep_count)
{
    const struct sl_mem_device device = {.reg = note_reg, .dereg = note_dereg, .arg = &t};

    memset(&t, 0, sizeof(t));
    sl_mem_cache_init(&t.cache, &device, keep_bytes, keep_count);
}

static void *at(uintptr_t addr)
{
    return (void *)addr; /* never touched: the device is a fake */
}

static struct sl_mem_region *get(uintptr_t addr, size_t len)
{
    struct sl_mem_region *region = NULL;

    assert_int_equal(get_host_mem(&t.cache, at(addr), len, &region), 0);
    assert_non_null(region);
    return region;
}

static struct sl_mem_region *find(uintptr_t addr, size_t len)
{
    return sl_mem_cache_find(&t.cache, at(addr), len);
}

static void put(struct sl_mem_region *region)
{
    sl_mem_cache_put(&t.cache, region);
}

static void gets_of_one_range_share_a_registration_that_ends_with_the_last_put(void **state)
{
    (void)state;
    start(0, 0);
    struct sl_mem_region *a = get(0x1000, 0x100), *b = get(0x1000, 0x100);

    assert_ptr_equal(a, b);
    assert_int_equal(t.made, 1);
    put(a);
    assert_ptr_equal(find(0x1000, 0x100), b);
    assert_int_equal(t.ended_count, 0);
    put(b);
    assert_null(find(0x1000, 1));
    assert_int_equal(t.ended_count, 1);
    put(NULL);
    assert_int_equal(sl_mem_cache_fini(&t.cache), 0);
    assert_int_equal(t.ended_count, 1);
}

static void find_knows_each_byte_of_a_region_and_none_beside_it(void **state)
{
    (void)state;
    start(0, 0);
    struct sl_mem_region *a = get(0x1000, 0x100);

    assert_ptr_equal(find(0x1000, 0x100), a);
    assert_ptr_equal(find(0x10ff, 1), a);
    assert_ptr_equal(find(0x10ff, 0), a);
    assert_null(find(0x1100, 0));
    assert_null(find(0xfff, 2));
    assert_null(find(0x10ff, 2));
    assert_null(find(0x1000, 0x101));
    assert_null(find(0x1001, SIZE_MAX)); /* the sum wraps to 0x1000 */
    assert_null(find(UINTPTR_MAX, 1));
    assert_null(find(0, 1));
    put(a);
    sl_mem_cache_fini(&t.cache);
}

static void a_range_inside_a_region_costs_no_registration(void **state)
{
    (void)state;
    start(0, 0);
    struct sl_mem_region *outer = get(0x1000, 0x1000), *inner = get(0x1400, 0x100);

    assert_int_equal(t.made, 1);
    assert_ptr_equal(inner->handle, outer->handle);
    put(outer);
    assert_int_equal(t.ended_count, 0);
    assert_ptr_equal(find(0x1400, 0x100), inner);
    /* Registered still, but nobody answers for it any more. */
    assert_null(find(0x1000, 0x100));
    assert_null(find(0x13ff, 2));
    struct sl_mem_region *again = get(0x1000, 0x1000);

    assert_int_equal(t.made, 2);
    assert_ptr_not_equal(again->handle, inner->handle);
    put(inner);
    assert_int_equal(t.ended_count, 1);
    put(again);
    assert_int_equal(t.ended_count, 2);
    sl_mem_cache_fini(&t.cache);
}

static void a_range_that_grew_is_registered_beside_the_smaller_one(void **state)
{
    (void)state;
    start(0, 0);
    struct sl_mem_region *small = get(0x1000, 0x100), *large = get(0x1000, 0x200);

    assert_int_equal(t.made, 2);
    assert_ptr_equal(find(0x1080, 0x100), large);
    put(small);
    assert_int_equal(t.ended_count, 1);
    assert_int_equal(t.ended[0], 1);
    assert_ptr_equal(find(0x1000, 0x100), large);
    put(large);
    sl_mem_cache_fini(&t.cache);
}

static void find_sees_past_regions_that_start_later_and_end_earlier(void **state)
{
    struct sl_mem_region *inner[40];
    (void)state;
    start(0, 0);
    /* The large one comes last, so that none inside shares its registration. */
    for (unsigned i = 0; i < SL_ARRAY_LEN(inner); i++)
        inner[i] = get(0x10000 + 0x100 * (uintptr_t)i, 0x80);
    struct sl_mem_region *large = get(0x8000, 0x100000);

    assert_ptr_equal(find(0x10000 + 0x100 * 30, 0x100), large);
    for (unsigned i = 0; i < SL_ARRAY_LEN(inner); i++)
        put(inner[(i * 7) % SL_ARRAY_LEN(inner)]);
    assert_ptr_equal(find(0x8000, 0x100000), large);
    put(large);
    assert_null(find(0x8000, 1));
    assert_int_equal(sl_mem_cache_fini(&t.cache), 0);
}

static void what_is_kept_idle_is_reused_but_never_found(void **state)
{
    (void)state;
    start(0x1000, 4);
    put(get(0x1000, 0x100));
    assert_int_equal(t.ended_count, 0);
    assert_int_equal(t.cache.idle_count, 1);
    assert_null(find(0x1000, 0x100));
    struct sl_mem_region *part = get(0x1010, 0x10);

    assert_int_equal(t.made, 1);
    assert_int_equal(t.cache.idle_count, 0);
    assert_ptr_equal(find(0x1010, 0x10), part);
    assert_null(find(0x1000, 0x100));
    put(part);
    assert_int_equal(t.cache.idle_bytes, 0x100);
    assert_int_equal(sl_mem_cache_fini(&t.cache), 0);
    assert_int_equal(t.ended_count, 1);
}

static void the_idle_one_unused_for_longest_goes_first(void **state)
{
    (void)state;
    start(0x10000, 3);
    for (uintptr_t i = 1; i <= 3; i++)
        put(get(0x1000 * i, 0x100));
    put(get(0x1000, 0x100)); /* the first is the newest now */
    put(get(0x9000, 0x100));
    assert_int_equal(t.ended_count, 1);
    assert_int_equal(t.ended[0], 2);
    put(get(0xa000, 0x100));
    assert_int_equal(t.ended[1], 3);
    sl_mem_cache_fini(&t.cache);
}

static void idle_bytes_have_a_limit_and_the_too_large_are_not_kept(void **state)
{
    (void)state;
    start(0x300, 100);
    put(get(0x1000, 0x200));
    put(get(0x2000, 0x301)); /* alone too much: goes, and drives nothing out */
    assert_int_equal(t.ended_count, 1);
    assert_int_equal(t.ended[0], 2);
    put(get(0x3000, 0x200));
    assert_int_equal(t.ended_count, 2);
    assert_int_equal(t.ended[1], 1);
    assert_int_equal(t.cache.idle_bytes, 0x200);
    sl_mem_cache_fini(&t.cache);
}

static void a_buffer_that_grew_drives_out_what_was_kept_inside_it(void **state)
{
    (void)state;
    start(0x10000, 100);
    put(get(0x1000, 0x100));
    put(get(0x1f80, 0x100)); /* sticks out: stays */
    struct sl_mem_region *large = get(0x1000, 0x1000);

    assert_int_equal(t.ended_count, 1);
    assert_int_equal(t.ended[0], 1);
    put(large);
    sl_mem_cache_fini(&t.cache);
}

static void memory_that_goes_takes_its_idle_registrations_along(void **state)
{
    (void)state;
    start(0x10000, 100);
    put(get(0x1000, 0x100));
    put(get(0x2000, 0x100));
    assert_int_equal(sl_mem_cache_invalidate(&t.cache, at(0x1100), 0xf00), 0); /* between them */
    assert_int_equal(t.ended_count, 0);
    assert_int_equal(sl_mem_cache_invalidate(&t.cache, at(0x10ff), 1), 0);
    assert_int_equal(t.ended_count, 1);
    assert_int_equal(t.ended[0], 1);
    assert_int_equal(sl_mem_cache_invalidate(&t.cache, at(1), SIZE_MAX), 0);
    assert_int_equal(t.ended_count, 2);
    assert_int_equal(sl_mem_cache_invalidate(&t.cache, at(0x1000), 0), 0);
    sl_mem_cache_fini(&t.cache);
}

static void memory_that_goes_while_in_use_is_found_no_more_and_ends_with_its_last_put(void **state)
{
    (void)state;
    start(0x10000, 100);
    struct sl_mem_region *a = get(0x1000, 0x100), *twice = get(0x1000, 0x100);

    assert_ptr_equal(find(0x1000, 0x100), a);
    assert_int_equal(sl_mem_cache_invalidate(&t.cache, at(0x1080), 0x10), 1);
    assert_null(find(0x1000, 0x100)); /* though it was hit last */
    assert_int_equal(sl_mem_cache_invalidate(&t.cache, at(0x1080), 0x10), 0);
    assert_int_equal(t.ended_count, 0);
    struct sl_mem_region *fresh = get(0x1000, 0x100);

    assert_ptr_not_equal(fresh, a);
    assert_int_equal(t.made, 2);
    put(a);
    assert_int_equal(t.ended_count, 0);
    put(twice);
    assert_int_equal(t.ended_count, 1);
    assert_int_equal(t.ended[0], 1);
    assert_ptr_equal(find(0x1000, 0x100), fresh);
    put(fresh);
    sl_mem_cache_fini(&t.cache);
}

static void a_registration_of_which_a_part_went_serves_the_rest_and_is_not_kept(void **state)
{
    (void)state;
    start(0x10000, 100);
    struct sl_mem_region *whole = get(0x1000, 0x100), *part = get(0x1000, 0x40);

    assert_int_equal(sl_mem_cache_invalidate(&t.cache, at(0x1080), 0x10), 1);
    assert_ptr_equal(find(0x1000, 0x40), part);
    put(whole);
    assert_ptr_equal(find(0x1010, 0x10), part);
    assert_int_equal(t.ended_count, 0);
    put(part);
    assert_int_equal(t.ended_count, 1);
    assert_int_equal(t.cache.idle_count, 0);
    sl_mem_cache_fini(&t.cache);
}

static void a_refusal_lets_idle_registrations_go_and_asks_once_more(void **state)
{
    struct sl_mem_region *region = NULL;

    (void)state;
    start(0x10000, 100);
    put(get(0x1000, 0x100));
    put(get(0x2000, 0x100));
    t.refusals = 1;
    t.refuse_with = -ENOMEM;
    struct sl_mem_region *a = get(0x3000, 0x100);

    assert_int_equal(t.ended_count, 2);
    t.refusals = 1; /* nothing is idle now: no second try */
    assert_int_equal(get_host_mem(&t.cache, at(0x4000), 1, &region), -ENOMEM);
    assert_string_equal(sluice_last_error(), "the device refused");
    assert_null(region);
    assert_int_equal(t.refusals, 0);
    put(a);
    t.refusals = 1; /* not a matter of room: what is idle stays */
    t.refuse_with = -EFAULT;
    assert_int_equal(get_host_mem(&t.cache, at(0x4000), 1, &region), -EFAULT);
    assert_int_equal(t.ended_count, 2);
    assert_int_equal(t.cache.count, 1);
    sl_mem_cache_fini(&t.cache);
}

static void what_is_no_range_is_refused(void **state)
{
    struct sl_mem_region *region = NULL;

    (void)state;
    start(0, 0);
    assert_int_equal(get_host_mem(&t.cache, NULL, 8, &region), -EINVAL);
    assert_int_equal(get_host_mem(&t.cache, at(8), 0, &region), -EINVAL);
    assert_int_equal(get_host_mem(&t.cache, at(8), SIZE_MAX - 3, &region), -EINVAL);
    assert_null(region);
    assert_int_equal(t.made, 0);
    sl_mem_cache_fini(&t.cache);
}

static void fini_ends_everything_and_says_what_was_still_in_use(void **state)
{
    (void)state;
    start(0x10000, 100);
    get(0x1000, 0x100);
    get(0x1010, 0x10);
    put(get(0x3000, 0x100));
    get(0x5000, 0x100);
    assert_int_equal(sl_mem_cache_invalidate(&t.cache, at(0x5000), 1), 1);
    assert_int_equal(sl_mem_cache_fini(&t.cache), 3);
    assert_int_equal(t.ended_count, 3);
}

/* ---- out of memory ---- */

static unsigned fail_in; /* the allocation that fails, counted down; 0: none */

void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__real_reallocarray(void *old, size_t count, size_t size);
void *__wrap_reallocarray(void *old, size_t count, size_t size);

static bool fails_now(void)
{
    return fail_in > 0 && --fail_in == 0;
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails_now() ? NULL : __real_calloc(count, size);
}

void *__wrap_reallocarray(void *old, size_t count, size_t size)
{
    return fails_now() ? NULL : __real_reallocarray(old, count, size);
}

static void each_allocation_may_fail_and_nothing_changes(void **state)
{
    struct sl_mem_region *region;
    unsigned failed = 0;

    (void)state;
    /* At 16 regions the lists grow too. */
    for (unsigned before = 0; before <= 16; before += 16) {
        for (unsigned nth = 1, err = 1; err != 0; nth++) {
            start(0x100000, 100);
            for (uintptr_t i = 0; i < before; i++)
                get(0x10000 * (i + 1), 0x100);
            region = NULL;
            fail_in = nth;
            int got = get_host_mem(&t.cache, at(0x1000), 0x100, &region);

            fail_in = 0;
            err = (unsigned)-got;
            if (got != 0) {
                failed++;
                assert_int_equal(got, -ENOMEM);
                assert_non_null(strstr(sluice_last_error(), "no memory for the"));
                assert_null(region);
                assert_null(find(0x1000, 1));
                assert_int_equal(t.made, before);
                assert_int_equal(t.cache.count, before);
            } else {
                assert_ptr_equal(find(0x1000, 0x100), region);
            }
            assert_int_equal(sl_mem_cache_fini(&t.cache), before + (got == 0));
        }
    }
    assert_int_equal(failed, 2 * 4); /* two records, two lists */
}

/* ---- the sentence about locked memory ---- */

static void the_sentence_names_need_limit_use_and_remedies(void **state)
{
    const struct sl_mem_lock lock = {.limit = 8 << 20, .locked = 4096, .pinned = 6 << 20};

    (void)state;
    assert_int_equal(sl_mem_lock_failed_at(-ENOMEM, 3 << 20, &lock), -ENOMEM);
    assert_string_equal(sluice_last_error(), "3 MiB of memory cannot be registered: Cannot "
                                             "allocate memory; RLIMIT_MEMLOCK allows 8 MiB, of "
                                             "which this process has locked 4 KiB and pinned 6 "
                                             "MiB: raise it by ulimit -l unlimited, for "
                                             "services LimitMEMLOCK=infinity, under Slurm "
                                             "PropagateResourceLimits with MEMLOCK in it, for "
                                             "containers --ulimit memlock=-1");
}

static void without_a_limit_the_sentence_blames_none(void **state)
{
    const struct sl_mem_lock lock = {.limit = UINT64_MAX, .pinned = UINT64_C(3) << 40};

    (void)state;
    assert_int_equal(sl_mem_lock_failed_at(-EPERM, 1537, &lock), -EPERM);
    assert_non_null(strstr(sluice_last_error(), "2 KiB of memory"));
    assert_non_null(strstr(sluice_last_error(), "pinned 3 TiB"));
    assert_non_null(strstr(sluice_last_error(), "sets no limit"));
    assert_null(strstr(sluice_last_error(), "ulimit"));
}

static void other_errors_do_not_speak_of_limits(void **state)
{
    (void)state;
    assert_int_equal(sl_mem_lock_failed(-EFAULT, (1 << 20) + (100 << 10)), -EFAULT);
    assert_string_equal(sluice_last_error(), "1.1 MiB of memory cannot be registered: Bad address");
}

static void the_kernel_tells_the_limit_and_what_is_locked(void **state)
{
    struct rlimit before, low = {256 << 10, 0};
    struct sl_mem_lock lock, more;
    size_t len = (size_t)sysconf(_SC_PAGESIZE);
    void *page = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    (void)state;
    assert_true(page != MAP_FAILED);
    assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &before), 0);
    low.rlim_max = before.rlim_max;
    low.rlim_cur = before.rlim_max < low.rlim_cur ? before.rlim_max : low.rlim_cur;
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &low), 0);
    sl_mem_lock_read(&lock);
    int locked = mlock(page, len);
    sl_mem_lock_read(&more);
    munmap(page, len);
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &before), 0);
    assert_int_equal(lock.limit, low.rlim_cur);
    if (locked == 0) /* sanitizers make mlock do nothing */
        assert_true(more.locked == lock.locked + len || more.locked == lock.locked);
    assert_true(lock.pinned <= UINT64_C(1) << 50);
}

/* ---- memory of GPUs ---- */

static struct sl_mem_region *get_gpu(uintptr_t addr, size_t len)
{
    const struct sl_mem mem = {.addr = at(addr), .len = len, .kind = SL_MEM_CUDA, .fd = -1};
    struct sl_mem_region *region = NULL;

    assert_int_equal(sl_mem_cache_get_as(&t.cache, &mem, &region), 0);
    return region;
}

static void gpu_memory_is_shared_and_found_like_any_other_and_says_what_it_is(void **state)
{
    (void)state;
    start(0, 0);
    struct sl_mem_region *host = get(0x1000, 0x100), *gpu = get_gpu(0x2000, 0x100);
    const struct sl_mem exported = {
        .addr = at(0x2010), .len = 0x10, .kind = SL_MEM_DMABUF, .fd = 5};
    struct sl_mem_region *part = NULL;

    /* By whichever way it is named: it is the same memory. */
    assert_int_equal(sl_mem_cache_get_as(&t.cache, &exported, &part), 0);
    assert_int_equal(t.made, 2);
    assert_int_equal(t.cache.gpu_regions, 2);
    assert_ptr_equal(find(0x2050, 1), gpu);
    assert_true(sl_mem_is_host(find(0x1000, 1)->kind));
    assert_false(sl_mem_is_host(find(0x2000, 1)->kind));
    put(gpu);
    put(part);
    assert_int_equal(t.cache.gpu_regions, 0);
    assert_int_equal(t.ended_count, 1);
    put(host);
    sl_mem_cache_fini(&t.cache);
}

static void one_kind_of_memory_where_another_is_claimed_is_refused(void **state)
{
    const struct sl_mem gpu_at[] = {{at(0x1000), 0x100, SL_MEM_CUDA, -1, 0},
                                    {at(0x10ff), 1, SL_MEM_DMABUF, 5, 0},
                                    {at(0xf00), 0x101, SL_MEM_CUDA, -1, 0},
                                    {at(0x800), 0x2000, SL_MEM_CUDA, -1, 0}};
    struct sl_mem_region *region = NULL;

    (void)state;
    start(0, 0);
    struct sl_mem_region *host = get(0x1000, 0x100);

    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(sl_mem_cache_get_as(&t.cache, &gpu_at[i], &region), -EINVAL);
        assert_null(region);
        assert_non_null(strstr(sluice_last_error(), "are still registered as ordinary memory"));
    }
    put(get_gpu(0x1100, 0x100));
    put(get_gpu(0xf00, 0x100));
    put(host);
    /* Gone, or put away: the addresses may serve anything. */
    struct sl_mem_region *gpu = get_gpu(0x1000, 0x100);

    assert_int_equal(get_host_mem(&t.cache, at(0x1080), 8, &region), -EINVAL);
    assert_non_null(strstr(sluice_last_error(), "are still registered as GPU memory"));
    assert_int_equal(sl_mem_cache_invalidate(&t.cache, at(0x1000), 1), 1);
    assert_int_equal(t.cache.gpu_regions, 0);
    host = get(0x1080, 8);
    put(gpu);
    put(host);
    assert_int_equal(t.cache.gpu_regions, 0);
    assert_int_equal(sl_mem_cache_fini(&t.cache), 0);
}

static void gpu_memory_is_never_kept_idle(void **state)
{
    (void)state;
    start(0x10000, 4);
    put(get_gpu(0x1000, 0x100));
    assert_int_equal(t.ended_count, 1);
    assert_int_equal(t.cache.idle_count, 0);
    /* Nor is what is idle of ordinary memory taken for it. */
    put(get(0x1000, 0x100));
    assert_int_equal(t.cache.idle_count, 1);
    struct sl_mem_region *gpu = get_gpu(0x1010, 0x10);

    assert_int_equal(t.made, 3);
    put(gpu);
    assert_int_equal(sl_mem_cache_fini(&t.cache), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gets_of_one_range_share_a_registration_that_ends_with_the_last_put),
        cmocka_unit_test(find_knows_each_byte_of_a_region_and_none_beside_it),
        cmocka_unit_test(a_range_inside_a_region_costs_no_registration),
        cmocka_unit_test(a_range_that_grew_is_registered_beside_the_smaller_one),
        cmocka_unit_test(find_sees_past_regions_that_start_later_and_end_earlier),
        cmocka_unit_test(what_is_kept_idle_is_reused_but_never_found),
        cmocka_unit_test(the_idle_one_unused_for_longest_goes_first),
        cmocka_unit_test(idle_bytes_have_a_limit_and_the_too_large_are_not_kept),
        cmocka_unit_test(a_buffer_that_grew_drives_out_what_was_kept_inside_it),
        cmocka_unit_test(memory_that_goes_takes_its_idle_registrations_along),
        cmocka_unit_test(memory_that_goes_while_in_use_is_found_no_more_and_ends_with_its_last_put),
        cmocka_unit_test(a_registration_of_which_a_part_went_serves_the_rest_and_is_not_kept),
        cmocka_unit_test(a_refusal_lets_idle_registrations_go_and_asks_once_more),
        cmocka_unit_test(what_is_no_range_is_refused),
        cmocka_unit_test(fini_ends_everything_and_says_what_was_still_in_use),
        cmocka_unit_test(each_allocation_may_fail_and_nothing_changes),
        cmocka_unit_test(gpu_memory_is_shared_and_found_like_any_other_and_says_what_it_is),
        cmocka_unit_test(one_kind_of_memory_where_another_is_claimed_is_refused),
        cmocka_unit_test(gpu_memory_is_never_kept_idle),
        cmocka_unit_test(the_sentence_names_need_limit_use_and_remedies),
        cmocka_unit_test(without_a_limit_the_sentence_blames_none),
        cmocka_unit_test(other_errors_do_not_speak_of_limits),
        cmocka_unit_test(the_kernel_tells_the_limit_and_what_is_locked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
