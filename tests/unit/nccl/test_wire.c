/* SPDX-License-Identifier: Apache-2.0 */
/* Handles and announcements: there and back, and what damage does to them. */
#include "core/err.h"
#include "core/wireup_addr.h"
#include "tools/nccl/wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static struct sl_nccl_handle a_handle(void)
{
    struct sl_nccl_handle handle = {.token = UINT64_C(0x0123456789abcdef),
                                    .addr = {.host = 77, .port = 4711}};
    struct sockaddr_in place = {.sin_family = AF_INET};

    memset(handle.addr.id, 0x5a, sizeof(handle.addr.id));
    assert_int_equal(inet_pton(AF_INET, "192.0.2.7", &place.sin_addr), 1);
    assert_true(sl_wireup_place_add(&handle.addr, (struct sockaddr_storage *)&place));
    return handle;
}

static void a_handle_comes_back_as_it_was(void **state)
{
    struct sl_nccl_handle before = a_handle(), after;
    uint8_t bytes[SL_NCCL_HANDLE_OWN];

    (void)state;
    sl_nccl_handle_encode(&before, bytes);
    assert_int_equal(sl_nccl_handle_decode(bytes, &after), 0);
    assert_true(after.token == before.token);
    assert_memory_equal(&after.addr, &before.addr, sizeof(after.addr));
}

static void a_foreign_handle_is_told_from_one_of_another_version(void **state)
{
    struct sl_nccl_handle handle = a_handle();
    uint8_t bytes[SL_NCCL_HANDLE_OWN];

    (void)state;
    sl_nccl_handle_encode(&handle, bytes);
    bytes[4]++;
    assert_int_equal(sl_nccl_handle_decode(bytes, &handle), -EPROTO);
    assert_non_null(strstr(sluice_last_error(), "version 7"));
    bytes[0] ^= 1;
    assert_int_equal(sl_nccl_handle_decode(bytes, &handle), -EPROTO);
    assert_non_null(strstr(sluice_last_error(), "same network plugin"));
    memset(bytes, 0, sizeof(bytes));
    assert_int_equal(sl_nccl_handle_decode(bytes, &handle), -EPROTO);
}

static void a_handle_with_more_than_its_addresses_is_refused(void **state)
{
    struct sl_nccl_handle handle = a_handle();
    uint8_t bytes[SL_NCCL_HANDLE_OWN];

    (void)state;
    handle.addr.place_count = 9;
    sl_nccl_handle_encode(&handle, bytes);
    assert_int_equal(sl_nccl_handle_decode(bytes, &handle), -EPROTO);
    assert_non_null(strstr(sluice_last_error(), "no addresses that can be read"));
    handle.addr.place_count = 0;
    sl_nccl_handle_encode(&handle, bytes);
    assert_int_equal(sl_nccl_handle_decode(bytes, &handle), -EPROTO);
}

static void an_announcement_comes_back_as_it_was(void **state)
{
    (void)state;
    for (unsigned count = 1; count <= SL_NCCL_GROUP_MAX; count++) {
        struct sl_nccl_call before = {.number = 0xfffffffe, .count = count}, after;
        uint8_t bytes[SL_NCCL_CALL_BYTES];
        size_t len;

        for (unsigned i = 0; i < count; i++) {
            before.tags[i] = 0x80000000u + i;
            before.sizes[i] = UINT64_C(1) << (5 * i);
        }
        len = sl_nccl_call_encode(&before, bytes);
        assert_int_equal(sl_nccl_call_decode(bytes, len, &after), 0);
        assert_int_equal(after.number, before.number);
        assert_int_equal(after.count, count);
        assert_memory_equal(after.tags, before.tags, count * sizeof(before.tags[0]));
        assert_memory_equal(after.sizes, before.sizes, count * sizeof(before.sizes[0]));
        assert_int_equal(sl_nccl_call_decode(bytes, len - 1, &after), -EBADMSG);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_handle_comes_back_as_it_was),
        cmocka_unit_test(a_foreign_handle_is_told_from_one_of_another_version),
        cmocka_unit_test(a_handle_with_more_than_its_addresses_is_refused),
        cmocka_unit_test(an_announcement_comes_back_as_it_was),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
