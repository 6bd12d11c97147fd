/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Communicators that are made over an exchange join the family that all their ranks are members of,
 * and open, connect, register and map nothing; where one rank cannot, all make a family of their
 * own, which works as well. Over the transport that is named.
 */
#include "tests/unit/collectives/counted.h"

#include "collectives/family.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#define RANKS 4
#define MADE 30

static const int same[RANKS] = {0, 1, 2, 3}, reversed[RANKS] = {3, 2, 1, 0};
static const int halves[2][2] = {{2, 0}, {1, 3}};

/* Short and long operations, and one that needs each pair, are right. */
static bool works(struct sluice_comm *comm)
{
    static _Thread_local float in[3000], out[3000];
    float size = (float)sluice_comm_size(comm), rank = (float)sluice_comm_rank(comm), total;
    bool right = counted_sum(comm, rank, &total) == 0 && total == size * (size - 1) / 2;

    for (int i = 0; i < 3000; i++)
        in[i] = (float)i;
    right = right && sluice_allreduce(comm, in, out, 3000, SLUICE_F32, SLUICE_SUM, NULL) == 0;
    right = right && out[0] == 0 && out[2999] == 2999 * size;
    for (int i = 0; i < (int)size; i++)
        in[i] = rank * 10 + (float)i;
    right = right && sluice_all_to_all(comm, in, out, 1, SLUICE_F32, NULL) == 0;
    for (int i = 0; right && i < (int)size; i++)
        right = out[i] == (float)i * 10 + rank;
    return right;
}

/* ---- of one family ---- */

static int make_one(int i, int rank, struct sluice_comm **out)
{
    switch (i % 3) {
    case 0: return crew_make(0, same, RANKS, out);
    case 1: return crew_make(0, reversed, RANKS, out);
    default: return crew_make(1 + rank % 2, halves[rank % 2], 2, out);
    }
}

static void make_often(struct sluice_comm *comm, int rank)
{
    struct sluice_comm *made[MADE] = {NULL};
    unsigned before;

    CREW_EXPECT(works(comm)); /* all pairs are connected */
    before = counted_by_all(comm);
    for (int i = 0; i < MADE; i++) {
        CREW_EXPECT(make_one(i, rank, &made[i]) == 0);
        CREW_EXPECT(made[i]->worker == comm->worker && made[i]->family == comm->family);
        CREW_EXPECT((made[i]->win.slots != NULL) == (comm->win.slots != NULL));
        CREW_EXPECT(made[i]->id != comm->id && (i < 3 || made[i]->id != made[i - 3]->id));
    }
    for (int i = 0; i < MADE; i++)
        CREW_EXPECT(works(made[i]));
    CREW_EXPECT(counted_by_all(comm) == before);
    for (int i = 0; i < MADE; i++)
        sluice_comm_destroy(made[i]);
    CREW_EXPECT(works(comm));
}

static void ranks_of_one_family_open_connect_and_map_nothing(void **state)
{
    struct crew crew = counted_crew(RANKS, "");

    (void)state;
    RUN_CREW(&crew, make_often);
}

static void outlive(struct sluice_comm *comm, int rank)
{
    struct sluice_comm *second, *third;
    unsigned before;

    CREW_EXPECT(works(comm));
    CREW_EXPECT(crew_make(0, reversed, RANKS, &second) == 0);
    sluice_comm_destroy(comm);
    before = counted_by_all(second);
    CREW_EXPECT(crew_make(0, same, RANKS, &third) == 0);
    CREW_EXPECT(third->family == second->family);
    sluice_comm_destroy(second);
    CREW_EXPECT(works(third));
    CREW_EXPECT(counted_by_all(third) == before);
    CREW_EXPECT(sluice_comm_rank(third) == rank);
    sluice_comm_destroy(third);
}

static void a_family_outlives_its_first_communicator(void **state)
{
    struct crew crew = counted_crew(RANKS, "");

    (void)state;
    crew.keeps = true;
    RUN_CREW(&crew, outlive);
}

/* ---- of none ---- */

static void *call_barrier(void *arg)
{
    return sluice_barrier(arg, NULL) == 0 ? NULL : arg;
}

/* Rank 3's family was used last by another thread, so it does not offer it. */
static void part_with_one(struct sluice_comm *comm, int rank)
{
    struct sluice_comm *made, *again;
    pthread_t thread;
    void *failed = NULL;

    if (rank == 3) {
        CREW_EXPECT(pthread_create(&thread, NULL, call_barrier, comm) == 0);
        pthread_join(thread, &failed);
        CREW_EXPECT(failed == NULL);
    } else {
        CREW_EXPECT(sluice_barrier(comm, NULL) == 0);
    }
    CREW_EXPECT(crew_make(0, reversed, RANKS, &made) == 0);
    CREW_EXPECT(made->family != comm->family && made->worker != comm->worker);
    CREW_EXPECT(works(made));
    CREW_EXPECT(works(comm));
    CREW_EXPECT(crew_make(0, same, RANKS, &again) == 0);
    CREW_EXPECT(again->family == made->family || again->family == comm->family);
    CREW_EXPECT(works(again));
    sluice_comm_destroy(again);
    sluice_comm_destroy(made);
}

static void a_rank_that_offers_none_has_all_connect_anew(void **state)
{
    struct crew crew = counted_crew(RANKS, "");

    (void)state;
    RUN_CREW(&crew, part_with_one);
}

/* The first call may end well: its message may have gone before the abort is seen. */
static int call_until_broken(struct sluice_comm *comm)
{
    int err = 0;

    while (err == 0)
        err = sluice_barrier(comm, NULL);
    return err;
}

/* First while only rank 2 knows that the family is broken, then when all do. */
static void give_up(struct sluice_comm *comm, int rank)
{
    struct sluice_comm *first, *second;

    CREW_EXPECT(works(comm));
    if (rank == 2)
        sluice_comm_abort(comm);
    CREW_EXPECT(crew_make(0, same, RANKS, &first) == 0);
    CREW_EXPECT(first->family != comm->family && works(first));
    CREW_EXPECT(call_until_broken(comm) == -ECANCELED);
    CREW_EXPECT(crew_make(0, reversed, RANKS, &second) == 0);
    CREW_EXPECT(second->family == first->family && works(second));
    sluice_comm_abort(first);
    CREW_EXPECT(call_until_broken(first) == -ECANCELED);
    CREW_EXPECT(works(second));
    sluice_comm_destroy(first);
    sluice_comm_destroy(second);
}

static void a_broken_family_takes_in_nobody(void **state)
{
    struct crew crew = counted_crew(RANKS, "");

    (void)state;
    RUN_CREW(&crew, give_up);
}

/* As if another thread had just taken the number that all offer. */
static void take_number(struct sluice_comm *comm, int rank)
{
    struct sluice_comm *child, *made;

    CREW_EXPECT(sluice_comm_split(comm, 0, rank, &child) == 0);
    comm->family->next_channel = child->channel;
    CREW_EXPECT(crew_make(0, same, RANKS, &made) == 0);
    CREW_EXPECT(made->family != comm->family);
    CREW_EXPECT(works(made));
    CREW_EXPECT(works(child));
    sluice_comm_destroy(made);
    sluice_comm_destroy(child);
}

static void a_number_that_is_taken_has_all_connect_anew(void **state)
{
    struct crew crew = counted_crew(RANKS, "");

    (void)state;
    RUN_CREW(&crew, take_number);
}

/* Windows are worth more than connections; who has none has nothing to lose. */
static void fill_segment(struct sluice_comm *comm, int rank)
{
    bool windows = comm->win.slots != NULL;
    struct sluice_comm *made;
    bool used[SL_AREAS_MAX];

    memcpy(used, comm->family->segment.used, sizeof(used));
    if (rank == 1)
        memset(comm->family->segment.used, 1, sizeof(used));
    CREW_EXPECT(crew_make(0, same, RANKS, &made) == 0);
    CREW_EXPECT((made->win.slots != NULL) == windows);
    CREW_EXPECT((made->family == comm->family) == !windows);
    CREW_EXPECT(works(made));
    memcpy(comm->family->segment.used, used, sizeof(used));
    sluice_comm_destroy(made);
}

static void a_family_without_room_for_windows_takes_in_nobody(void **state)
{
    struct crew crew = counted_crew(RANKS, "");

    (void)state;
    RUN_CREW(&crew, fill_segment);
}

/* ---- two threads ---- */

struct maker {
    struct sluice_comm *own; /* that this thread uses */
    int rank, group, code;
};

static void *make_on(void *arg)
{
    struct maker *m = arg;

    for (int i = 0; i < 40 && m->code == 0; i++) {
        struct sluice_comm *made = NULL;
        float total = 0;

        m->code = counted_sum(m->own, 1, &total);
        if (m->code == 0)
            m->code = crew_make_as(m->rank, m->group, i % 2 == 0 ? same : reversed, RANKS, &made);
        if (m->code == 0)
            m->code = counted_sum(made, 1, &total);
        if (m->code == 0 && total != RANKS)
            m->code = -EBADMSG;
        sluice_comm_destroy(made);
    }
    return NULL;
}

static void make_twice(struct sluice_comm *comm, int rank)
{
    struct sluice_comm *twin;
    struct maker both[2];
    pthread_t thread;

    CREW_EXPECT(crew_make(0, reversed, RANKS, &twin) == 0);
    both[0] = (struct maker){comm, rank, 0, 0};
    both[1] = (struct maker){twin, rank, 1, 0};
    CREW_EXPECT(pthread_create(&thread, NULL, make_on, &both[1]) == 0);
    make_on(&both[0]);
    pthread_join(thread, NULL);
    sluice_comm_destroy(twin);
    CREW_EXPECT(both[0].code == 0);
    CREW_EXPECT(both[1].code == 0);
}

static void two_threads_make_communicators_at_once(void **state)
{
    struct crew crew = counted_crew(RANKS, "");

    (void)state;
    RUN_CREW(&crew, make_twice);
}

static const char *transport = "shm";

static int set_up(void **state)
{
    (void)state;
    counted_set_up(transport);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_of_one_family_open_connect_and_map_nothing),
        cmocka_unit_test(a_family_outlives_its_first_communicator),
        cmocka_unit_test(a_rank_that_offers_none_has_all_connect_anew),
        cmocka_unit_test(a_broken_family_takes_in_nobody),
        cmocka_unit_test(a_number_that_is_taken_has_all_connect_anew),
        cmocka_unit_test(a_family_without_room_for_windows_takes_in_nobody),
        cmocka_unit_test(two_threads_make_communicators_at_once),
    };

    if (argc > 1)
        transport = argv[1];
    return cmocka_run_group_tests_name("adopt", tests, set_up, NULL);
}
