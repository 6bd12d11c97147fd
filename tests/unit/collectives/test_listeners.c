/* SPDX-License-Identifier: Apache-2.0 */
/* A communicator that is connected listens nowhere: strangers would only use up its descriptors. */
#include "tests/unit/collectives/crew.h"

#include "core/err.h"
#include "core/registry.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <cmocka.h>

static unsigned listening(void)
{
    unsigned count = 0;

    for (int fd = 0; fd < 1024; fd++) {
        socklen_t len = sizeof(int);
        int on = 0;

        if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &on, &len) == 0)
            count += on != 0;
    }
    return count;
}

/* Who has the sum knows that all have been connected, and sum again for those that look. */
static void look_around(struct sluice_comm *comm, int rank)
{
    int32_t in = rank, out = 0;

    CREW_EXPECT(sluice_allreduce(comm, &in, &out, 1, SLUICE_I32, SLUICE_SUM, NULL) == 0);
    CREW_EXPECT(listening() == 0);
    CREW_EXPECT(sluice_allreduce(comm, &in, &out, 1, SLUICE_I32, SLUICE_SUM, NULL) == 0);
    CREW_EXPECT(out == 3);
}

static void who_is_connected_listens_no_more(void **state)
{
    const char *name = getenv("SLUICE_TRANSPORT");
    const struct sl_transport_ops *ops = sl_transport_find(name, strlen(name));
    struct crew crew = {.ranks = 3, .settings = "", .ops = {ops, ops, ops}};

    (void)state;
    assert_non_null(ops);
    assert_int_equal(listening(), 0);
    RUN_CREW(&crew, look_around);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(who_is_connected_listens_no_more)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
