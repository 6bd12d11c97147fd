/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators that cannot be made: the sentence, and that nothing is left in the caller's hands. */
#include "collectives/comm.h"
#include "core/clock.h"
#include "core/err.h"
#include "lib/api.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* What a caller has who never set it. */
#define UNSET ((void *)(uintptr_t)0x5a5a5a5a5a5a5a50)

static int alone(void **state)
{
    static const char *const names[] = {"RANK", "SIZE", "ROOT", "KERNEL", "TIMEOUT_MS", "ALGO"};
    char name[64];

    for (size_t i = 0; i < SL_ARRAY_LEN(names); i++) {
        snprintf(name, sizeof(name), "SLUICE_%s", names[i]);
        unsetenv(name);
    }
    return 0;
}

static void refused(const char *name, const char *value, const char *words)
{
    struct sluice_comm *comm = UNSET;

    setenv(name, value, 1);
    assert_int_equal(sluice_comm_from_env(&comm), -EINVAL);
    assert_non_null(strstr(sluice_last_error(), words));
    assert_null(comm);
    sluice_comm_destroy(comm);
}

static void an_unknown_kernel_is_refused_with_the_choices(void **state)
{
    refused("SLUICE_KERNEL", "foo", "there are no kernels named 'foo'");
}

static void a_rank_beyond_the_size_leaves_no_communicator(void **state)
{
    setenv("SLUICE_SIZE", "2", 1);
    refused("SLUICE_RANK", "5", "SLUICE_RANK is 5");
}

static void what_fails_gives_null(void **state)
{
    struct sluice_unique_id id = {{0}};
    struct sluice_config config;
    struct sluice_comm *comm = UNSET;
    struct sluice_buffer *buffer = UNSET;
    struct sluice_req *req = UNSET;
    void *memory = UNSET;

    sluice_config_init(&config);
    config.transport = "pigeon";
    assert_int_equal(sluice_comm_create(&config, &comm), -ENODEV);
    assert_null(comm);
    comm = UNSET;
    assert_int_equal(sluice_comm_create_id(&id, 0, 1, NULL, &comm), -EINVAL);
    assert_null(comm);
    comm = UNSET;
    assert_int_equal(sluice_comm_create_id(NULL, 0, 1, NULL, &comm), -EINVAL);
    assert_null(comm);
    comm = UNSET;
    assert_int_equal(sluice_comm_split(NULL, 0, 0, &comm), -EINVAL);
    assert_null(comm);
    assert_int_equal(sluice_alloc(NULL, 8, &memory), -EINVAL);
    assert_null(memory);
    assert_int_equal(sluice_register(NULL, &req, sizeof(req), &buffer), -EINVAL);
    assert_null(buffer);
    assert_int_equal(sluice_barrier(NULL, &req), -EINVAL);
    assert_null(req);
}

/* Each of them by an argument that is wrong. */
static void a_call_that_fails_gives_no_request(void **state)
{
    struct sluice_comm *comm;
    struct sluice_req *req;
    int32_t a[2] = {0};
    size_t one[1] = {1}, none[1] = {0};

    assert_int_equal(sluice_comm_from_env(&comm), 0);
#define REFUSED(call)                                                                              \
    do {                                                                                           \
        req = UNSET;                                                                               \
        assert_int_equal(call, -EINVAL);                                                           \
        assert_null(req);                                                                          \
    } while (0)
    REFUSED(sluice_allreduce(comm, NULL, a, 1, SLUICE_I32, SLUICE_SUM, &req));
    REFUSED(sluice_allreduce(comm, a, a, 1, (enum sluice_dtype)99, SLUICE_SUM, &req));
    REFUSED(sluice_allreduce(comm, a, (char *)a + 1, 1, SLUICE_I32, SLUICE_SUM, &req));
    REFUSED(sluice_reduce_scatter(comm, a, a + 1, 1, (enum sluice_dtype)99, SLUICE_SUM, &req));
    REFUSED(sluice_all_gather(comm, a, a + 1, 1, (enum sluice_dtype)99, &req));
    REFUSED(sluice_broadcast(comm, a, a, 1, SLUICE_I32, 1, &req));
    REFUSED(sluice_reduce(comm, a, a, 1, SLUICE_I32, SLUICE_SUM, -1, &req));
    REFUSED(sluice_gather(comm, a, a, 1, SLUICE_I32, 1, &req));
    REFUSED(sluice_scatter(comm, a, a, 1, SLUICE_I32, 1, &req));
    REFUSED(sluice_all_to_all(comm, a, a, 1, (enum sluice_dtype)99, &req));
    REFUSED(sluice_all_to_all_v(comm, a, NULL, none, a, one, none, SLUICE_I32, &req));
    REFUSED(sluice_all_to_all_v(comm, a, one, none, a + 1, none, none, SLUICE_I32, &req));
    REFUSED(sluice_all_to_all_v(comm, a, one, none, a, one, none, SLUICE_I32, &req));
    REFUSED(sluice_send(comm, a, 1, SLUICE_I32, 0, &req));
    REFUSED(sluice_recv(comm, a, 1, SLUICE_I32, 1, &req));
    sluice_comm_destroy(comm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(an_unknown_kernel_is_refused_with_the_choices, alone),
        cmocka_unit_test_setup(a_rank_beyond_the_size_leaves_no_communicator, alone),
        cmocka_unit_test_setup(what_fails_gives_null, alone),
        cmocka_unit_test_setup(a_call_that_fails_gives_no_request, alone),
    };

    return cmocka_run_group_tests_name("setup", tests, NULL, NULL);
}
