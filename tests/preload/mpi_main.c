/* SPDX-License-Identifier: Apache-2.0 */
/* The MPI program of the shim's tests: runs the parts and says how each went.
 * usage: PROGRAM [PART] with a word of its name; PROGRAM lonely runs a story that ends the job */
#include "mpi_check.h"

#include <complex.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int world_rank, world_size;
static int wrong;

bool check(bool cond, const char *fmt, ...)
{
    va_list args;

    if (cond)
        return true;
    if (wrong++ < 5) {
        char text[300];

        va_start(args, fmt);
        vsnprintf(text, sizeof(text), fmt, args);
        va_end(args);
        fprintf(stderr, "rank %d: %s\n", world_rank, text);
    }
    return false;
}

static const char *chosen = ""; /* parts whose name has this in it */

static void run(const char *name, void (*part)(void))
{
    int all = 0, theirs;

    if (strstr(name, chosen) == NULL)
        return;
    wrong = 0;
    part();
    if (world_rank != 0) {
        MPI_Send(&wrong, 1, MPI_INT, 0, 99, MPI_COMM_WORLD);
        return;
    }
    all = wrong;
    for (int r = 1; r < world_size; r++) {
        MPI_Recv(&theirs, 1, MPI_INT, r, 99, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        all += theirs;
    }
    printf("%s %s\n", all == 0 ? "ok" : "not ok", name);
    fflush(stdout);
}

bool same_everywhere(MPI_Comm comm, const void *bytes, size_t len)
{
    int rank, size, same = 1, theirs;
    char *first = malloc(len);

    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    memcpy(first, bytes, len);
    /* Along a chain, and the verdict back. */
    if (rank > 0) {
        MPI_Recv(first, (int)len, MPI_BYTE, rank - 1, 1, comm, MPI_STATUS_IGNORE);
        same = memcmp(first, bytes, len) == 0;
    }
    if (rank + 1 < size) {
        MPI_Send(first, (int)len, MPI_BYTE, rank + 1, 1, comm);
        MPI_Recv(&theirs, 1, MPI_INT, rank + 1, 2, comm, MPI_STATUS_IGNORE);
        same = same && theirs;
    }
    if (rank > 0)
        MPI_Send(&same, 1, MPI_INT, rank - 1, 2, comm);
    free(first);
    return same;
}

struct kind kinds[32];
int kind_count;

static void add_kind(const char *name, MPI_Datatype type, char what)
{
    int size;

    MPI_Type_size(type, &size);
    kinds[kind_count++] = (struct kind){name, type, size, what};
}

static void list_kinds(void)
{
    add_kind("signed char", MPI_SIGNED_CHAR, 'i');
    add_kind("unsigned char", MPI_UNSIGNED_CHAR, 'u');
    add_kind("short", MPI_SHORT, 'i'); /* the engine has none: passed on */
    add_kind("int", MPI_INT, 'i');
    add_kind("unsigned", MPI_UNSIGNED, 'u');
    add_kind("long", MPI_LONG, 'i');
    add_kind("unsigned long", MPI_UNSIGNED_LONG, 'u');
    add_kind("long long", MPI_LONG_LONG, 'i');
    add_kind("int8", MPI_INT8_T, 'i');
    add_kind("uint32", MPI_UINT32_T, 'u');
    add_kind("int64", MPI_INT64_T, 'i');
    add_kind("uint64", MPI_UINT64_T, 'u');
    add_kind("float", MPI_FLOAT, 'f');
    add_kind("double", MPI_DOUBLE, 'f');
    add_kind("float complex", MPI_C_FLOAT_COMPLEX, 'c');
    add_kind("double complex", MPI_C_DOUBLE_COMPLEX, 'c');
}

/* Whole numbers fit every kind; on the machines that run this the low bytes come first. */
void put(const struct kind *k, void *buf, size_t idx, long value)
{
    char *at = (char *)buf + idx * (size_t)k->size;
    double d[2] = {(double)value, (double)-value};
    float f[2] = {(float)value, (float)-value};

    if (k->what == 'i' || k->what == 'u')
        memcpy(at, &value, (size_t)k->size);
    else if (k->size == 4 || (k->what == 'c' && k->size == 8))
        memcpy(at, f, (size_t)k->size);
    else
        memcpy(at, d, (size_t)k->size);
}

/* A complex number whose parts do not belong together reads as a number that nobody put there. */
long get(const struct kind *k, const void *buf, size_t idx)
{
    const char *at = (const char *)buf + idx * (size_t)k->size;
    long value = 0;
    double d[2] = {0, 0};
    float f[2] = {0, 0};

    if (k->what == 'u' || k->what == 'i') {
        memcpy(&value, at, (size_t)k->size);
        int unused = 64 - 8 * k->size;

        return k->what == 'u' ? value : (long)((unsigned long)value << unused) >> unused;
    }
    if (k->size == 4 || (k->what == 'c' && k->size == 8)) {
        memcpy(f, at, (size_t)k->size);
        d[0] = f[0];
        d[1] = f[1];
    } else {
        memcpy(d, at, (size_t)k->size);
    }
    return k->what == 'c' && d[1] != -d[0] ? -77777 : (long)d[0];
}

void *room(const struct kind *k, size_t count)
{
    size_t len = (count + 1) * (size_t)k->size;
    char *memory = malloc(len);

    memset(memory, 0x5a, len);
    return memory;
}

MPI_Comm make_comm(int which)
{
    MPI_Comm comm = MPI_COMM_WORLD;

    if (which == 1)
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    else if (which == 2)
        MPI_Comm_split(MPI_COMM_WORLD, world_rank % 2, world_rank, &comm);
    else if (which == 3)
        MPI_Comm_split(MPI_COMM_WORLD, 0, -world_rank, &comm);
    return comm;
}

void drop_comm(int which, MPI_Comm comm)
{
    if (which != 0)
        MPI_Comm_free(&comm);
}

static int handled;

static void handler(MPI_Comm *comm, int *code, ...)
{
    (void)comm;
    check(*code != MPI_SUCCESS, "the handler is called without an error");
    handled++;
}

/* Rank 0 stays away longer than the deadline lasts: the others' collective ends with an error of
 * MPI's. */
static void lonely(void)
{
    double one = 1, sum = 0;
    MPI_Errhandler mine;
    char text[MPI_MAX_ERROR_STRING];
    int class = 0, len = 0, code;

    MPI_Allreduce(&one, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    check(sum == world_size, "the first sum is %g", sum);
    MPI_Comm_create_errhandler(handler, &mine);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, mine);
    if (world_rank == 0) { /* stays away until all others have given up */
        for (int r = 1; r < world_size; r++)
            MPI_Recv(&sum, 1, MPI_DOUBLE, r, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        return;
    }
    code = MPI_Allreduce(&one, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Send(&one, 1, MPI_DOUBLE, 0, 0, MPI_COMM_WORLD);
    MPI_Error_class(code, &class);
    MPI_Error_string(code, text, &len);
    check(handled == 1, "the error handler was called %d times", handled);
    check(class == MPI_ERR_OTHER, "the class of error %d is %d", code, class);
    /* MPICH has no texts of others for this class. */
    check(code == MPI_ERR_OTHER || strstr(text, "rank 0") != NULL, "the text names nobody: %s",
          text);
}

/* The root of a gather says nowhere where the parts belong: an error for every rank, and a signal
 * for none. */
static void no_places(void)
{
    double one = 1, sum = 0, all[64];
    int counts[64], class = 0, code;

    /* A rank that has not left this one yet when rank 0 gives up has its error here already. */
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    code = MPI_Allreduce(&one, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    if (world_rank == 0)
        check(code == MPI_SUCCESS && sum == world_size, "the sum before is %g, error %d", sum,
              code);
    for (int r = 0; r < world_size; r++)
        counts[r] = 1;
    code = MPI_Gatherv(&one, 1, MPI_DOUBLE, all, counts, NULL, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    MPI_Error_class(code, &class);
    check(class == MPI_ERR_OTHER, "the class of error %d is %d", code, class);
}

/* For ranks of which one has no shim: its first call must not take what the others tell each other
 * for data. */
static void first_gather(void)
{
    long mine = 1000 + world_rank, all[64] = {0};

    MPI_Allgather(&mine, 1, MPI_LONG, all, 1, MPI_LONG, MPI_COMM_WORLD);
    for (int r = 0; r < world_size; r++)
        if (all[r] != 1000 + r)
            printf("not ok: rank %d has %lx of rank %d\n", world_rank, (unsigned long)all[r], r);
    fflush(stdout);
}

/* A data loader: a child that ends by exit() and has nothing to report. */
static void forks(void)
{
    double one = 1, sum = 0;
    int status = -1;

    MPI_Allreduce(&one, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    fflush(NULL);
    pid_t pid = fork();

    if (pid == 0)
        exit(0);
    check(waitpid(pid, &status, 0) == pid && status == 0, "the child ended with status %d", status);
    MPI_Allreduce(&one, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    check(sum == world_size, "the sum after a fork is %g", sum);
}

static int provided;

static void run_threads(void)
{
    threads(provided);
}

int main(int argc, char **argv)
{
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    list_kinds();
    if (argc > 1 && strcmp(argv[1], "lonely") == 0) {
        run("a_rank_that_stays_away_ends_in_the_error_handler_with_its_name", lonely);
    } else if (argc > 1 && strcmp(argv[1], "no_places") == 0) {
        run("a_root_without_places_is_an_error", no_places);
    } else if (argc > 1 && strcmp(argv[1], "forks") == 0) {
        run("ranks_may_fork", forks);
    } else if (argc > 1 && strcmp(argv[1], "first_gather") == 0) {
        run("all_gathered_at_once", first_gather);
    } else {
        chosen = argc > 1 ? argv[1] : "";
        run("reductions_of_every_type_and_operator_are_right", reductions);
        run("products_of_complex_numbers_are_right", complex_products);
        run("sums_of_fractions_are_the_same_on_all_ranks_and_near_the_true_sum", sums_in_any_order);
        run("moves_of_every_type_are_right", moves);
        run("blocks_with_a_size_for_each_rank_are_right", blocks);
        run("types_may_differ_from_rank_to_rank_and_need_not_be_dense", mixed_types);
        run("what_the_engine_has_not_is_done_by_mpi", passed_on);
        run("communicators_come_and_go", lives);
        run("copies_share_connections", copies);
        run("messages_arrive_while_a_rank_waits_in_a_collective", waits);
        run("threads_use_communicators_side_by_side", run_threads);
    }
    MPI_Finalize();
    return 0;
}
