/* SPDX-License-Identifier: Apache-2.0 */
/* Wire-up where memory is short at one end or both. */
#include "wire_case.h"

#include "core/err.h"

#include <stdlib.h>
#include <string.h>

static int allocs_left = -1; /* until one fails; -1: none does */

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);

static bool alloc_fails(void)
{
    return allocs_left >= 0 && allocs_left-- == 0;
}

void *__wrap_malloc(size_t size)
{
    return alloc_fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return alloc_fails() ? NULL : __real_calloc(count, size);
}

/* The first allocation fails, then the second, to the end: it connects later, or says -ENOMEM. */
static void without_memory_it_says_so_or_tries_again(void **state)
{
    unsigned connected = 0;

    (void)state;
    for (int n = 0; connected < 3; n++) {
        int err;

        assert_true(n < 500);
        for (unsigned r = 0; r < 2; r++)
            sides[r].ups = sides[r].failures = 0;
        allocs_left = n;
        err = sl_wireup_connect(sides[0].wireup, 1, false);
        assert_true(err == 0 || err == -ENOMEM);
        for (unsigned i = 0; i < 20000 && err == 0 && (!idle() || i < 100); i++)
            pump();
        connected = allocs_left >= 0 ? connected + 1 : 0; /* no allocation failed any more */
        allocs_left = -1;
        assert_true(idle());
        if (sides[0].eps[1] == NULL) {
            assert_int_equal(ep_count(), 0);
            assert_true(err == -ENOMEM || (sides[0].failures == 1 && sides[0].err == -ENOMEM) ||
                        (sides[1].failures == 1 && sides[1].err == -ENOMEM));
            continue;
        }
        assert_true(are_connected(&sides[0], &sides[1]));
        for (unsigned r = 0; r < 2; r++) {
            sides[r].eps[!r]->iface->ops->ep_destroy(sides[r].eps[!r]);
            sides[r].eps[!r] = NULL;
        }
    }
}

/* The acceptor's last word is that no transport is left; the dialer knows better why. */
static void a_dialer_that_lacks_memory_says_so(void **state)
{
    (void)state;
    for (uint32_t from = 0; from < 2; from++) {
        sides[from].faults[0] = sides[from].faults[1] = NO_MEMORY;
        connect_one(from, !from, false);
        PUMP_UNTIL(CONNECT_MS, sides[0].failures == 1 && sides[1].failures == 1 && idle());
        assert_int_equal(sides[from].err, -ENOMEM);
        assert_int_equal(sides[!from].err, -EHOSTUNREACH);
        sides[0].failures = sides[1].failures = 0;
        memset(sides[from].faults, 0, sizeof(sides[from].faults));
    }
}

/* Whoever lacks memory, for whatever: neither end is left with an endpoint, or a wait, alone. */
static void two_that_dial_each_other_and_lack_memory_agree(void **state)
{
    struct sl_rng rng;

    (void)state;
    sl_rng_init(&rng, 5);
    for (unsigned round = 0; round < 2000; round++) {
        unsigned first = (unsigned)sl_rng_u64(&rng) & 1, later = (unsigned)sl_rng_u64(&rng) % 500;
        int lacks = (int)sl_rng_below(&rng, 90);

        connect_one(first, !first, false);
        for (unsigned tick = 0; tick <= later || !idle(); tick++) {
            if (tick == later && sides[!first].eps[first] == NULL &&
                sides[0].failures + sides[1].failures == 0)
                connect_one(!first, first, false);
            if (tick == 0)
                allocs_left = lacks;
            for (uint64_t turns = sl_rng_u64(&rng) % 8; turns > 0; turns--)
                pump_one(&sides[sl_rng_u64(&rng) & 1]);
            now_ns += TICK_NS;
            assert_true(tick < 2000); /* far less than the deadline */
        }
        allocs_left = -1;
        if (sides[0].eps[1] != NULL)
            assert_true(are_connected(&sides[0], &sides[1]));
        else
            assert_true(sides[0].err == -ENOMEM || sides[1].err == -ENOMEM);
        assert_int_equal(ep_count(), sides[0].eps[1] != NULL ? 2 : 0);
        for (unsigned r = 0; r < 2; r++) {
            if (sides[r].eps[!r] != NULL)
                sides[r].eps[!r]->iface->ops->ep_destroy(sides[r].eps[!r]);
            sides[r].eps[!r] = NULL;
            sides[r].ups = sides[r].failures = 0;
            sides[r].err = 0;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(without_memory_it_says_so_or_tries_again),
        CASE(a_dialer_that_lacks_memory_says_so),
        CASE(two_that_dial_each_other_and_lack_memory_agree),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
