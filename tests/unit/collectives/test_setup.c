/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators that cannot be made: the sentence, and that nothing is left in the caller's
 * hands. */
#include "collectives/comm.h"
#include "collectives/connect.h"
#include "core/clock.h"
#include "core/err.h"
#include "core/registry.h"
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
    refused("SLUICE_KERNEL", "foo", "must be one of auto, avx512, avx2, neon, c");
}

/* Found out later than a word that is none, when a communicator is half made. */
static void a_kernel_of_another_machine_is_refused(void **state)
{
    struct sluice_comm *comm = UNSET;

#ifdef __x86_64__
    setenv("SLUICE_KERNEL", "neon", 1);
#else
    setenv("SLUICE_KERNEL", "avx2", 1);
#endif
    assert_int_equal(sluice_comm_from_env(&comm), -ENOTSUP);
    assert_null(comm);
}

static void an_unknown_algorithm_is_refused(void **state)
{
    refused("SLUICE_ALGO", "al_reduce:ring", "'al_reduce', which is no collective");
}

/* Also by a process that sends nothing over TCP. */
static void a_congestion_control_that_the_kernel_lacks_is_refused(void **state)
{
    refused("SLUICE_TCP_CONGESTION", "foo", "'foo', which the kernel does not take");
    assert_non_null(strstr(sluice_last_error(), "reno")); /* which every kernel has */
    unsetenv("SLUICE_TCP_CONGESTION");
}

/* One rank alone listens nowhere and has no use for RDMA: what is wrong is told all the same. */
static void ports_and_paths_that_cannot_be_read_are_refused_by_whoever_needs_none(void **state)
{
    refused("SLUICE_PORT_RANGE", "9-3", "SLUICE_PORT_RANGE is '9-3', but must be low-high");
    unsetenv("SLUICE_PORT_RANGE");
    if (sl_config_find("VERBS_PATHS", NULL) == NULL)
        return; /* this build has no RDMA */
    refused("SLUICE_VERBS_PATHS", "0>0,1-1", "SLUICE_VERBS_PATHS: '1-1' lacks a '>'");
    unsetenv("SLUICE_VERBS_PATHS");
}

/* The sentence speaks of the structure, which the caller wrote, and not of variables, which nobody
 * set. */
static void a_wrong_field_of_the_configuration_is_named(void **state)
{
    static const struct {
        int rank, size;
        int64_t timeout_ms;
        const char *words;
    } cases[] = {
        {-1, -1, 0, "timeout_ms of struct sluice_config is 0, but must be from 1 to 86400000"},
        {-1, -1, INT64_C(1000000000000), "timeout_ms of struct sluice_config is 1000000000000"},
        {-1, -1, -2, "timeout_ms of struct sluice_config is -2"},
        {-7, -1, -1, "rank of struct sluice_config is -7"},
        {0, -2, -1, "size of struct sluice_config is -2"},
        {0, 0, -1, "struct sluice_config has rank 0 and size 0"},
        {3, 3, -1, "struct sluice_config has rank 3 and size 3"},
        {0, 1 << 21, -1, "size of struct sluice_config is 2097152"},
        {0, -1, -1,
         "struct sluice_config has rank 0 and size -1, -1 standing for the environment"}};

    for (size_t i = 0; i < SL_ARRAY_LEN(cases); i++) {
        struct sluice_comm *comm = UNSET;
        struct sluice_config config;

        sluice_config_init(&config);
        config.rank = cases[i].rank;
        config.size = cases[i].size;
        config.timeout_ms = cases[i].timeout_ms;
        assert_int_equal(sluice_comm_create(&config, &comm), -EINVAL);
        if (strstr(sluice_last_error(), cases[i].words) == NULL ||
            strstr(sluice_last_error(), "SLUICE_"))
            fail_msg("%zu: %s", i, sluice_last_error());
        assert_null(comm);
    }
}

/* The structure of a version to come, whose field lies behind all of ours. */
struct later {
    struct sluice_config known;
    int64_t unknown;
};

static void init_later(struct later *later)
{
    memset(later, 0xa5, sizeof(*later));
    sluice_config_init_sized(&later->known, sizeof(*later), 20304);
    later->known.rank = 0;
    later->known.size = 1;
}

static void a_larger_structure_is_taken_while_what_is_unknown_is_unset(void **state)
{
    struct sluice_comm *comm = NULL;
    struct later later;

    init_later(&later);
    assert_int_equal(later.known.struct_size, sizeof(later));
    assert_int_equal(sluice_comm_create(&later.known, &comm), 0);
    assert_int_equal(sluice_comm_size(comm), 1);
    sluice_comm_destroy(comm);
}

static void a_field_of_a_later_version_is_refused_with_that_version(void **state)
{
    struct sluice_comm *comm = UNSET;
    struct later later;

    init_later(&later);
    later.unknown = INT64_C(1) << 56; /* one byte of it, the last */
    assert_int_equal(sluice_comm_create(&later.known, &comm), -EINVAL);
    assert_non_null(strstr(sluice_last_error(), "compiled for 2.3.4, and that version is needed"));
    assert_null(comm);
    later.known.version = 0;
    assert_int_equal(sluice_comm_create(&later.known, &comm), -EINVAL);
    assert_non_null(strstr(sluice_last_error(), "a newer version is needed"));
}

/* sluice_config_init() of programs that were compiled before it was inline. */
void first_init(struct sluice_config *config) __asm__("sluice_config_init");

static void the_first_structure_is_filled_no_further_and_taken(void **state)
{
    enum { FIRST = 64 };
    union {
        struct sluice_config config;
        unsigned char bytes[sizeof(struct sluice_config) + 64];
    } room;
    struct sluice_comm *comm = NULL;

    memset(&room, 0xa5, sizeof(room));
    first_init(&room.config);
    assert_int_equal(room.config.struct_size, FIRST);
    for (size_t i = FIRST; i < sizeof(room); i++)
        assert_int_equal(room.bytes[i], 0xa5);
    room.config.rank = 0;
    room.config.size = 1;
    assert_int_equal(sluice_comm_create(&room.config, &comm), 0);
    sluice_comm_destroy(comm);
}

static void a_size_that_no_version_has_is_refused(void **state)
{
    static const size_t sizes[] = {0, 8, 56, 65, 4104, SIZE_MAX};

    for (size_t i = 0; i < SL_ARRAY_LEN(sizes); i++) {
        struct sluice_comm *comm = UNSET;
        struct sluice_config config;

        sluice_config_init(&config);
        config.struct_size = sizes[i];
        assert_int_equal(sluice_comm_create(&config, &comm), -EINVAL);
        assert_non_null(strstr(sluice_last_error(), "was not set by sluice_config_init()"));
    }
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

/* Products of elements, bytes and ranks are computed everywhere without a look. */
static void counts_that_would_overflow_are_refused(void **state)
{
    struct sluice_comm *comm;
    int64_t a[2] = {0};

    assert_true(sl_count_fits(UINT64_C(1) << 40, 8, 1 << 16));
    assert_false(sl_count_fits(UINT64_C(1) << 47, 8, 8193));
    assert_true(sl_count_fits(INT64_MAX / 24, 8, 3));
    assert_false(sl_count_fits(INT64_MAX / 24 + 1, 8, 3));
    assert_true(sl_count_fits(UINT32_MAX, 8, 1 << 20));
    assert_int_equal(sluice_comm_from_env(&comm), 0);
    assert_int_equal(sluice_allreduce(comm, a, a, SIZE_MAX / 8, SLUICE_I64, SLUICE_SUM, NULL),
                     -EINVAL);
    assert_non_null(strstr(sluice_last_error(), "more than memory can hold"));
    sluice_comm_destroy(comm);
}

/* ---- a rank that says of its settings what would steer a terminal ---- */

/* Rank 1 says what rank 0 does, but for its settings. */
static int echo(struct sl_exchange *exchange, const void *in, size_t len, void *out)
{
    uint8_t *its = (uint8_t *)out + len;
    uint8_t *text;

    memcpy(out, in, len);
    memcpy(its, in, len);
    text = memmem(its, len, "transport ", strlen("transport "));
    if (text != NULL) /* asked for, now that hashes differ */
        memcpy(text, "\033[2Jtransp", 10);
    else
        its[24] ^= 1; /* of the hash */
    return 0;
}

static void settings_of_another_rank_cannot_steer_the_terminal(void **state)
{
    struct sl_exchange exchange = {.rank = 0, .size = 2, .allgather = echo};
    struct sl_config config;
    struct sl_comm_params params = {.config = &config, .clock = &sl_clock_monotonic, .seed = 1};
    struct sluice_comm *comm = NULL;

    sl_config_defaults(&config);
    assert_int_equal(sl_comm_create(&exchange, &params, &comm), -EPROTO);
    assert_non_null(strstr(sluice_last_error(), "settings differ: rank 1 has ?[2Jtransp"));
    assert_null(strchr(sluice_last_error(), '\033'));
}

/* ---- transports ---- */

/* Rank 1 says what rank 0 does. */
static int agree(struct sl_exchange *exchange, const void *in, size_t len, void *out)
{
    (void)exchange;
    memcpy(out, in, len);
    memcpy((uint8_t *)out + len, in, len);
    return 0;
}

static int create_over(const struct sl_comm_transport *transports, size_t count)
{
    struct sl_exchange exchange = {.rank = 0, .size = 2, .allgather = agree};
    struct sl_config config;
    struct sl_comm_params params = {.config = &config,
                                    .clock = &sl_clock_monotonic,
                                    .seed = 1,
                                    .transports = transports,
                                    .transport_count = count};
    struct sluice_comm *comm = NULL;

    sl_config_defaults(&config);
    return sl_comm_create(&exchange, &params, &comm);
}

static void more_transports_than_there_is_room_for_are_refused(void **state)
{
    struct sl_comm_transport transports[SL_IFACES_MAX + 1];

    for (size_t i = 0; i < SL_ARRAY_LEN(transports); i++)
        transports[i] = (struct sl_comm_transport){.ops = sl_transports()[0]};
    assert_int_equal(create_over(transports, SL_ARRAY_LEN(transports)), -EINVAL);
    assert_string_equal(sluice_last_error(),
                        "the call names 17 transports, and a communicator has 16 at most");
}

static void auto_is_all_transports_or_none(void **state)
{
    const struct sl_transport_ops *ops[SL_IFACES_MAX];
    unsigned all, count;

    assert_int_equal(sl_transport_list("auto", ops, SL_ARRAY_LEN(ops), &all), 0);
    assert_true(all > 1);
    assert_int_equal(sl_transport_list("auto", ops, all, &count), 0);
    assert_int_equal(sl_transport_list("auto", ops, all - 1, &count), -EINVAL);
    assert_non_null(
        strstr(sluice_last_error(), "transports: SLUICE_TRANSPORT must name those to use"));
}

static int never_opened(struct sl_worker *worker, const struct sl_device *dev,
                        const struct sl_handler *handler, struct sl_iface **out)
{
    (void)worker, (void)dev, (void)handler, (void)out;
    fail_msg("it was opened");
    return 0;
}

static void a_transport_of_another_sluice_is_not_opened(void **state)
{
    const struct sl_transport_ops other = {
        .abi = SL_TRANSPORT_ABI + 1, .name = "pigeon", .open = never_opened};
    struct sl_transport_ops complete;
    struct sl_comm_transport transport = {.ops = sl_transport_complete(&other, &complete)};
    size_t count;

    assert_int_equal(create_over(&transport, 1), -EHOSTUNREACH);
    if (strstr(sluice_last_error(), "; pigeon: this transport was built for another Sluice") ==
        NULL)
        fail_msg("%s", sluice_last_error());
    assert_int_equal(complete.probe(NULL, NULL, 0, &count), -ENOTSUP);
    assert_non_null(strstr(sluice_last_error(), "built for another Sluice"));
}

static char long_text[1901];

static int open_with_many_words(struct sl_worker *worker, const struct sl_device *dev,
                                const struct sl_handler *handler, struct sl_iface **out)
{
    (void)worker, (void)dev, (void)handler, (void)out;
    return sl_fail(-ENODEV, "%s", long_text);
}

static void why_two_transports_do_not_open_is_told_whole(void **state)
{
    struct sl_transport_ops ops[2], complete[2];
    struct sl_comm_transport transports[2];
    char want[SL_ERROR_TEXT_MAX];

    (void)state;
    memset(long_text, 'x', sizeof(long_text) - 1);
    long_text[0] = '<', long_text[sizeof(long_text) - 2] = '>';
    for (int i = 0; i < 2; i++) {
        ops[i] = *sl_transports()[0];
        ops[i].name = i == 0 ? "pigeon" : "smoke";
        ops[i].open = open_with_many_words;
        transports[i].ops = sl_transport_complete(&ops[i], &complete[i]);
        transports[i].dev = NULL;
    }
    snprintf(want, sizeof(want), "no transport connects ranks 0 and 1; pigeon: %s; smoke: %s",
             long_text, long_text);
    assert_int_equal(create_over(transports, 2), -EHOSTUNREACH);
    assert_string_equal(sluice_last_error(), want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(an_unknown_kernel_is_refused_with_the_choices, alone),
        cmocka_unit_test_setup(a_kernel_of_another_machine_is_refused, alone),
        cmocka_unit_test_setup(an_unknown_algorithm_is_refused, alone),
        cmocka_unit_test_setup(a_congestion_control_that_the_kernel_lacks_is_refused, alone),
        cmocka_unit_test_setup(
            ports_and_paths_that_cannot_be_read_are_refused_by_whoever_needs_none, alone),
        cmocka_unit_test_setup(a_wrong_field_of_the_configuration_is_named, alone),
        cmocka_unit_test_setup(a_larger_structure_is_taken_while_what_is_unknown_is_unset, alone),
        cmocka_unit_test_setup(a_field_of_a_later_version_is_refused_with_that_version, alone),
        cmocka_unit_test_setup(the_first_structure_is_filled_no_further_and_taken, alone),
        cmocka_unit_test_setup(a_size_that_no_version_has_is_refused, alone),
        cmocka_unit_test_setup(a_rank_beyond_the_size_leaves_no_communicator, alone),
        cmocka_unit_test_setup(what_fails_gives_null, alone),
        cmocka_unit_test_setup(a_call_that_fails_gives_no_request, alone),
        cmocka_unit_test_setup(counts_that_would_overflow_are_refused, alone),
        cmocka_unit_test_setup(settings_of_another_rank_cannot_steer_the_terminal, alone),
        cmocka_unit_test_setup(more_transports_than_there_is_room_for_are_refused, alone),
        cmocka_unit_test_setup(auto_is_all_transports_or_none, alone),
        cmocka_unit_test_setup(why_two_transports_do_not_open_is_told_whole, alone),
        cmocka_unit_test_setup(a_transport_of_another_sluice_is_not_opened, alone),
    };

    return cmocka_run_group_tests_name("setup", tests, NULL, NULL);
}
