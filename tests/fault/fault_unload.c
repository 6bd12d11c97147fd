/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that loads libsluice.so, uses it and closes it, again and again, as plugins of trainers
 * do: no thread and no descriptor stays, and nothing calls into what was closed. Two ranks over the
 * transport that SLUICE_TRANSPORT names; the argument is the library.
 */
#include <sluice/sluice.h>

#include <dirent.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#define RANKS 2
#define LOADS 3
#define N 50000
#define ROUNDS 10

/* Seen by both ranks. */
struct notes {
    char trouble[512];
    char root[64]; /* where the ranks meet */
};

/* The library, as a program that does not link with it has it. */
struct library {
    void *handle;
    __typeof__(&sluice_config_init) config_init;
    __typeof__(&sluice_comm_create) create;
    __typeof__(&sluice_comm_split) split;
    __typeof__(&sluice_comm_destroy) destroy;
    __typeof__(&sluice_allreduce) allreduce;
    __typeof__(&sluice_barrier) barrier;
    __typeof__(&sluice_last_error) last_error;
};

static struct notes *notes;
static const char *library_path;
static struct library lib;

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            if (notes->trouble[0] == '\0')                                                         \
                snprintf(notes->trouble, sizeof(notes->trouble), "line %d: %s; last error: %s",    \
                         __LINE__, #condition, lib.handle != NULL ? lib.last_error() : "none");    \
            _exit(3);                                                                              \
        }                                                                                          \
    } while (0)

static int entries(const char *path)
{
    DIR *dir = opendir(path);
    int count = 0;

    MUST(dir != NULL);
    while (readdir(dir) != NULL)
        count++;
    closedir(dir);
    return count;
}

static void load(void)
{
    lib.handle = NULL;
    void *handle = dlopen(library_path, RTLD_NOW | RTLD_LOCAL);

    if (handle == NULL)
        fprintf(stderr, "%s\n", dlerror());
    MUST(handle != NULL);
    *(void **)&lib.config_init = dlsym(handle, "sluice_config_init");
    *(void **)&lib.create = dlsym(handle, "sluice_comm_create");
    *(void **)&lib.split = dlsym(handle, "sluice_comm_split");
    *(void **)&lib.destroy = dlsym(handle, "sluice_comm_destroy");
    *(void **)&lib.allreduce = dlsym(handle, "sluice_allreduce");
    *(void **)&lib.barrier = dlsym(handle, "sluice_barrier");
    *(void **)&lib.last_error = dlsym(handle, "sluice_last_error");
    lib.handle = handle;
}

static void unload(void)
{
    MUST(dlclose(lib.handle) == 0);
    lib.handle = NULL;
}

static void add(struct sluice_comm *comm, int rank)
{
    static _Thread_local int32_t in[N], out[N];

    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < N; i++)
            in[i] = rank + i + round;
        MUST(lib.allreduce(comm, in, out, N, SLUICE_I32, SLUICE_SUM, NULL) == 0);
        for (int i = 0; i < N; i++)
            MUST(out[i] == 1 + 2 * (i + round));
    }
}

static int own_rank;

static void *add_beside(void *comm)
{
    add(comm, own_rank);
    return NULL;
}

/* Two communicators, used by two threads at once. */
static void use(int rank)
{
    struct sluice_comm *comm, *child;
    struct sluice_config config;
    pthread_t thread;

    lib.config_init(&config);
    config.rank = rank;
    config.size = RANKS;
    config.root = notes->root;
    MUST(lib.create(&config, &comm) == 0);
    MUST(lib.split(comm, 0, rank, &child) == 0);
    own_rank = rank;
    MUST(pthread_create(&thread, NULL, add_beside, child) == 0);
    add(comm, rank);
    MUST(pthread_join(thread, NULL) == 0);
    MUST(lib.barrier(comm, NULL) == 0);
    lib.destroy(child);
    lib.destroy(comm);
}

static void *nothing(void *arg)
{
    return arg;
}

/* With the thread that a sanitizer starts beside a program's first one. */
static int own_threads(void)
{
    pthread_t thread;

    MUST(pthread_create(&thread, NULL, nothing, NULL) == 0);
    MUST(pthread_join(thread, NULL) == 0);
    return entries("/proc/self/task");
}

/* A thread may still be on its way out. */
static void threads_end(int before)
{
    for (time_t end = time(NULL) + 20; entries("/proc/self/task") > before;)
        MUST(time(NULL) < end);
}

/* What the first load leaves open (a provider's own files) is there from then on. */
static void load_and_use(int rank)
{
    int threads = own_threads(), descriptors = 0;

    for (int i = 0; i < LOADS; i++) {
        load();
        use(rank);
        unload();
        threads_end(threads);
        if (i == 0)
            descriptors = entries("/proc/self/fd");
        MUST(entries("/proc/self/fd") == descriptors);
    }
}

/* A port that is free now. */
static void choose_root(void)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(addr);
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&addr, len), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&addr, &len), 0);
    close(fd);
    snprintf(notes->root, sizeof(notes->root), "127.0.0.1:%u", ntohs(addr.sin_port));
}

static void run_ranks(void (*body)(int rank))
{
    pid_t pids[RANKS];
    int status;

    memset(notes, 0, sizeof(*notes));
    choose_root();
    fflush(NULL);
    for (int rank = 0; rank < RANKS; rank++) {
        pids[rank] = fork();
        assert_true(pids[rank] >= 0);
        if (pids[rank] == 0) {
            alarm(60);
            for (int i = 0; i < 4; i++) /* cmocka's handlers are for the test's own process */
                signal((int[]){SIGSEGV, SIGBUS, SIGFPE, SIGILL}[i], SIG_DFL);
            body(rank);
            _exit(0);
        }
    }
    for (int rank = 0; rank < RANKS; rank++) {
        assert_int_equal(waitpid(pids[rank], &status, 0), pids[rank]);
        if (status != 0 && notes->trouble[0] == '\0')
            snprintf(notes->trouble, sizeof(notes->trouble), "rank %d ended with status %#x", rank,
                     status);
    }
    if (notes->trouble[0] != '\0')
        fail_msg("%s", notes->trouble);
}

static void a_library_that_was_closed_leaves_nothing(void **state)
{
    (void)state;
    run_ranks(load_and_use);
}

static void nor_with_a_progress_thread(void **state)
{
    (void)state;
    setenv("SLUICE_PROGRESS", "thread", 1);
    run_ranks(load_and_use);
    unsetenv("SLUICE_PROGRESS");
}

/* Handlers of fork() are the library's, too. */
static void fork_after_it(int rank)
{
    int status = -1;

    load();
    use(rank);
    unload();
    pid_t child = fork();

    if (child == 0)
        _exit(0);
    MUST(waitpid(child, &status, 0) == child && status == 0);
}

static void what_was_closed_is_not_called_in_a_child(void **state)
{
    (void)state;
    run_ranks(fork_after_it);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_library_that_was_closed_leaves_nothing),
                                       cmocka_unit_test(nor_with_a_progress_thread),
                                       cmocka_unit_test(what_was_closed_is_not_called_in_a_child)};

    if (argc != 2) {
        fprintf(stderr, "usage: fault_unload LIBRARY\n");
        return 2;
    }
    setenv("SLUICE_TUNE", "off", 1);
    setenv("SLUICE_INTERFACE", "lo", 0);
    setenv("SLUICE_TIMEOUT_MS", "20000", 1);
    library_path = argv[1];
    notes = mmap(NULL, sizeof(*notes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
