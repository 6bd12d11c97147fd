/* SPDX-License-Identifier: Apache-2.0 */
/* Groups that wait inside their end: ranks are threads, as a group belongs to a thread. */
#include "crew.h"

#include "core/err.h"
#include "core/registry.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#define CALLS 5
#define N 8

/* More calls without a request than the communicator takes at once: the group makes room by waiting
 * for its own. */
static void more_than_fit(struct sluice_comm *comm, int rank)
{
    int32_t buf[CALLS][N];

    for (int c = 0; c < CALLS; c++)
        for (int i = 0; i < N; i++)
            buf[c][i] = rank + c;
    CREW_EXPECT(sluice_group_start() == 0);
    for (int c = 0; c < CALLS; c++)
        CREW_EXPECT(sluice_allreduce(comm, buf[c], buf[c], N, SLUICE_I32, SLUICE_SUM, NULL) == 0);
    CREW_EXPECT(sluice_group_end() == 0);
    for (int c = 0; c < CALLS; c++)
        for (int i = 0; i < N; i++)
            CREW_EXPECT(buf[c][i] == 1 + 2 * c);
}

/* The first communicator breaks, the second does well: the group failed. */
static void first_fails(struct sluice_comm *comm, int rank)
{
    int32_t a[N] = {0}, b[N] = {1, 1, 1, 1, 1, 1, 1, 1};
    struct sluice_comm *child;

    CREW_EXPECT(sluice_comm_split(comm, 0, rank, &child) == 0);
    CREW_EXPECT(sluice_group_start() == 0);
    CREW_EXPECT(sluice_allreduce(comm, a, a, (size_t)(N - rank), SLUICE_I32, SLUICE_SUM, NULL) ==
                0);
    CREW_EXPECT(sluice_allreduce(child, b, b, N, SLUICE_I32, SLUICE_SUM, NULL) == 0);
    CREW_EXPECT(sluice_group_end() == -EPROTO);
    CREW_EXPECT(sluice_comm_async_error(comm) == -EPROTO);
    for (int i = 0; i < N; i++)
        CREW_EXPECT(b[i] == 2);
    sluice_comm_destroy(child);
}

static void run(const char *settings, crew_body *body)
{
    const struct sl_transport_ops *shm = sl_transport_find("shm", 3);
    struct crew crew = {.ranks = 2, .settings = settings, .ops = {shm, shm}};

    RUN_CREW(&crew, body);
}

static void a_group_makes_room_for_its_own_calls(void **state)
{
    run("INFLIGHT_MAX=2", more_than_fit);
    run("INFLIGHT_MAX=1", more_than_fit);
}

static void the_first_error_of_a_group_is_its_result(void **state)
{
    run("", first_fails);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_group_makes_room_for_its_own_calls),
        cmocka_unit_test(the_first_error_of_a_group_is_its_result),
    };

    return cmocka_run_group_tests_name("groups", tests, NULL, NULL);
}
