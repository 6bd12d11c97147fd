/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators of one thread move together. */
#include "launch/launch.h"

#include <sluice/sluice.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#define RANKS 3
#define COUNT 5000

static float in[COUNT], first[COUNT], second[COUNT];

/* Rank 0 starts on a and waits on b; the others wait on a before they come to b. */
static int cross(struct sluice_comm *a, struct sluice_comm *b)
{
    struct sluice_req *req = NULL;
    int err;

    if (sluice_comm_rank(a) == 0) {
        err = sluice_allreduce(a, in, first, COUNT, SLUICE_F32, SLUICE_SUM, &req);
        err = err != 0 ? err : sluice_allreduce(b, in, second, COUNT, SLUICE_F32, SLUICE_SUM, NULL);
        err = err != 0 ? err : sluice_wait(req);
        sluice_req_free(req);
        return err;
    }
    err = sluice_allreduce(a, in, first, COUNT, SLUICE_F32, SLUICE_SUM, NULL);
    return err != 0 ? err : sluice_allreduce(b, in, second, COUNT, SLUICE_F32, SLUICE_SUM, NULL);
}

/* 0 when all went well on this rank; ends the process. */
static void be_a_rank(void)
{
    struct sluice_comm *a, *b;
    int bad = sluice_comm_from_env(&a);

    if (bad != 0)
        _exit(1);
    bad = sluice_comm_split(a, 0, sluice_comm_rank(a), &b);
    if (bad != 0)
        _exit(2);
    for (size_t i = 0; i < COUNT; i++)
        in[i] = (float)i;
    for (int round = 0; round < 5 && bad == 0; round++)
        bad = cross(a, b);
    for (size_t i = 0; i < COUNT; i++)
        bad |= first[i] != RANKS * (float)i || second[i] != RANKS * (float)i;
    sluice_comm_destroy(b);
    sluice_comm_destroy(a);
    _exit(bad != 0 ? 3 : 0);
}

static void run_over(const char *transport)
{
    int status = -1;

    setenv("SLUICE_TRANSPORT", transport, 1);
    setenv("SLUICE_ALGO", "ring", 1); /* several steps, so that rank 0 has work after the start */
    setenv("SLUICE_TIMEOUT_MS", "5000", 1);
    int child = sl_local_start(RANKS, 2000, &status);

    if (child == 1)
        be_a_rank();
    assert_int_equal(child, 0);
    assert_int_equal(status, 0);
}

static void waiting_in_one_communicator_moves_the_other_over_shm(void **state)
{
    (void)state;
    run_over("shm");
}

static void waiting_in_one_communicator_moves_the_other_over_tcp(void **state)
{
    (void)state;
    run_over("tcp");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waiting_in_one_communicator_moves_the_other_over_shm),
        cmocka_unit_test(waiting_in_one_communicator_moves_the_other_over_tcp),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
