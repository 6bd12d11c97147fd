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
    /* The others may hear of the abort before they have seen the end of the barrier. */
    int err = sluice_barrier(*comm, NULL);

    EXPECT(err == 0 || (rank != 1 && err == -ECANCELED));
    if (rank == 1)
        sluice_comm_abort(*comm);
    /* The aborting rank may have sent its part of the first before it looks. */

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

static size_t one_path(const struct sl_ep *ep, struct sl_state_path *out, size_t cap)
{
    if (cap > 0)
        *out = (struct sl_state_path){.name = "made up", .peer = ep->peer, .sent_bytes = 42};
    return 1;
}

static void asked_for_paths(struct sluice_comm **comm, int rank)
{
    struct sl_state_path paths[4] = {0};
    static struct sl_transport_ops ops[6]; /* of two peers of each rank */
    unsigned peers = 2 * (unsigned)rank;

    EXPECT(sl_comm_paths(*comm, paths, 4) == 0); /* the simulated transport has none */
    for (int r = 0; r < 3; r++) {
        struct sl_ep *ep = sl_comm_peer(*comm, (uint32_t)r)->ep;

        if (ep == NULL || ep->iface->ops->ep_stats == one_path)
            continue;
        EXPECT(peers < 2 * (unsigned)rank + 2);
        ops[peers] = *ep->iface->ops;
        ops[peers].ep_stats = one_path;
        ep->iface->ops = &ops[peers++];
    }
    EXPECT(sl_comm_paths(*comm, NULL, 0) == 2);
    EXPECT(sl_comm_paths(*comm, paths, 1) == 2);
    EXPECT(strcmp(paths[0].name, "made up") == 0 && paths[1].name[0] == '\0');
    sluice_comm_abort(*comm);
    int err = 0;

    /* The first may have been sent before this rank looks. */
    for (unsigned i = 0; i < 8 && err == 0; i++)
        err = sluice_barrier(*comm, NULL);
    EXPECT(err == -ECANCELED);
    EXPECT(sl_comm_peer(*comm, (uint32_t)(rank + 1) % 3)->ep == NULL);
    EXPECT(sl_comm_paths(*comm, paths, 4) == 2);
    EXPECT(paths[0].peer + paths[1].peer == 3 - rank && paths[1].sent_bytes == 42);
}

static void what_paths_did_is_told_also_after_the_communicator_has_failed(void **state)
{
    (void)state;
    RUN(3, "", asked_for_paths);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_communicator_that_fails_says_so_among_its_events),
        cmocka_unit_test(what_paths_did_is_told_also_after_the_communicator_has_failed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
