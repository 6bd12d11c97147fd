/* SPDX-License-Identifier: Apache-2.0 */
#include "collectives/select.h"
#include "collectives/status.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

static const struct sl_costs good = {{250, 0.08}, {8000, 0.15}, 150, 0.03, 0.03, 0.05, 10, 1};

static void costs_must_be_positive_numbers(void **state)
{
    const double bad[] = {0, -1, NAN, -NAN, INFINITY, -INFINITY, 1e300};

    (void)state;
    assert_true(sl_costs_sane(&good));
    for (size_t field = 0; field < 9; field++)
        for (size_t i = 0; i < SL_ARRAY_LEN(bad); i++) {
            struct sl_costs costs = good;

            memcpy((uint8_t *)&costs + field * sizeof(double), &bad[i], sizeof(double));
            assert_false(sl_costs_sane(&costs));
        }
}

/* Rank 0's verdict, with its costs overwritten on the way to the others. */
static struct sl_costs told;

static int false_rank_0(struct sl_exchange *exchange, const void *in, size_t len, void *out)
{
    for (int i = 0; i < exchange->size; i++)
        memcpy((uint8_t *)out + (size_t)i * len, in, len);
    memcpy(out, &told, sizeof(told));
    return 0;
}

static void costs_of_a_false_rank_0_are_refused(void **state)
{
    struct sl_exchange exchange = {.rank = 1, .size = 2, .allgather = false_rank_0};
    static struct sl_plan *plans[4096];
    struct sluice_comm comm = {.rank = 1, .size = 2, .plans = plans};

    (void)state;
    sl_config_defaults(&comm.config);
    snprintf(comm.config.tune, sizeof(comm.config.tune), "off");
    sl_list_init(&comm.plan_lru);
    told = good;
    told.net.beta = NAN;
    assert_int_equal(sl_costs_find(&comm, &exchange), -EPROTO);
    assert_non_null(strstr(sluice_last_error(), "rank 0"));
}

static void a_page_cannot_steer_the_terminal(void **state)
{
    static uint8_t page[8192];
    const char hostile[] = "a\x1b[2J\x07\nb\x7f";
    uint32_t len = sizeof(hostile) - 1;
    char text[64] = {0}, path[64];
    FILE *out = fmemopen(text, sizeof(text), "w");
    int fd = memfd_create("page", MFD_CLOEXEC);

    (void)state;
    memcpy(page + 8, &len, sizeof(len));
    memcpy(page + 16, hostile, len);
    assert_int_equal(write(fd, page, sizeof(page)), sizeof(page));
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    assert_true(sl_status_print_page(path, out));
    fclose(out);
    close(fd);
    assert_string_equal(text, "a?[2J?\nb?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(costs_must_be_positive_numbers),
        cmocka_unit_test(costs_of_a_false_rank_0_are_refused),
        cmocka_unit_test(a_page_cannot_steer_the_terminal),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
