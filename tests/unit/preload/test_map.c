/* SPDX-License-Identifier: Apache-2.0 */
/* The table from an application's handles to what belongs to them, beside a plain array. */
#include "core/err.h"
#include "core/rng.h"
#include "tools/preload/engine.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static struct sl_preload_map map;

static void an_empty_map_knows_nothing(void **state)
{
    (void)state;
    assert_null(sl_preload_map_get(&map, 5));
    assert_null(sl_preload_map_remove(&map, 5));
    assert_null(sl_preload_map_pop(&map));
}

static void a_handle_used_again_is_another(void **state)
{
    int first, second;

    (void)state;
    assert_int_equal(sl_preload_map_add(&map, 7, &first), 0);
    assert_ptr_equal(sl_preload_map_get(&map, 7), &first); /* and the thread remembers it */
    assert_ptr_equal(sl_preload_map_remove(&map, 7), &first);
    assert_null(sl_preload_map_get(&map, 7));
    assert_int_equal(sl_preload_map_add(&map, 7, &second), 0);
    assert_ptr_equal(sl_preload_map_get(&map, 7), &second);
    assert_ptr_equal(sl_preload_map_pop(&map), &second);
    assert_null(sl_preload_map_pop(&map));
}

static void any_order_of_adding_and_removing_ends_as_in_an_array(void **state)
{
    enum { HANDLES = 200, STEPS = 50000 };
    static char values[HANDLES];
    bool there[HANDLES] = {false};
    struct sl_rng rng;

    (void)state;
    sl_rng_init(&rng, 42);
    for (int i = 0; i < STEPS; i++) {
        unsigned h = (unsigned)(sl_rng_u64(&rng) % HANDLES);
        uintptr_t handle = 1 + (uintptr_t)h * 1024; /* alike in their low bits, as pointers are */

        assert_ptr_equal(sl_preload_map_get(&map, handle), there[h] ? &values[h] : NULL);
        if (there[h])
            assert_ptr_equal(sl_preload_map_remove(&map, handle), &values[h]);
        else
            assert_int_equal(sl_preload_map_add(&map, handle, &values[h]), 0);
        there[h] = !there[h];
    }
    for (unsigned h = 0; h < HANDLES; h++)
        assert_ptr_equal(sl_preload_map_get(&map, 1 + (uintptr_t)h * 1024),
                         there[h] ? &values[h] : NULL);
    while (sl_preload_map_pop(&map) != NULL)
        ;
}

/* Each thread adds, finds and removes handles of its own, while the table grows under all of
 * them. */
static void *live(void *arg)
{
    uintptr_t base = (uintptr_t)arg << 32;

    for (int round = 0; round < 300; round++) {
        for (uintptr_t i = 1; i <= 20; i++)
            assert_int_equal(sl_preload_map_add(&map, base + i, (void *)(base + i)), 0);
        for (uintptr_t i = 1; i <= 20; i++)
            assert_int_equal((uintptr_t)sl_preload_map_get(&map, base + i), base + i);
        for (uintptr_t i = 1; i <= 20; i++)
            assert_int_equal((uintptr_t)sl_preload_map_remove(&map, base + i), base + i);
        assert_null(sl_preload_map_get(&map, base + 20));
    }
    return NULL;
}

static void threads_find_their_own(void **state)
{
    pthread_t ids[4];

    (void)state;
    for (uintptr_t i = 0; i < SL_ARRAY_LEN(ids); i++)
        assert_int_equal(pthread_create(&ids[i], NULL, live, (void *)(i + 1)), 0);
    for (size_t i = 0; i < SL_ARRAY_LEN(ids); i++)
        assert_int_equal(pthread_join(ids[i], NULL), 0);
    assert_null(sl_preload_map_pop(&map));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_map_knows_nothing),
        cmocka_unit_test(a_handle_used_again_is_another),
        cmocka_unit_test(any_order_of_adding_and_removing_ends_as_in_an_array),
        cmocka_unit_test(threads_find_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
