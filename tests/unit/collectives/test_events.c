/* SPDX-License-Identifier: Apache-2.0 */
/* What a communicator notes in its event ring. */
#include "world.h"

#include "core/event.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

/* The simulator's ranks have none: their clock is not that of the state page. */
static struct sl_event_ring rings[2];

static void aborted(struct sluice_comm **comm, int rank)
{
    struct sl_event_reader reader = {.ring = &rings[rank]};
    struct sl_event events[8] = {0};
    int32_t x = 0;

    EXPECT((*comm)->worker->events == NULL);
    (*comm)->worker->events = &rings[rank];
    /* The others may hear of the abort before they have seen the end of the barrier. */
    int err = sluice_barrier(*comm, NULL);

    EXPECT(err == 0 || (rank != 1 && err == -ECANCELED));
    if (rank == 1)
        sluice_comm_abort(*comm);
    /* The aborting rank may have sent its part of the first before it looks. */

    for (unsigned i = 0; i < 8 && err == 0; i++)
        err = sluice_allreduce(*comm, &x, &x, 1, SLUICE_I32, SLUICE_SUM, NULL);
    EXPECT(err == -ECANCELED);
    size_t count = sl_event_read(&reader, events, 8);

    EXPECT(atomic_load(&rings[rank].rows[SL_EVENT_COMM_FAILED].count) == 1 && count >= 1);
    for (size_t i = 0; i < count; i++) {
        char text[128];

        if (events[i].kind != SL_EVENT_COMM_FAILED)
            continue;
        sl_event_text(&events[i], text, sizeof(text));
        EXPECT((int64_t)events[i].a == -ECANCELED && events[i].time_ns != 0);
        EXPECT(strstr(text, " core comm_failed ") != NULL && strstr(text, "status -125") != NULL);
        return;
    }
    EXPECT(!"comm_failed is among the events");
}

static void a_communicator_that_fails_says_so_among_its_events(void **state)
{
    (void)state;
    RUN(2, "", aborted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_communicator_that_fails_says_so_among_its_events),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
