/* SPDX-License-Identifier: Apache-2.0 */
/* Where a communicator listens for ranks that are still to be connected. */
#include "tests/unit/collectives/crew.h"

#include "core/netif.h"

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
        struct sockaddr_storage at = {0};
        socklen_t len = sizeof(int), at_len = sizeof(at);
        int on = 0;

        if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &on, &len) == 0 && on != 0 &&
            getsockname(fd, (struct sockaddr *)&at, &at_len) == 0 && at.ss_family != AF_UNIX)
            count += !sl_sockaddr_loopback(&at);
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

static void a_job_of_one_host_listens_where_no_other_host_reaches(void **state)
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
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_of_one_host_listens_where_no_other_host_reaches),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
