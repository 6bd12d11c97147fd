/* SPDX-License-Identifier: Apache-2.0 */
/* The simulator's table, beside an array that holds the same. */
#include "core/err.h"
#include "core/rng.h"
#include "testing/sim/table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define KEYS 300

/* Keys that lie close together and far apart. */
static uint64_t key_of(uint32_t i)
{
    return i % 3 == 0 ? i + 1 : (uint64_t)i << 32 | (i % 7 + 1);
}

static void what_was_put_is_found_until_it_is_removed(void **state)
{
    static int values[KEYS];
    void *model[KEYS] = {NULL};
    struct sl_sim_table table = {.room = 0};
    struct sl_rng rng;
    size_t count = 0;

    (void)state;
    sl_rng_init(&rng, 1);
    for (unsigned round = 0; round < 20000; round++) {
        uint32_t i = (uint32_t)sl_rng_below(&rng, KEYS);

        if (sl_rng_chance(&rng, 2)) {
            count += model[i] == NULL;
            model[i] = &values[sl_rng_below(&rng, KEYS)];
            sl_sim_table_put(&table, key_of(i), model[i]);
        } else {
            count -= model[i] != NULL;
            model[i] = NULL;
            sl_sim_table_remove(&table, key_of(i));
        }
        assert_int_equal(table.count, count);
        for (uint32_t k = round % 17; k < KEYS; k += 17)
            assert_ptr_equal(sl_sim_table_get(&table, key_of(k)), model[k]);
    }
    assert_true(table.room <= 4 * KEYS);
    sl_sim_table_fini(&table, NULL);
}

static unsigned dropped;

static void drop(void *value)
{
    (void)value;
    dropped++;
}

static void each_value_is_dropped_once(void **state)
{
    struct sl_sim_table table = {.room = 0};
    int value;

    (void)state;
    for (uint32_t i = 0; i < KEYS; i++)
        sl_sim_table_put(&table, key_of(i), &value);
    sl_sim_table_remove(&table, key_of(5));
    sl_sim_table_fini(&table, drop);
    assert_int_equal(dropped, KEYS - 1);
    assert_null(sl_sim_table_get(&table, key_of(6)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_put_is_found_until_it_is_removed),
        cmocka_unit_test(each_value_is_dropped_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
