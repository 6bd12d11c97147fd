/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Splits share what their world has: 64 of them open, connect, register and map nothing; areas of
 * windows are used again, never before all have read them; two threads split at once; a rank that
 * leaves or gives up in one communicator is heard there, and in no other; what lacked memory is
 * tried again. Over the transport that is named.
 */
#include "tests/unit/collectives/counted.h"

#include "collectives/family.h"
#include "core/registry.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#define RANKS 4
#define SPLITS 64
#define REUSES 300 /* more than there are areas */

/* ---- what they share ---- */

static void split_often(struct sluice_comm *comm, int rank)
{
    struct sluice_comm *child[SPLITS] = {NULL};
    float ones[1000] = {1}, out[1000], total;
    unsigned before, after;
    bool had_windows = comm->win.slots != NULL;

    /* All pairs are connected, as a plan of the world needs them. */
    CREW_EXPECT(sluice_all_to_all(comm, ones, out, 1, SLUICE_F32, NULL) == 0);
    before = counted_by_all(comm);
    for (int i = 0; i < SPLITS; i++) {
        CREW_EXPECT(sluice_comm_split(comm, i % 3 == 0 ? rank % 2 : 0, -rank, &child[i]) == 0);
        CREW_EXPECT(child[i]->worker == comm->worker && child[i]->family == comm->family);
        CREW_EXPECT((child[i]->win.slots != NULL) == had_windows);
    }
    for (int i = 0; i < SPLITS; i++) {
        CREW_EXPECT(sluice_allreduce(child[i], ones, out, 1000, SLUICE_F32, SLUICE_SUM, NULL) == 0);
        CREW_EXPECT(out[0] == (float)sluice_comm_size(child[i]));
        CREW_EXPECT(sluice_all_to_all(child[i], ones, out, 1, SLUICE_F32, NULL) == 0);
    }
    after = counted_by_all(comm);
    CREW_EXPECT(after == before);
    for (int i = 0; i < SPLITS; i++)
        sluice_comm_destroy(child[i]);
    CREW_EXPECT(counted_sum(comm, 1, &total) == 0 && total == RANKS);
}

static void splits_open_connect_and_map_nothing(void **state)
{
    struct crew crew = counted_crew(RANKS, "");

    (void)state;
    RUN_CREW(&crew, split_often);
}

/* Whoever reads state pages puts the ranks of a communicator together by it. */
static void compare_ids(struct sluice_comm *comm, int rank)
{
    struct sluice_comm *child;
    uint64_t ids[RANKS];

    CREW_EXPECT(sluice_comm_split(comm, rank % 2, rank, &child) == 0);
    CREW_EXPECT(sluice_all_gather(comm, &child->id, ids, 1, SLUICE_U64, NULL) == 0);
    CREW_EXPECT(ids[0] == ids[2] && ids[1] == ids[3] && ids[0] != ids[1]);
    CREW_EXPECT(ids[0] != comm->id && ids[1] != comm->id);
    sluice_comm_destroy(child);
}

static void halves_of_a_split_have_ids_of_their_own(void **state)
{
    struct crew crew = counted_crew(RANKS, "");

    (void)state;
    RUN_CREW(&crew, compare_ids);
}

/* Rank 0 shows what it has, leaves, and makes the next one, as far ahead as splits let it: the
 * others read late. */
static void reuse(struct sluice_comm *comm, int rank)
{
    for (int i = 0; i < REUSES; i++) {
        struct sluice_comm *child;
        struct sluice_req *req;
        uint64_t words[512];

        for (int w = 0; w < 512; w++)
            words[w] = rank == 0 ? (uint64_t)i * 1000 + (uint64_t)w : 0;
        CREW_EXPECT(sluice_comm_split(comm, 0, rank, &child) == 0);
        CREW_EXPECT((child->win.slots != NULL) == (comm->win.slots != NULL));
        CREW_EXPECT(sluice_broadcast(child, words, words, 512, SLUICE_U64, 0, &req) == 0);
        for (int turns = 0; rank != 0 && turns < i % 7; turns++)
            sched_yield();
        CREW_EXPECT(sluice_wait(req) == 0);
        sluice_req_free(req);
        sluice_comm_destroy(child);
        for (int w = 0; w < 512; w++)
            CREW_EXPECT(words[w] == (uint64_t)i * 1000 + (uint64_t)w);
    }
}

static void areas_are_used_again_when_all_have_read_them(void **state)
{
    struct crew crew = counted_crew(RANKS, "");

    (void)state;
    RUN_CREW(&crew, reuse);
}

static void deep(struct sluice_comm *comm, int rank)
{
    struct sluice_comm *half, *quarter;
    float total;

    CREW_EXPECT(sluice_comm_split(comm, rank % 2, -rank, &half) == 0);
    CREW_EXPECT(sluice_comm_split(half, 0, sluice_comm_rank(half) == 0, &quarter) == 0);
    sluice_comm_destroy(half);
    CREW_EXPECT(counted_sum(quarter, (float)(1 << rank), &total) == 0);
    CREW_EXPECT(total == (rank % 2 == 0 ? 5 : 10));
    sluice_comm_destroy(quarter);
}

static void splits_of_splits_outlive_their_parents(void **state)
{
    struct crew crew = counted_crew(RANKS, "");

    (void)state;
    RUN_CREW(&crew, deep);
}

/* ---- two threads ---- */

struct splitter {
    struct sluice_comm *parent;
    int rank, code;
};

static void *split_on(void *arg)
{
    struct splitter *s = arg;

    for (int i = 0; i < 60 && s->code == 0; i++) {
        struct sluice_comm *child = NULL;
        float total = 0;

        s->code = sluice_comm_split(s->parent, 0, s->rank, &child);
        if (s->code == 0)
            s->code = counted_sum(child, 1, &total);
        if (s->code == 0 && total != RANKS)
            s->code = -EBADMSG;
        sluice_comm_destroy(child);
    }
    return NULL;
}

static void split_twice(struct sluice_comm *comm, int rank)
{
    struct sluice_comm *twin;
    struct splitter both[2];
    pthread_t thread;

    CREW_EXPECT(sluice_comm_split(comm, 0, rank, &twin) == 0);
    both[0] = (struct splitter){comm, rank, 0};
    both[1] = (struct splitter){twin, -rank, 0};
    CREW_EXPECT(pthread_create(&thread, NULL, split_on, &both[1]) == 0);
    split_on(&both[0]);
    pthread_join(thread, NULL);
    sluice_comm_destroy(twin);
    CREW_EXPECT(both[0].code == 0);
    CREW_EXPECT(both[1].code == 0);
}

static void two_threads_split_at_once(void **state)
{
    struct crew crew = counted_crew(RANKS, "");

    (void)state;
    RUN_CREW(&crew, split_twice);
}

/* ---- ends ---- */

/* Rank 2 gives one up; rank 3, to which it has never sent there, waits for rank 1, which waits for
 * rank 2. */
static void give_one_up(struct sluice_comm *comm, int rank)
{
    struct sluice_comm *broken, *whole;
    float total, one = 1;

    CREW_EXPECT(sluice_comm_split(comm, 0, rank, &broken) == 0);
    CREW_EXPECT(sluice_comm_split(comm, 0, -rank, &whole) == 0);
    if (rank == 2)
        sluice_comm_abort(broken);
    if (rank == 1)
        CREW_EXPECT(sluice_recv(broken, &one, 1, SLUICE_F32, 2, NULL) == -ECANCELED);
    if (rank == 3)
        CREW_EXPECT(sluice_recv(broken, &one, 1, SLUICE_F32, 1, NULL) == -ECANCELED);
    CREW_EXPECT(counted_sum(whole, 1, &total) == 0 && total == RANKS);
    CREW_EXPECT(counted_sum(comm, 1, &total) == 0 && total == RANKS);
    sluice_comm_destroy(broken);
    sluice_comm_destroy(whole);
}

static void an_abort_ends_one_communicator(void **state)
{
    struct crew crew = counted_crew(RANKS, "");

    (void)state;
    RUN_CREW(&crew, give_one_up);
}

/* Rank 0 of the split is rank 3 of the world: errors name ranks of the communicator at hand. */
static void leave_one(struct sluice_comm *comm, int rank)
{
    struct sluice_comm *child;
    float one = 1, total;
    int err;

    CREW_EXPECT(sluice_comm_split(comm, 0, -rank, &child) == 0);
    CREW_EXPECT(counted_sum(child, 1, &total) == 0 && total == RANKS);
    if (rank != 3) {
        err = sluice_recv(child, &one, 1, SLUICE_F32, 0, NULL);
        CREW_EXPECT(err == -ECONNRESET || err == -ETIMEDOUT);
        CREW_EXPECT(strstr(sluice_last_error(), "rank 0") != NULL);
    }
    sluice_comm_destroy(child);
    CREW_EXPECT(counted_sum(comm, 1, &total) == 0 && total == RANKS);
}

static void who_waits_for_a_rank_that_has_left_is_told(void **state)
{
    struct crew crew = counted_crew(RANKS, "TIMEOUT_MS=3000");

    (void)state;
    RUN_CREW(&crew, leave_one);
}

/* ---- memory ---- */

static _Thread_local unsigned peers_lacked; /* so many times there is none for rank 2 */
static _Thread_local const struct sl_peers *spared;

struct sl_peer *__real_sl_peers_make(struct sl_peers *peers, uint32_t rank);
struct sl_peer *__wrap_sl_peers_make(struct sl_peers *peers, uint32_t rank);

struct sl_peer *__wrap_sl_peers_make(struct sl_peers *peers, uint32_t rank)
{
    if (rank != 2 || peers_lacked == 0 || peers == spared)
        return __real_sl_peers_make(peers, rank);
    peers_lacked--;
    return NULL;
}

/* Rank 0 has no memory for its neighbour in the tree as it makes the split, nor as it first waits
 * there. */
static void lack_memory(struct sluice_comm *comm, int rank)
{
    struct sluice_comm *child;
    struct sluice_req *req;
    float word = 1, total;

    peers_lacked = rank == 0 ? 2 : 0;
    spared = &comm->peers;
    CREW_EXPECT(sluice_comm_split(comm, 0, rank, &child) == 0);
    if (rank == 0) {
        CREW_EXPECT(peers_lacked == 1 && sl_comm_peer(child, 2)->link == NULL);
        CREW_EXPECT(sluice_recv(child, &word, 1, SLUICE_F32, 1, &req) == 0);
        for (int i = 0; i < 1000 && sl_comm_peer(child, 2)->link == NULL; i++)
            CREW_EXPECT(sluice_test(req) == 0);
        CREW_EXPECT(peers_lacked == 0 && sl_comm_peer(child, 2)->link != NULL);
        CREW_EXPECT(sluice_send(comm, &word, 1, SLUICE_F32, 1, NULL) == 0);
        CREW_EXPECT(sluice_wait(req) == 0);
        sluice_req_free(req);
    } else if (rank == 1) {
        CREW_EXPECT(sluice_recv(comm, &word, 1, SLUICE_F32, 0, NULL) == 0);
        CREW_EXPECT(sluice_send(child, &word, 1, SLUICE_F32, 0, NULL) == 0);
    }
    CREW_EXPECT(counted_sum(comm, 1, &total) == 0); /* nobody leaves before */
    sluice_comm_destroy(child);
}

static void a_neighbour_in_the_tree_is_had_once_there_is_memory(void **state)
{
    struct crew crew = {.ranks = RANKS, .settings = ""};

    (void)state;
    for (int i = 0; i < RANKS; i++) /* windows would need it at once */
        crew.ops[i] = sl_transport_find("tcp", 3);
    RUN_CREW(&crew, lack_memory);
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
        cmocka_unit_test(splits_open_connect_and_map_nothing),
        cmocka_unit_test(halves_of_a_split_have_ids_of_their_own),
        cmocka_unit_test(areas_are_used_again_when_all_have_read_them),
        cmocka_unit_test(splits_of_splits_outlive_their_parents),
        cmocka_unit_test(two_threads_split_at_once),
        cmocka_unit_test(an_abort_ends_one_communicator),
        cmocka_unit_test(who_waits_for_a_rank_that_has_left_is_told),
        cmocka_unit_test(a_neighbour_in_the_tree_is_had_once_there_is_memory),
    };

    if (argc > 1)
        transport = argv[1];
    return cmocka_run_group_tests_name("splits", tests, set_up, NULL);
}
