/* SPDX-License-Identifier: Apache-2.0 */
/* An error of a rank, long as it may be, at all others over a real transport. usage: test_abort
 * shm|tcp */
#include "crew.h"

#include "core/err.h"
#include "core/registry.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define RANKS 8

static const char *transport;
static char text[SL_ERROR_TEXT_MAX];

/* Rank 6 breaks. The others wait for their neighbours in the tree. Over tcp rank 1 alone is
 * connected to rank 6, and they hear of it by way of ranks 1 and 0; shm connects all ranks of a
 * host. */
static void break_by_rank_6(struct sluice_comm *comm, int rank)
{
    int32_t word;

    if (rank == 6) {
        sl_comm_fail(comm, -EIO, 5, "%s", text);
        snprintf(comm->health.error.area, sizeof(comm->health.error.area), "verbs");
        sl_comm_progress(comm);
        return;
    }
    CREW_EXPECT(strcmp(transport, "tcp") != 0 || sl_comm_peer(comm, 6)->ep == NULL || rank == 1);
    CREW_EXPECT(sluice_recv(comm, &word, 1, SLUICE_I32, rank == 0 ? 1 : (rank - 1) / 4, NULL) ==
                -EIO);
    CREW_EXPECT(strncmp(sluice_error_text(), text, strlen(text)) == 0);
    CREW_EXPECT(strncmp(sluice_error_text() + strlen(text), "; here: ", 8) == 0);
    CREW_EXPECT(sluice_error_code() == -EIO);
    CREW_EXPECT(sluice_error_culprit() == 5);
    CREW_EXPECT(strcmp(sluice_error_area(), "verbs") == 0);
}

static void a_long_error_is_told_whole_to_all_ranks(void **state)
{
    struct crew crew = {.ranks = RANKS, .settings = ""};

    (void)state;
    for (int i = 0; i < RANKS; i++)
        crew.ops[i] = sl_transport_find(transport, strlen(transport));
    for (int i = 0; i < 2000; i++)
        text[i] = (char)('a' + i % 26);
    RUN_CREW(&crew, break_by_rank_6);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_long_error_is_told_whole_to_all_ranks),
    };

    transport = argc > 1 ? argv[1] : "tcp";
    return cmocka_run_group_tests_name("abort", tests, NULL, NULL);
}
