/* SPDX-License-Identifier: Apache-2.0 */
/* What operations keep, saved and loaded: in one go, by ids, cut anew, from other ranks. */
#include "crew.h"

#include "collectives/operation.h"
#include "compress/feedback_state.h"
#include "core/err.h"
#include "core/registry.h"

#include <sluice/compress.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define RANKS 3
#define N 20011

/* What is cut into operations. */
struct rank {
    float in[N], out[N], want[N];
    char bytes[3 * N * sizeof(float)];
};

static struct rank *rank_new(int number)
{
    struct rank *r = calloc(1, sizeof(*r));

    sl_assert(r != NULL);
    for (int i = 0; i < N; i++)
        r->in[i] = (float)((i * 7919 + number * 104729) % 2003 - 1001) / 333.0f;
    return r;
}

static void run(crew_body *what)
{
    const struct sl_transport_ops *ops = sl_transport_find("shm", 3);
    struct crew crew = {.ranks = RANKS, .settings = "", .ops = {ops, ops, ops}};

    RUN_CREW(&crew, what);
}

/* Of elements first to end, by feedback, with these numbers in a checkpoint. */
static struct sluice_operation *bucket(struct sluice_comm *comm, struct rank *r, const char *text,
                                       uint64_t id, size_t first, size_t end)
{
    struct sluice_operation *operation = NULL;

    if (sluice_allreduce_init(comm, r->in + first, r->out + first, end - first, SLUICE_F32,
                              SLUICE_SUM, &operation) != 0 ||
        sluice_operation_set_compression(operation, text) != 0 ||
        sluice_operation_set_state_id(operation, id, first) != 0)
        return NULL;
    return operation;
}

static int start_all(struct sluice_operation **operations, size_t count)
{
    int err = 0;

    for (size_t i = 0; i < count && err == 0; i++)
        err = sluice_start(operations[i], NULL);
    return err;
}

static void free_all(struct sluice_operation **operations, size_t count)
{
    for (size_t i = 0; i < count; i++)
        sluice_operation_free(operations[i]);
}

static bool says(const char *what)
{
    return strstr(sluice_last_error(), what) != NULL;
}

#define CODEC "bq4:when=always,min=0,feedback=on,stochastic=on"

/* Three operations, of two tensors, saved in one go and loaded in another order. */
static void at_once(struct sluice_comm *comm, int rank)
{
    struct rank *r = rank_new(rank);
    struct sluice_operation *old[4], *new[4];
    size_t size = sizeof(r->bytes), needed = 0;

    for (int i = 0; i < 2; i++) {
        struct sluice_operation **made = i == 0 ? old : new;

        made[0] = bucket(comm, r, CODEC, 7, 0, 9000);
        made[1] = bucket(comm, r, CODEC, 7, 9000, 13000);
        made[2] = bucket(comm, r, CODEC, 8, 13000, N);
        made[3] = bucket(comm, r, "", 0, 0, N); /* as it is: has no part in it */
        CREW_EXPECT(made[0] != NULL && made[1] != NULL && made[2] != NULL && made[3] != NULL);
    }
    CREW_EXPECT(start_all(old, 3) == 0 && start_all(old, 2) == 0 && start_all(old, 1) == 0);
    CREW_EXPECT(sluice_operations_save(old, 4, NULL, &needed) == 0);
    CREW_EXPECT(sluice_operations_save(old, 4, r->bytes + 3, &size) == 0 && size == needed);
    CREW_EXPECT(start_all(old, 3) == 0);
    memcpy(r->want, r->out, sizeof(r->out));
    memset(r->out, 0, sizeof(r->out));

    struct sluice_operation *shuffled[] = {new[2], new[0], new[3], new[1]};

    CREW_EXPECT(sluice_operations_load(shuffled, 4, r->bytes + 3, size) == 0);
    CREW_EXPECT(start_all(new, 3) == 0);
    CREW_EXPECT(memcmp(r->out, r->want, sizeof(r->out)) == 0);
    /* One is missing, or one too many. */
    CREW_EXPECT(sluice_operations_load(new, 2, r->bytes + 3, size) == -EINVAL);
    CREW_EXPECT(sluice_operation_set_state_id(new[2], 9, 13000) == 0);
    CREW_EXPECT(sluice_operations_load(new, 3, r->bytes + 3, size) == -EBADMSG);
    CREW_EXPECT(says("with id 9"));
    free_all(old, 4);
    free_all(new, 4);
    free(r);
}

static void operations_are_saved_and_loaded_together_by_ids(void **state)
{
    run(at_once);
}

/* The residual that an operation has of element i. */
static float kept(const struct sluice_operation *operation, size_t i)
{
    return sl_code_state_at(operation->state, 0, i / 4096, 1)[i % 4096];
}

static void recut(struct sluice_comm *comm, int rank)
{
    static const size_t ends[2][4] = {{0, 9000, 13000, N}, {0, 4096, 12345, N}};
    struct rank *r = rank_new(rank);
    struct sluice_operation *operations[2][3];
    size_t size = sizeof(r->bytes), differ = 0;

    for (int cut = 0; cut < 2; cut++)
        for (int i = 0; i < 3; i++) {
            operations[cut][i] = bucket(comm, r, CODEC, 7, ends[cut][i], ends[cut][i + 1]);
            CREW_EXPECT(operations[cut][i] != NULL);
        }
    for (int round = 0; round < 3; round++)
        CREW_EXPECT(start_all(operations[0], 3) == 0);
    CREW_EXPECT(start_all(operations[0], 1) == 0);
    CREW_EXPECT(sluice_operations_save(operations[0], 3, r->bytes, &size) == 0);
    CREW_EXPECT(sluice_operations_load(operations[1], 3, r->bytes, size) == 0);
    for (size_t i = 0, a = 0, b = 0; i < N; i++) {
        a += i == ends[0][a + 1];
        b += i == ends[1][b + 1];
        float was = kept(operations[0][a], i - ends[0][a]);

        CREW_EXPECT(was == kept(operations[1][b], i - ends[1][b]));
        differ += was != 0;
    }
    CREW_EXPECT(differ > N / 2);
    /* As often as what was started most often of its elements; sums begin anew. */
    CREW_EXPECT(operations[1][0]->turn == 4 && operations[1][1]->turn == 4);
    CREW_EXPECT(operations[1][2]->turn == 3);
    for (int i = 0; i < 3; i++) {
        const struct sl_code_state *state = operations[1][i]->state;

        for (size_t j = 0; j < state->extents[1].count * 4096; j++)
            CREW_EXPECT(state->residuals[1][j] == 0);
    }
    free_all(operations[0], 3);
    free_all(operations[1], 3);
    free(r);
}

static void buckets_may_be_cut_anew_between_save_and_load(void **state)
{
    run(recut);
}

/* Of one whose blocks are no whole tiles, and of one that keeps only how often it was started. */
static void kinds(struct sluice_comm *comm, int rank)
{
    static const char *const texts[] = {CODEC, "bq4:when=always,min=0,stochastic=on"};
    struct rank *r = rank_new(rank);
    struct sluice_operation *a, *b;
    const size_t count = N / RANKS;

    for (int i = 0; i < 2; i++) {
        size_t size = sizeof(r->bytes);

        CREW_EXPECT(sluice_reduce_scatter_init(comm, r->in, r->want, count, SLUICE_F32, SLUICE_AVG,
                                               &a) == 0);
        CREW_EXPECT(sluice_reduce_scatter_init(comm, r->in, r->out, count, SLUICE_F32, SLUICE_AVG,
                                               &b) == 0);
        CREW_EXPECT(sluice_operation_set_compression(a, texts[i]) == 0);
        CREW_EXPECT(sluice_operation_set_compression(b, texts[i]) == 0);
        for (int round = 0; round < 3; round++)
            CREW_EXPECT(sluice_start(a, NULL) == 0);
        CREW_EXPECT(sluice_operation_save(a, r->bytes + 1, &size) == 0);
        CREW_EXPECT(i == 0 ? size > N * sizeof(float) : size < 200);
        CREW_EXPECT(sluice_start(b, NULL) == 0); /* it forgets what it has */
        CREW_EXPECT(sluice_operation_load(b, r->bytes + 1, size) == 0);
        CREW_EXPECT(sluice_start(a, NULL) == 0 && sluice_start(b, NULL) == 0);
        CREW_EXPECT(memcmp(r->want, r->out, count * sizeof(float)) == 0);
        sluice_operation_free(a);
        sluice_operation_free(b);
    }
    free(r);
}

static void all_that_is_compressed_can_be_saved(void **state)
{
    run(kinds);
}

static void wrong(struct sluice_comm *comm, int rank)
{
    static char others[RANKS][3 * N * sizeof(float)];
    static size_t sizes[RANKS];
    struct rank *r = rank_new(rank);
    struct sluice_operation *two[2] = {bucket(comm, r, CODEC, 7, 0, 9000),
                                       bucket(comm, r, CODEC, 7, 9000, N)};
    struct sluice_operation *other =
        bucket(comm, r, "bq8:when=always,min=0,feedback=on", 7, 0, 9000);
    size_t size = sizeof(r->bytes);

    CREW_EXPECT(two[0] != NULL && two[1] != NULL && other != NULL);
    CREW_EXPECT(sluice_operations_save(two, 0, NULL, &size) == -EINVAL);
    CREW_EXPECT(sluice_operations_save(NULL, 1, NULL, &size) == -EINVAL);
    CREW_EXPECT(sluice_operations_save(two, 2, NULL, NULL) == -EINVAL);
    CREW_EXPECT(sluice_operations_load(two, 2, NULL, 8) == -EINVAL);
    CREW_EXPECT(sluice_operation_set_state_id(NULL, 1, 0) == -EINVAL);
    CREW_EXPECT(sluice_operation_set_state_id(two[1], 7, UINT64_MAX - 5) == -EINVAL);
    CREW_EXPECT(sluice_operation_set_state_id(two[1], 7, 8999) == 0);
    CREW_EXPECT(sluice_operations_save(two, 2, r->bytes, &size) == -EINVAL);
    CREW_EXPECT(says("elements from number 8999 on of what has id 7"));
    CREW_EXPECT(sluice_operation_set_state_id(two[1], 7, 9000) == 0);

    CREW_EXPECT(sluice_start(two[0], NULL) == 0);
    CREW_EXPECT(sluice_operation_save(two[0], r->bytes, &size) == 0);
    CREW_EXPECT(sluice_operation_load(other, r->bytes, size) == -EINVAL);
    CREW_EXPECT(says("is of bq4, parameters") && says("here it is of bq8, parameters"));
    r->bytes[100] = (char)(r->bytes[100] ^ 1);
    CREW_EXPECT(sluice_operation_load(two[0], r->bytes, size) == -EBADMSG && says("damaged"));
    r->bytes[100] = (char)(r->bytes[100] ^ 1);

    /* That of another rank has other shards: sums of the same owners are not dropped. */
    memcpy(others[rank], r->bytes, size);
    /* The thread sanitizer does not see that a barrier over shared memory puts these in order. */
    __atomic_store_n(&sizes[rank], size, __ATOMIC_RELEASE);
    CREW_EXPECT(sluice_barrier(comm, NULL) == 0);
    int next = (rank + 1) % RANKS;
    size_t there = __atomic_load_n(&sizes[next], __ATOMIC_ACQUIRE);

    CREW_EXPECT(sluice_operation_load(two[0], others[next], there) < 0);
    CREW_EXPECT(says("residual of a shard with id 7"));
    CREW_EXPECT(sluice_operation_load(two[0], others[rank], size) == 0);
    CREW_EXPECT(sluice_barrier(comm, NULL) == 0);
    free_all(two, 2);
    sluice_operation_free(other);
    free(r);
}

static void what_belongs_elsewhere_is_refused_with_a_sentence(void **state)
{
    run(wrong);
}

/* By two of the ranks what all three have left. */
static void fewer(struct sluice_comm *comm, int rank)
{
    struct rank *r = rank_new(rank);
    struct sluice_operation *all = bucket(comm, r, CODEC, 7, 0, N), *some = NULL;
    size_t size = sizeof(r->bytes);
    struct sluice_comm *child;

    CREW_EXPECT(all != NULL && sluice_start(all, NULL) == 0);
    CREW_EXPECT(sluice_operation_save(all, r->bytes, &size) == 0);
    CREW_EXPECT(sluice_comm_split(comm, rank == 2, rank, &child) == 0);
    if (rank != 2) {
        some = bucket(child, r, CODEC, 7, 0, N);
        CREW_EXPECT(some != NULL && sluice_operation_load(some, r->bytes, size) == 0);
        const struct sl_code_state *state = some->state;

        for (size_t i = 0; i < N; i++)
            CREW_EXPECT(kept(some, i) == kept(all, i));
        for (size_t i = 0; i < state->extents[1].count * 4096; i++)
            CREW_EXPECT(state->residuals[1][i] == 0);
        CREW_EXPECT(some->turn == 1);
    }
    sluice_operation_free(some);
    sluice_operation_free(all);
    sluice_comm_destroy(child);
    free(r);
}

static void other_numbers_of_ranks_take_what_is_of_their_own_elements(void **state)
{
    run(fewer);
}

static size_t sums_kept(const struct sluice_operation *operation)
{
    const struct sl_code_state *state = operation->state;
    size_t count = 0;

    for (size_t i = 0; i < state->extents[1].count * 4096; i++)
        count += state->residuals[1][i] != 0;
    return count;
}

/* As if the ranks were on other hosts than before, of the same number. */
static void moved(struct sluice_comm *comm, int rank)
{
    static const uint32_t before[RANKS] = {0, 0, 1}, after[RANKS] = {0, 1, 1};
    struct rank *r = rank_new(rank);
    struct sluice_operation *operation = bucket(comm, r, CODEC, 7, 0, N);
    const uint32_t *host = comm->host, hosts = comm->host_count;
    size_t size = sizeof(r->bytes), had;

    CREW_EXPECT(operation != NULL && sluice_start(operation, NULL) == 0);
    had = sums_kept(operation);
    CREW_EXPECT(had > 1000);
    comm->host_count = 2;
    comm->host = before;
    CREW_EXPECT(sluice_operation_save(operation, r->bytes, &size) == 0);
    CREW_EXPECT(sluice_operation_load(operation, r->bytes, size) == 0);
    CREW_EXPECT(sums_kept(operation) == had);
    comm->host = after;
    CREW_EXPECT(sluice_operation_load(operation, r->bytes, size) == 0);
    CREW_EXPECT(sums_kept(operation) == 0 && kept(operation, 5) != 0);
    comm->host = host;
    comm->host_count = hosts;
    sluice_operation_free(operation);
    free(r);
}

static void sums_begin_anew_where_hosts_are_others(void **state)
{
    run(moved);
}

/* How many residuals it has, of all stages, that are not zero; and what they are from now on. */
static size_t residuals(const struct sluice_operation *operation, float now)
{
    const struct sl_code_state *state = operation->state;
    size_t count = 0;

    for (unsigned stage = 0; stage < SL_CODE_STAGES; stage++)
        for (size_t i = 0; i < state->extents[stage].count * 4096; i++) {
            if (state->extents[stage].first * 4096 + i >= N)
                break;
            count += state->residuals[stage][i] != 0;
            state->residuals[stage][i] = now;
        }
    return count;
}

/* Goes on by b from what a has kept: of how often it was started, and nothing else. */
static void goes_on(struct rank *r, struct sluice_operation *a, struct sluice_operation *b)
{
    size_t size = sizeof(r->bytes);

    residuals(a, 1);
    residuals(b, 1);
    CREW_EXPECT(sluice_operation_save(a, r->bytes, &size) == 0);
    CREW_EXPECT(sluice_operation_set_state_id(b, 8, 0) == 0);
    CREW_EXPECT(sluice_operation_load(b, r->bytes, size) == -EBADMSG && says("with id 8"));
    CREW_EXPECT(residuals(b, 1) > 500);
    CREW_EXPECT(sluice_operation_set_state_id(b, 7, 0) == 0);
    CREW_EXPECT(sluice_operation_load(b, r->bytes, size) == 0);
    CREW_EXPECT(b->turn == a->turn && residuals(b, 0) == 0);
}

/* One shot keeps what own elements lack, a ring and hosts what sums lack. */
static void by_others(struct sluice_comm *comm, int rank)
{
    static const uint32_t two[] = {0, 0, 1, 1};
    struct rank *r = rank_new(rank);
    struct sluice_operation *shot = bucket(comm, r, CODEC, 7, 0, N), *others[2];
    const uint32_t *host = comm->host, hosts = comm->host_count, locals = comm->most_local;

    CREW_EXPECT(shot != NULL && sluice_start(shot, NULL) == 0 && sluice_start(shot, NULL) == 0);
    others[0] = bucket(comm, r, CODEC ",recipe=ring", 7, 0, N);
    comm->host = two;
    comm->host_count = comm->most_local = 2;
    others[1] = bucket(comm, r, CODEC, 7, 0, N);
    CREW_EXPECT(others[0] != NULL && others[1] != NULL);
    CREW_EXPECT(strcmp(others[1]->plan->schedule.algo, "oneshot_hosts") == 0);
    for (int i = 0; i < 2; i++) {
        goes_on(r, shot, others[i]);
        CREW_EXPECT(sluice_start(shot, NULL) == 0);
        goes_on(r, others[i], shot);
        CREW_EXPECT(shot->turn == 2);
    }
    comm->host = host;
    comm->host_count = hosts;
    comm->most_local = locals;
    sluice_operation_free(shot);
    free_all(others, 2);
    free(r);
}

static void another_schedule_goes_on_though_it_keeps_other_parts(void **state)
{
    const struct sl_transport_ops *ops = sl_transport_find("shm", 3);
    struct crew crew = {.ranks = 4, .settings = "", .ops = {ops, ops, ops, ops}};

    RUN_CREW(&crew, by_others);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operations_are_saved_and_loaded_together_by_ids),
        cmocka_unit_test(buckets_may_be_cut_anew_between_save_and_load),
        cmocka_unit_test(all_that_is_compressed_can_be_saved),
        cmocka_unit_test(what_belongs_elsewhere_is_refused_with_a_sentence),
        cmocka_unit_test(sums_begin_anew_where_hosts_are_others),
        cmocka_unit_test(other_numbers_of_ranks_take_what_is_of_their_own_elements),
        cmocka_unit_test(another_schedule_goes_on_though_it_keeps_other_parts),
    };

    return cmocka_run_group_tests_name("saved_operations", tests, NULL, NULL);
}
