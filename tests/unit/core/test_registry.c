/* SPDX-License-Identifier: Apache-2.0 */
/* What may be registered, in which order it is found, and by what. */
#include "core/err.h"
#include "core/registry.h"
#include "core/transport.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct sl_transport_ops made(const char *name, uint32_t number, int32_t place)
{
    return (struct sl_transport_ops){
        .abi = SL_TRANSPORT_ABI, .name = name, .number = number, .place = place};
}

static unsigned count(void)
{
    unsigned n = 0;

    while (sl_transports()[n] != NULL)
        n++;
    return n;
}

static void refused(const struct sl_transport_ops *ops, int code, const char *why)
{
    unsigned before = count();

    assert_int_equal(sl_transport_register(ops), code);
    if (strstr(sluice_last_error(), why) == NULL)
        fail_msg("%s", sluice_last_error());
    assert_int_equal(count(), before);
}

static void auto_is_in_the_order_of_places(void **state)
{
    const struct sl_transport_ops first = made("first", 16, -20), between = made("between", 17, 15),
                                  again = made("again", 18, 15), *ops[SL_TRANSPORTS_MAX];
    unsigned all;

    assert_int_equal(sl_transport_register(&between), 0);
    assert_int_equal(sl_transport_register(&first), 0);
    assert_int_equal(sl_transport_register(&again), 0);
    assert_int_equal(sl_transport_list("auto", ops, SL_TRANSPORTS_MAX, &all), 0);
    assert_int_equal(all, count());
    assert_string_equal(ops[0]->name, "first");
    for (unsigned i = 1; i < all; i++)
        assert_true(ops[i - 1]->place <= ops[i]->place);
    for (unsigned i = 1; i < all; i++) /* of one place: in the order of registration */
        if (strcmp(ops[i]->name, "again") == 0)
            assert_string_equal(ops[i - 1]->name, "between");
    assert_int_equal(sl_transport_list("AUTO", ops, all - 1, &all), -EINVAL);
}

static void a_transport_is_found_by_name_and_by_trait(void **state)
{
    struct sl_transport_ops side = made("side", 19, -10);

    assert_ptr_equal(sl_transport_find("nowhere", 7), NULL);
    assert_string_equal(sl_transport_find("ShM,tcp", 3)->name, "shm");
    assert_string_equal(sl_transport_with(SL_TRAIT_SIDEBAND)->name, "tcp");
    assert_null(sl_transport_with(SL_TRAIT_SIDEBAND | SL_TRAIT_LOCAL));
    side.traits = SL_TRAIT_SIDEBAND;
    assert_int_equal(sl_transport_register(&side), 0);
    assert_string_equal(sl_transport_with(SL_TRAIT_SIDEBAND)->name, "side");
}

static void a_list_of_names_keeps_its_order(void **state)
{
    const struct sl_transport_ops *ops[2];
    unsigned n;

    assert_int_equal(sl_transport_list("tcp,shm,", ops, 2, &n), 0);
    assert_int_equal(n, 2);
    assert_string_equal(ops[0]->name, "tcp");
    assert_string_equal(ops[1]->name, "shm");
    assert_int_equal(sl_transport_list("tcp,shm,tcp", ops, 2, &n), -EINVAL);
    assert_int_equal(sl_transport_list("", ops, 2, &n), -EINVAL);
    assert_int_equal(sl_transport_list("tcp,pigeon", ops, 2, &n), -ENODEV);
    assert_string_equal(sluice_last_error(),
                        "there is no transport 'pigeon' in this build; see sluice-bench --list");
}

static void what_cannot_be_told_apart_is_refused(void **state)
{
    struct sl_transport_ops ops = made("TCP", 20, 0);

    refused(&ops, -EEXIST, "there is a transport TCP already");
    ops = made("another", 3, 0);
    refused(&ops, -EEXIST, "has number 3, which is that of tcp");
    ops = made("", 21, 0);
    refused(&ops, -EINVAL, "without a name");
    ops = made("none", 0, 0);
    refused(&ops, -EINVAL, "has number 0, but must have one from 1 to 31");
    ops = made("beyond", SL_TRANSPORT_NUMBERS, 0);
    refused(&ops, -EINVAL, "has number 32, but must have one from 1 to 31");
}

static void a_transport_of_another_sluice_is_refused(void **state)
{
    struct sl_transport_ops ops = made("foreign", 22, 0);

    ops.abi = SL_TRANSPORT_ABI + 1;
    refused(&ops, -ENOTSUP, "transport foreign was built for version");
}

static void what_a_transport_leaves_out_has_a_stub(void **state)
{
    const struct sl_transport_ops ops = made("bare", 23, 200);
    const struct sl_transport_ops *found;

    assert_int_equal(sl_transport_register(&ops), 0);
    found = sl_transport_find("bare", 4);
    assert_non_null(found);
    assert_ptr_not_equal(found, &ops);
    assert_int_equal(found->fd(NULL), -ENOTSUP);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_list_of_names_keeps_its_order),
        cmocka_unit_test(a_transport_is_found_by_name_and_by_trait),
        cmocka_unit_test(auto_is_in_the_order_of_places),
        cmocka_unit_test(what_cannot_be_told_apart_is_refused),
        cmocka_unit_test(a_transport_of_another_sluice_is_refused),
        cmocka_unit_test(what_a_transport_leaves_out_has_a_stub),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
