/* SPDX-License-Identifier: Apache-2.0 */
/* SLUICE_VERBS_PATHS as it is set and planned, and the LIDs of its paths. */
#include "core/config.h"
#include "core/err.h"
#include "verbs/config.h"
#include "verbs/lid.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define CAP SL_MP_PATHS_MAX

/* Each entry as long as one can be, for all the paths that a connection can have. */
static void the_longest_list_has_room_and_a_longer_one_is_refused(void **state)
{
    struct sl_mp_path_spec specs[CAP];
    struct sl_config config;
    size_t count;
    char list[SL_PATH_LIST_BYTES + 1] = "";

    (void)state;
    for (unsigned i = 0; i < CAP; i++)
        assert_true(
            sl_text_add(list, sizeof(list), "%s15>15/0x%05x@4", i == 0 ? "" : ",", 0xfff00 + i));
    sl_config_defaults(&config);
    assert_int_equal(sl_config_set(&config, "VERBS_PATHS", list), 0);
    struct sl_mp_path_wishes wishes = sl_verbs_path_wishes(&config);
    struct sl_mp_plan_ends ends = {.rails = {16, 16, {{0}}}};

    assert_int_equal(sl_mp_plan(&wishes, &ends, specs, CAP, &count), 0);
    assert_int_equal(count, CAP);
    for (unsigned i = 0; i < CAP; i++)
        assert_int_equal(specs[i].flow_label, 0xfff00 + i);
    while (sl_text_add(list, sizeof(list), ",0>0"))
        ;
    assert_int_equal(sl_config_set(&config, "VERBS_PATHS", list), -EINVAL);
    assert_string_equal(sluice_last_error(), "SLUICE_VERBS_PATHS is longer than 2047 bytes");
}

/* What this refuses is refused where it is set, with the variable's name. */
static void an_entry_that_cannot_be_read_is_refused_where_it_is_set(void **state)
{
    struct sl_config config;

    (void)state;
    sl_config_defaults(&config);
    assert_int_equal(sl_config_set(&config, "VERBS_PATHS", "0>0,x>1"), -EINVAL);
    assert_string_equal(sluice_last_error(), "SLUICE_VERBS_PATHS: 'x>1' does not start with the "
                                             "number of a local rail (0 to 15)");
}

/* Three paths of one pair of rails and one of another, over two LIDs. */
static void a_path_takes_the_lid_that_the_fewest_have_and_not_its_own_again(void **state)
{
    struct sl_mp_path_spec some[4] = {{.flow_label = 1, .lid_bits = 0},
                                      {.flow_label = 2, .lid_bits = 1},
                                      {.flow_label = SL_PATH_LABEL_OPEN},
                                      {.remote_rail = 1, .flow_label = 4, .lid_bits = 1}};
    unsigned seen = 0;

    (void)state;
    for (uint64_t seed = 0; seed < 64; seed++) {
        assert_int_equal(sl_verbs_lid_bits(0, seed, some, 4, 2), 0);
        /* The first one has had 0, though as many have 1. */
        assert_int_equal(sl_verbs_lid_bits(1, seed, some, 3, 0), 1);
        seen |= 1u << sl_verbs_lid_bits(1, seed, some, 4, 2);
        some[2] = (struct sl_mp_path_spec){.flow_label = 3, .lid_bits = 1};
        assert_int_equal(sl_verbs_lid_bits(1, seed, some, 4, 1), 0);
        assert_in_range(sl_verbs_lid_bits(2, seed, some, 4, 0), 2, 3);
        some[2] = (struct sl_mp_path_spec){.flow_label = SL_PATH_LABEL_OPEN};
    }
    assert_int_equal(seen, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_longest_list_has_room_and_a_longer_one_is_refused),
        cmocka_unit_test(an_entry_that_cannot_be_read_is_refused_where_it_is_set),
        cmocka_unit_test(a_path_takes_the_lid_that_the_fewest_have_and_not_its_own_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
