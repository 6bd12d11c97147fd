/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks' links go and return while operations run: all ranks change their schedules at the same
 * operation, however far ahead one of them is, and every sum is right.
 */
#include "collectives/comm.h"
#include "collectives/plan.h"
#include "collectives/speeds.h"
#include "testing/sim/sim.h"
#include "tests/sim/seeds.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define RANKS 4
#define COUNT SL_SPEEDS_LEAST_BYTES /* of u8 */
#define CALLS 420
#define AHEAD 24 /* operations that are in flight together */
#define LIMIT_NS (100 * SL_NS_PER_S)
#define GOES 70     /* the call before which a rank's links go … */
#define RETURNS 230 /* … and return */

struct story {
    struct sl_sim *sim;
    struct sl_sim_meeting *meeting;
    uint32_t ahead;
    uint32_t calls;
    bool refused; /* one that would have had to wait */
    struct teller {
        struct story *story;
        uint32_t rank;
        int err;
        char text[200];
        char weighted[CALLS]; /* by call */
    } rank[RANKS];
};

static int make_comm(struct teller *r, struct sluice_comm **out)
{
    static struct sl_transport_ops complete;
    const struct sl_comm_transport transport = {.ops =
                                                    sl_transport_complete(&sl_sim_ops, &complete)};
    struct story *s = r->story;
    struct sl_config config;

    sl_config_defaults(&config);
    config.timeout_ms = 2000;
    config.connect_timeout_ms = 2000;
    config.status_signal = SL_OFF;
    config.tune = SL_TUNE_OFF;
    config.inflight_max = 2 * SL_SPEEDS_PERIOD;
    snprintf(config.host_id, sizeof(config.host_id), "host%u", r->rank);
    const struct sl_comm_params params = {
        .config = &config,
        .clock = sl_sim_clock(s->sim),
        .seed = r->rank,
        .idle = sl_sim_idle,
        .idle_arg = sl_sim_idle_arg(s->sim, r->rank),
        .wire = &sl_sim_wire_ops,
        .transports = &transport,
        .transport_count = 1,
    };

    return sl_comm_create(sl_sim_meeting_exchange(s->meeting, r->rank, r->rank), &params, out);
}

static uint8_t input(uint32_t rank, uint32_t call)
{
    return (uint8_t)(1 + rank * 3 + call);
}

static uint8_t sum(uint32_t call)
{
    uint8_t sum = 0;

    for (uint32_t r = 0; r < RANKS; r++)
        sum += input(r, call);
    return sum;
}

static int begin(struct teller *r, struct sluice_comm *comm, uint32_t call, uint8_t *buf,
                 struct sluice_req **req)
{
    int err;

    if (r->rank == 1 && call == GOES)
        sl_sim_deliver(r->story->sim, 1, 500);
    if (r->rank == 1 && call == RETURNS)
        sl_sim_deliver(r->story->sim, 1, 1000);
    memset(buf, input(r->rank, call), COUNT);
    err = sluice_allreduce(comm, buf, buf, COUNT, SLUICE_U8, SLUICE_SUM, req);
    if (err == 0)
        r->weighted[call] = strcmp((*req)->plan->schedule.algo, "weighted") == 0;
    return err;
}

static int end(struct sluice_req *req, uint32_t call, const uint8_t *buf)
{
    int err = sluice_wait(req);

    if (err == 0 && (buf[0] != sum(call) || memcmp(buf, buf + 1, COUNT - 1) != 0))
        err = sl_fail(-EBADMSG, "call %u has a wrong sum", call);
    sluice_req_free(req);
    return err;
}

static int all_calls(struct teller *r, struct sluice_comm *comm, uint8_t *bufs)
{
    uint32_t ahead = r->story->ahead, calls = r->story->calls;
    struct sluice_req *reqs[AHEAD];
    int err = 0;

    for (uint32_t call = 0; call < calls + ahead && err == 0; call++) {
        uint8_t *buf = bufs + (size_t)(call % ahead) * COUNT;

        if (call >= ahead)
            err = end(reqs[call % ahead], call - ahead, buf);
        if (call < calls && err == 0)
            err = begin(r, comm, call, buf, &reqs[call % ahead]);
    }
    return err;
}

/* A large operation, many small ones, and a large one again: rank 2 joins when rank 0 knows that
 * this one cannot begin yet. */
static int run_far_ahead(struct teller *r, struct sluice_comm *comm, uint8_t *buf)
{
    static uint8_t small[RANKS][SL_SPEEDS_PERIOD];
    struct sluice_req *reqs[SL_SPEEDS_PERIOD + 1], *last;
    int err;

    while (r->rank == 2 && !r->story->refused)
        comm->worker->idle(comm->worker);
    err = begin(r, comm, 0, buf, &reqs[0]);
    for (uint32_t i = 0; i < SL_SPEEDS_PERIOD && err == 0; i++)
        err = sluice_allreduce(comm, &small[r->rank][i], &small[r->rank][i], 1, SLUICE_U8,
                               SLUICE_SUM, &reqs[1 + i]);
    if (err != 0)
        return err;
    uint8_t *other = malloc(COUNT);

    sl_assert(other != NULL);
    err = begin(r, comm, 1, other, &last);
    r->story->refused |= r->rank == 0 && err == -EAGAIN;
    int first = end(reqs[0], 0, buf);

    for (uint32_t i = 0; i < SL_SPEEDS_PERIOD; i++) {
        first = first ?: sluice_wait(reqs[1 + i]);
        sluice_req_free(reqs[1 + i]);
    }
    if (err == -EAGAIN)
        err = begin(r, comm, 1, other, &last);
    err = err ?: end(last, 1, other);
    free(other);
    return first ?: err;
}

static void program(void *arg)
{
    struct teller *r = arg;
    struct sluice_comm *comm = NULL;
    uint8_t *bufs = malloc((size_t)r->story->ahead * COUNT);

    sl_assert(bufs != NULL);
    r->err = make_comm(r, &comm);
    if (r->err == 0)
        r->err = r->story->calls != 0 ? all_calls(r, comm, bufs) : run_far_ahead(r, comm, bufs);
    if (r->err != 0)
        snprintf(r->text, sizeof(r->text), "%s", sluice_last_error());
    if (comm != NULL)
        sluice_comm_destroy(comm);
    free(bufs);
}

static void tell(struct story *s, uint32_t ahead, uint32_t calls, uint64_t seed)
{
    static const uint32_t host[RANKS] = {0, 1, 2, 3};
    struct sl_sim_params params;

    seeds_quiet();
    *s = (struct story){.ahead = ahead, .calls = calls};
    sl_sim_params_init(&params, RANKS, seed);
    params.host = host;
    params.jitter_ns = 20000;
    assert_int_equal(sl_sim_create(&params, &s->sim), 0);
    assert_int_equal(sl_sim_meeting_create(s->sim, RANKS, 2 * SL_NS_PER_S, &s->meeting), 0);
    for (uint32_t i = 0; i < RANKS; i++) {
        s->rank[i].story = s;
        s->rank[i].rank = i;
        assert_int_equal(sl_sim_spawn(s->sim, i, program, &s->rank[i]), 0);
    }
    assert_int_equal(sl_sim_run(s->sim, LIMIT_NS), 0);
    for (uint32_t i = 0; i < RANKS; i++)
        if (s->rank[i].err != 0)
            print_error("rank %u: %s\n", i, s->rank[i].text);
    for (uint32_t i = 0; i < RANKS; i++)
        assert_int_equal(s->rank[i].err, 0);
    sl_sim_check_empty(s->sim);
    assert_null(sl_sim_violation(s->sim));
    sl_sim_meeting_destroy(s->meeting);
    sl_sim_destroy(s->sim);
}

/* The first call from `from` on that is (not) weighted. */
static uint32_t first(const struct story *s, uint32_t from, bool weighted)
{
    uint32_t call = from;

    while (call < s->calls && s->rank[0].weighted[call] != weighted)
        call++;
    return call;
}

static void all_switch_at_the_same_call(const struct story *s)
{
    uint32_t slow = first(s, 0, true), whole = first(s, slow, false);

    for (uint32_t i = 1; i < RANKS; i++)
        assert_memory_equal(s->rank[i].weighted, s->rank[0].weighted, s->calls);
    printf("# links go before call %d, schedules change at %u; they return at %d, and at %u\n",
           GOES, slow, RETURNS, whole);
    assert_in_range(slow, GOES, GOES + 2 * SL_SPEEDS_PERIOD + 2);
    assert_in_range(whole, RETURNS, RETURNS + 2 * SL_SPEEDS_PERIOD + 2);
    assert_int_equal(first(s, whole, true), s->calls);
}

static void schedules_follow_links_that_go_and_return(void **state)
{
    static struct story s;

    (void)state;
    tell(&s, 1, CALLS, 1);
    all_switch_at_the_same_call(&s);
}

static void schedules_follow_though_many_operations_are_in_flight(void **state)
{
    static struct story s;

    (void)state;
    tell(&s, AHEAD, CALLS, 2);
    all_switch_at_the_same_call(&s);
}

/* The first large call begins an exchange, which may be under way when all leave. */
static void a_communicator_may_end_while_speeds_are_exchanged(void **state)
{
    static struct story s;

    (void)state;
    for (uint64_t seed = 1; seed <= 12; seed++)
        tell(&s, 1 + (uint32_t)(seed % 3), 1 + (uint32_t)(seed % 4), seed);
}

static void a_call_that_would_wait_for_what_its_user_does_next_is_refused(void **state)
{
    static struct story s;

    (void)state;
    tell(&s, 1, 0, 3);
    assert_true(s.refused);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schedules_follow_links_that_go_and_return),
        cmocka_unit_test(schedules_follow_though_many_operations_are_in_flight),
        cmocka_unit_test(a_communicator_may_end_while_speeds_are_exchanged),
        cmocka_unit_test(a_call_that_would_wait_for_what_its_user_does_next_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
