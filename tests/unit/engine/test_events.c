/* SPDX-License-Identifier: Apache-2.0 */
/* What a communicator notes in its event ring. */
#include "world.h"

#include "lib/api.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

static void aborted(struct sluice_comm **comm, int rank)
{
    struct sl_event events[8] = {0};
    struct sl_event_totals totals;
    int32_t x = 0;

    EXPECT(sl_comm_events(*comm, events, 8, &totals) == 0);
    EXPECT(totals.dropped == 0 && totals.counts[SL_EVENT_COMM_FAILED] == 0);
    EXPECT(sluice_barrier(*comm, NULL) == 0);
    if (rank == 1)
        sluice_comm_abort(*comm);
    /* The aborting rank may have sent its part of the first before it looks. */
    int err = 0;

    for (unsigned i = 0; i < 8 && err == 0; i++)
        err = sluice_allreduce(*comm, &x, &x, 1, SLUICE_I32, SLUICE_SUM, NULL);
    EXPECT(err == -ECANCELED);
    size_t count = sl_comm_events(*comm, events, 8, &totals);

    EXPECT(totals.counts[SL_EVENT_COMM_FAILED] == 1 && count >= 1);
    for (size_t i = 0; i < count; i++) {
        char text[128];

        if (events[i].kind != SL_EVENT_COMM_FAILED)
            continue;
        sl_event_text(&events[i], text, sizeof(text));
        EXPECT((int64_t)events[i].a == -ECANCELED && events[i].time_ns != 0);
        EXPECT(strstr(text, " core comm_failed ") != NULL && strstr(text, "status -125") != NULL);
        EXPECT(sl_comm_events(*comm, events, 8, NULL) == 0);
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
