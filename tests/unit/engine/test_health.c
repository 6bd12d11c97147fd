/* SPDX-License-Identifier: Apache-2.0 */
/* Whom a rank blames, and when: by what peers said lately, and only for what is needed of them. */
#include "world.h"

#include "core/clock.h"
#include "core/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

/* For so long this rank lives on: it moves its communicator, or is as if stopped. */
static void rest(struct sluice_comm *comm, uint64_t ms, bool moves)
{
    uint64_t end = sl_now(comm->worker.clock) + ms * SL_NS_PER_MS;

    while (sl_now(comm->worker.clock) < end && (!moves || sluice_comm_async_error(comm) == 0))
        comm->worker.idle(&comm->worker);
}

/* Rank 1 said that it waits for rank 2, and then says nothing more: what it said is too old to lead to rank 2. */
static void stale_chain(struct sluice_comm **comm, int rank)
{
    int32_t word = 0;
    struct sluice_req *req;

    if (rank == 1) {
        EXPECT(sluice_recv(*comm, &word, 1, SLUICE_I32, 2, &req) == 0);
        uint64_t end = sl_now((*comm)->worker.clock) + 100 * SL_NS_PER_MS;

        while (sl_now((*comm)->worker.clock) < end && sluice_test(req) == 0)
            (*comm)->worker.idle(&(*comm)->worker);
        rest(*comm, 1000, false);
        sluice_req_free(req);
    } else if (rank == 2) {
        rest(*comm, 1000, true);
    } else {
        EXPECT_ERROR(sluice_recv(*comm, &word, 1, SLUICE_I32, 1, NULL), -ETIMEDOUT, "rank 1 made no progress");
    }
}

static void what_a_silent_rank_said_long_ago_leads_to_nobody(void **state)
{
    RUN(3, "", stale_chain);
}

/* Rank 2 has left in good order, and nobody needs it: those who wait for each other are let be. */
static void leaver(struct sluice_comm **comm, int rank)
{
    int32_t word = rank;

    if (rank == 2) {
        sluice_comm_destroy(*comm);
        *comm = NULL;
    } else if (rank == 1) {
        rest(*comm, 100, true);
        EXPECT(sluice_send(*comm, &word, 1, SLUICE_I32, 0, NULL) == 0);
        EXPECT(sluice_recv(*comm, &word, 1, SLUICE_I32, 0, NULL) == 0);
    } else {
        EXPECT(sluice_recv(*comm, &word, 1, SLUICE_I32, 1, NULL) == 0);
        EXPECT(word == 1);
        rest(*comm, 100, true);
        EXPECT(sluice_send(*comm, &word, 1, SLUICE_I32, 1, NULL) == 0);
    }
}

static void a_rank_that_left_is_missed_only_by_who_needs_it(void **state)
{
    RUN(3, "", leaver);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_silent_rank_said_long_ago_leads_to_nobody),
        cmocka_unit_test(a_rank_that_left_is_missed_only_by_who_needs_it),
    };

    return cmocka_run_group_tests_name("health", tests, NULL, NULL);
}
