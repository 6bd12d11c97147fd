/* SPDX-License-Identifier: Apache-2.0 */
/* A case of wire-up: what it begins and ends with. */
#ifndef SL_TESTS_UNIT_CORE_WIRE_CASE_H
#define SL_TESTS_UNIT_CORE_WIRE_CASE_H

#include "wire_two.h"

#include "core/log.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define FDS_MAX 512
#define SECOND_MS 1000
#define CONNECT_MS 1000

static unsigned fds_before;

static inline void no_log(void *arg, enum sl_log_level level, const char *area, const char *line)
{
    (void)arg, (void)level, (void)area, (void)line;
}

static inline unsigned count_fds(void)
{
    unsigned count = 0;

    for (int fd = 0; fd < FDS_MAX; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static inline int start(void **state)
{
    bool tcp = *state != NULL;

    sl_log_set_sink(no_log, NULL);
    fds_before = count_fds();
    sides_open(tcp);
    return 0;
}

static inline int stop(void **state)
{
    (void)state;
    sides_close();
    sl_log_set_sink(NULL, NULL);
    return count_fds() == fds_before ? 0 : -1;
}

static inline void connect_one(uint32_t from, uint32_t to, bool patient)
{
    assert_int_equal(sl_wireup_connect(sides[from].wireup, to, patient), 0);
}

static inline bool idle(void)
{
    unsigned busy = 0;

    for (uint32_t r = 0; r < RANKS; r++)
        busy += sides[r].wireup != NULL ? sl_wireup_busy(sides[r].wireup) : 0;
    return busy == 0;
}

static inline void check_connects(uint32_t from, uint32_t to)
{
    connect_one(from, to, false);
    PUMP_UNTIL(CONNECT_MS, are_connected(&sides[from], &sides[to]) && idle());
    assert_int_equal(ep_count(), 2);
    assert_int_equal(transport_of(&sides[0], 1), 0);
    assert_int_equal(sides[0].failures + sides[1].failures, 0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, start, stop)

#endif
