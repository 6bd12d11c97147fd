/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that fork, as Python's data loaders do: what a child may do, that it touches nothing of its
 * parent's, and that it does not hide its parent's death. Two ranks over the transport that
 * SLUICE_TRANSPORT names.
 */
#include <sluice/sluice.h>

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#define RANKS 2
#define N 1000
#define ROUNDS 40

/* Seen by all processes of a case. */
struct notes {
    char trouble[512];
    struct sluice_unique_id id, children_id;
    double noticed_s;
    atomic_int lives,
        waits;   /* a child that stays, and ranks that are about to wait for the one that dies */
    int gate[2]; /* open until the case is over: children that live on end then */
};

static struct notes *notes;

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            if (notes->trouble[0] == '\0')                                                         \
                snprintf(notes->trouble, sizeof(notes->trouble), "line %d: %s; last error: %s",    \
                         __LINE__, #condition, sluice_last_error());                               \
            _exit(3);                                                                              \
        }                                                                                          \
    } while (0)

#define REFUSED(call)                                                                              \
    do {                                                                                           \
        MUST((call) == -EINVAL);                                                                   \
        MUST(strstr(sluice_last_error(), "before it forked this one") != NULL);                    \
    } while (0)

static double now_s(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void rounds(struct sluice_comm *comm, int count)
{
    int rank = sluice_comm_rank(comm);
    int32_t in[N], out[N];

    for (int round = 0; round < count; round++) {
        for (int i = 0; i < N; i++)
            in[i] = rank + i + round;
        MUST(sluice_allreduce(comm, in, out, N, SLUICE_I32, SLUICE_SUM, NULL) == 0);
        for (int i = 0; i < N; i++)
            MUST(out[i] == 1 + 2 * (i + round));
    }
}

static int inherited; /* descriptors() before this rank had a communicator */
static int descriptors(void);

/* Runs body as ranks in processes of their own, which must end well but for the one that is killed
 * (-1: none). */
static void on_ranks(void (*body)(struct sluice_comm *comm, int rank), int killed)
{
    int status[RANKS];
    pid_t pids[RANKS];

    memset(notes, 0, sizeof(*notes));
    assert_int_equal(sluice_unique_id_create(&notes->id), 0);
    assert_int_equal(sluice_unique_id_create(&notes->children_id), 0);
    assert_int_equal(pipe(notes->gate), 0);
    fflush(NULL);
    for (int rank = 0; rank < RANKS; rank++) {
        pids[rank] = fork();
        assert_true(pids[rank] >= 0);
        if (pids[rank] == 0) {
            struct sluice_comm *comm;

            alarm(60);
            for (int i = 0; i < 4; i++) /* cmocka's handlers are for the test's own process */
                signal((int[]){SIGSEGV, SIGBUS, SIGFPE, SIGILL}[i], SIG_DFL);
            close(notes->gate[1]);
            inherited = descriptors();
            MUST(sluice_comm_create_id(&notes->id, rank, RANKS, NULL, &comm) == 0);
            body(comm, rank);
            sluice_comm_destroy(comm);
            _exit(0);
        }
    }
    for (int rank = 0; rank < RANKS; rank++)
        assert_int_equal(waitpid(pids[rank], &status[rank], 0), pids[rank]);
    close(notes->gate[0]);
    close(notes->gate[1]);
    if (notes->trouble[0] != '\0')
        fail_msg("%s", notes->trouble);
    for (int rank = 0; rank < RANKS; rank++)
        assert_int_equal(status[rank], rank == killed ? SIGKILL : 0);
}

/* In the parent: the child must end well. */
static void child_ends(pid_t pid)
{
    int status = 0;

    MUST(pid > 0);
    MUST(waitpid(pid, &status, 0) == pid);
    if (WIFSIGNALED(status) && notes->trouble[0] == '\0')
        snprintf(notes->trouble, sizeof(notes->trouble), "a child was killed by signal %d",
                 WTERMSIG(status));
    MUST(status == 0);
}

/* ---- what is refused ---- */

static struct sluice_comm *left_over;

static void destroy_at_exit(void)
{
    sluice_comm_destroy(left_over);
}

static void try_operation(struct sluice_comm *comm, struct sluice_operation *operation)
{
    struct sluice_operation *other;
    struct sluice_req *req;
    int32_t in[8] = {0}, out[8] = {0};

    REFUSED(sluice_allreduce_init(comm, in, out, 1, SLUICE_I32, SLUICE_SUM, &other));
    MUST(other == NULL);
    REFUSED(sluice_start(operation, NULL));
    REFUSED(sluice_start(operation, &req));
    MUST(req == NULL);
    sluice_operation_free(operation);
}

static void try_everything(struct sluice_comm *comm, struct sluice_req *req, void *shared,
                           struct sluice_buffer *buffer)
{
    size_t counts[RANKS] = {1, 1}, offsets[RANKS] = {0, 1};
    int32_t in[8] = {0}, out[8] = {0};
    struct sluice_comm *other = comm;
    struct sluice_req *second;
    void *memory;

    REFUSED(sluice_allreduce(comm, in, out, 1, SLUICE_I32, SLUICE_SUM, NULL));
    REFUSED(sluice_allreduce(comm, in, out, 1, SLUICE_I32, SLUICE_SUM, &second));
    REFUSED(sluice_reduce_scatter(comm, in, out, 1, SLUICE_I32, SLUICE_SUM, NULL));
    REFUSED(sluice_all_gather(comm, in, out, 1, SLUICE_I32, NULL));
    REFUSED(sluice_broadcast(comm, in, out, 1, SLUICE_I32, 0, NULL));
    REFUSED(sluice_reduce(comm, in, out, 1, SLUICE_I32, SLUICE_SUM, 0, NULL));
    REFUSED(sluice_gather(comm, in, out, 1, SLUICE_I32, 0, NULL));
    REFUSED(sluice_scatter(comm, in, out, 1, SLUICE_I32, 0, NULL));
    REFUSED(sluice_all_to_all(comm, in, out, 1, SLUICE_I32, NULL));
    REFUSED(sluice_all_to_all_v(comm, in, counts, offsets, out, counts, offsets, SLUICE_I32, NULL));
    REFUSED(sluice_barrier(comm, NULL));
    REFUSED(sluice_send(comm, in, 1, SLUICE_I32, 1, NULL));
    REFUSED(sluice_recv(comm, out, 1, SLUICE_I32, 1, NULL));
    MUST(sluice_group_start() == 0);
    (void)sluice_allreduce(comm, in, out, 1, SLUICE_I32, SLUICE_SUM, &second);
    REFUSED(sluice_group_end());
    REFUSED(sluice_test(req));
    REFUSED(sluice_wait(req));
    REFUSED(sluice_comm_async_error(comm));
    REFUSED(sluice_comm_split(comm, 0, 0, &other));
    MUST(other == NULL);
    REFUSED(sluice_alloc(comm, 4096, &memory));
    REFUSED(sluice_memory_gone(comm, in, sizeof(in)));
    REFUSED(sluice_register(comm, in, sizeof(in), &buffer));
    sluice_deregister(comm, buffer);
    sluice_req_free(req);
    sluice_comm_abort(comm);
    MUST(sluice_comm_rank(comm) == 0 && sluice_comm_size(comm) == RANKS);
    MUST(*(volatile int *)shared == 42); /* allocated memory stays readable */
    sluice_free(comm, shared);
    MUST(*(volatile int *)shared == 42);
    sluice_comm_destroy(comm);
}

/* Sockets and memory files of the parent's communicator. */
static int descriptors(void)
{
    char path[64], target[64];
    DIR *dir = opendir("/proc/self/fd");
    int count = 0;

    MUST(dir != NULL);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        snprintf(path, sizeof(path), "/proc/self/fd/%.16s", entry->d_name);
        ssize_t len = readlink(path, target, sizeof(target) - 1);

        target[len > 0 ? len : 0] = '\0';
        count += strncmp(target, "socket:", 7) == 0 || strncmp(target, "/memfd:", 7) == 0;
    }
    closedir(dir);
    return count;
}

static void asks_everything(struct sluice_comm *comm, int rank)
{
    struct sluice_operation *operation;
    struct sluice_req *req = NULL;
    void *shared = NULL;
    int32_t got = 0;

    rounds(comm, ROUNDS);
    if (rank == 0) {
        MUST(sluice_alloc(comm, 4096, &shared) == 0);
        *(int *)shared = 42;
        MUST(sluice_recv(comm, &got, 1, SLUICE_I32, 1, &req) == 0);
        MUST(sluice_barrier_init(comm, &operation) == 0);
        int before = descriptors();
        pid_t pid = fork();

        if (pid == 0) {
            MUST(before > inherited);
            MUST(descriptors() <= inherited); /* rank 0 has used the listener of its id up */
            try_operation(comm, operation);
            try_everything(comm, req, shared, NULL);
            left_over = comm;
            atexit(destroy_at_exit);
            exit(0);
        }
        child_ends(pid);
        MUST(descriptors() == before);
        sluice_operation_free(operation);
    }
    int32_t sent = 7;

    if (rank == 1)
        MUST(sluice_send(comm, &sent, 1, SLUICE_I32, 0, NULL) == 0);
    else
        MUST(sluice_wait(req) == 0 && got == 7);
    sluice_req_free(req);
    rounds(comm, ROUNDS);
    if (rank == 0)
        sluice_free(comm, shared);
}

static void a_child_is_refused_and_touches_nothing(void **state)
{
    (void)state;
    on_ranks(asks_everything, -1);
}

static void nor_with_a_progress_thread(void **state)
{
    (void)state;
    setenv("SLUICE_PROGRESS", "thread", 1);
    on_ranks(asks_everything, -1);
    unsetenv("SLUICE_PROGRESS");
}

static void clones(struct sluice_comm *comm, int rank)
{
    rounds(comm, ROUNDS);
    if (rank == 0) {
        pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, 0L);
        int32_t in = 1, out = 0;

        if (pid == 0) {
            struct sluice_config config;
            struct sluice_comm *own;

            REFUSED(sluice_allreduce(comm, &in, &out, 1, SLUICE_I32, SLUICE_SUM, NULL));
            sluice_comm_destroy(comm);
            sluice_config_init(&config);
            config.rank = 0;
            config.size = 1;
            MUST(sluice_comm_create(&config, &own) == 0);
            MUST(sluice_allreduce(own, &in, &out, 1, SLUICE_I32, SLUICE_SUM, NULL) == 0 &&
                 out == 1);
            REFUSED(sluice_allreduce(comm, &in, &out, 1, SLUICE_I32, SLUICE_SUM, NULL));
            sluice_comm_destroy(own);
            _exit(0);
        }
        child_ends(pid);
    }
    rounds(comm, ROUNDS);
}

static void a_child_of_a_bare_clone_is_refused_too(void **state)
{
    (void)state;
    on_ranks(clones, -1);
}

/* ---- death ---- */

static void dies_and_leaves_a_child(struct sluice_comm *comm, int rank)
{
    int32_t in = 1, out = 0;
    double start;
    char byte;

    rounds(comm, ROUNDS);
    if (rank == 0) {
        pid_t pid = fork();

        if (pid == 0) {
            notes->lives = 1;
            MUST(read(notes->gate[0], &byte, 1) == 0); /* lives on until the case is over */
            _exit(0);
        }
        MUST(pid > 0);
        for (start = now_s(); notes->lives == 0 || notes->waits < RANKS - 1; sched_yield())
            MUST(now_s() - start < 30);
        raise(SIGKILL);
    }
    start = now_s();
    notes->waits++;
    int err = sluice_allreduce(comm, &in, &out, 1, SLUICE_I32, SLUICE_SUM, NULL);

    notes->noticed_s = now_s() - start;
    MUST(err == -ECONNRESET);
}

static void a_child_does_not_hide_its_parents_death(void **state)
{
    (void)state;
    on_ranks(dies_and_leaves_a_child, 0);
    if (notes->noticed_s > 1.1)
        fail_msg("noticed after %.2f s", notes->noticed_s);
}

/* ---- communicators of their own ---- */

static void children_meet(struct sluice_comm *comm, int rank)
{
    struct sluice_comm *twin;

    MUST(sluice_comm_split(comm, 0, rank, &twin) == 0);
    rounds(twin, ROUNDS);
    rounds(comm, ROUNDS);
    rounds(twin, ROUNDS);
    pid_t pid = fork();

    if (pid == 0) {
        struct sluice_comm *own, *second;

        /* Two of them: a thread that waits in one moves its others, of which the parent's are
         * none. */
        MUST(sluice_comm_create_id(&notes->children_id, rank, RANKS, NULL, &own) == 0);
        MUST(sluice_comm_split(own, 0, rank, &second) == 0);
        for (int i = 0; i < 5; i++) {
            rounds(own, ROUNDS);
            rounds(second, ROUNDS);
        }
        sluice_comm_destroy(second);
        REFUSED(sluice_barrier(comm, NULL));
        pid_t grandchild = fork();

        if (grandchild == 0) {
            REFUSED(sluice_barrier(own, NULL));
            REFUSED(sluice_barrier(comm, NULL));
            _exit(0);
        }
        child_ends(grandchild);
        rounds(own, ROUNDS);
        sluice_comm_destroy(own);
        sluice_comm_destroy(comm);
        _exit(0);
    }
    rounds(comm, 10 * ROUNDS);
    child_ends(pid);
    rounds(comm, ROUNDS);
    rounds(twin, ROUNDS);
    sluice_comm_destroy(twin);
}

static void children_may_have_a_communicator_of_their_own(void **state)
{
    (void)state;
    on_ranks(children_meet, -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_is_refused_and_touches_nothing),
        cmocka_unit_test(nor_with_a_progress_thread),
        cmocka_unit_test(a_child_of_a_bare_clone_is_refused_too),
        cmocka_unit_test(a_child_does_not_hide_its_parents_death),
        cmocka_unit_test(children_may_have_a_communicator_of_their_own)};

    setenv("SLUICE_TUNE", "off", 1);
    setenv("SLUICE_INTERFACE", "lo", 1);
    setenv("SLUICE_TIMEOUT_MS", "20000", 1);
    notes = mmap(NULL, sizeof(*notes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
