/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Real ranks, one of which misbehaves after some steps, for live diagnosis.
 *
 *   live_ranks SIZE FAULT RANK     FAULT: none, stop, kill, sleep, other, exit, or within-MS
 *
 * Each step is an allreduce of all ranks and one of each half of them; with within-MS a long
 * all_gather of all ranks, and the rank stops so many milliseconds after it has called one. The
 * parent waits for its children and says on standard output which process is which rank, and when
 * the fault came.
 */
#include <sluice/sluice.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define COUNT 20000
#define STEPS_BEFORE 20
#define RANKS_MAX 64
#define WITHIN "within-"
#define LARGE (1 << 20) /* elements of each rank in a long all_gather */

static float values[COUNT], results[COUNT];

static int complain(const char *what)
{
    fprintf(stderr, "live_ranks: %s: %s\n", what, sluice_last_error());
    return 1;
}

static void say_fault(int rank)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    printf("fault rank %d pid %d at %lld.%03ld\n", rank, (int)getpid(), (long long)now.tv_sec,
           now.tv_nsec / 1000000);
    fflush(stdout);
}

static int misbehave(struct sluice_comm *comm, const char *fault, int rank)
{
    if (strcmp(fault, "none") == 0) {
        printf("step %d\n", STEPS_BEFORE);
        fflush(stdout);
        return 0;
    }
    say_fault(rank);
    if (strcmp(fault, "stop") == 0)
        raise(SIGSTOP);
    else if (strcmp(fault, "kill") == 0)
        raise(SIGKILL);
    else if (strcmp(fault, "sleep") == 0)
        sleep(3600);
    else if (strcmp(fault, "exit") == 0)
        exit(0);
    else if (strcmp(fault, "other") == 0)
        return sluice_broadcast(comm, values, values, COUNT, SLUICE_F32, 0, NULL);
    return 0;
}

/* Stops the process in the middle of what it is at then. */
static void stop_within(const char *fault, int rank)
{
    struct itimerspec in = {.it_value.tv_nsec = atol(fault + strlen(WITHIN)) * 1000000};
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGSTOP};
    timer_t timer;

    say_fault(rank);
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) == 0)
        timer_settime(timer, 0, &in, NULL);
}

static int run_gathers(struct sluice_comm *all, const char *fault, int victim)
{
    int rank = sluice_comm_rank(all), err = 0;
    float *from = calloc(LARGE, sizeof(*from));
    float *to = calloc((size_t)LARGE * (size_t)sluice_comm_size(all), sizeof(*to));

    for (int i = 0; err == 0 && from != NULL && to != NULL; i++) {
        if (i == STEPS_BEFORE && rank == victim)
            stop_within(fault, rank);
        err = sluice_all_gather(all, from, to, LARGE, SLUICE_F32, NULL);
    }
    free(from);
    free(to);
    return err;
}

static int step(struct sluice_comm *all, struct sluice_comm *half)
{
    struct timespec pause = {.tv_nsec = 5000000};
    int err = sluice_allreduce(all, values, results, COUNT, SLUICE_F32, SLUICE_SUM, NULL);

    if (err == 0)
        err = sluice_allreduce(half, values, results, COUNT, SLUICE_F32, SLUICE_SUM, NULL);
    nanosleep(&pause, NULL);
    return err;
}

static int run(const char *fault, int victim)
{
    struct sluice_comm *all, *half;
    int rank, err = 0;

    if (sluice_comm_from_env(&all) != 0)
        return complain("it cannot start");
    rank = sluice_comm_rank(all);
    if (sluice_comm_split(all, rank * 2 / sluice_comm_size(all), rank, &half) != 0)
        return complain("it cannot split");
    if (strncmp(fault, WITHIN, strlen(WITHIN)) == 0)
        err = run_gathers(all, fault, victim);
    for (int i = 0; err == 0; i++) {
        if (i == STEPS_BEFORE && rank == victim)
            err = misbehave(all, fault, rank);
        if (err == 0)
            err = step(all, half);
    }
    complain("an operation failed");
    pause(); /* as a program that does not notice */
    return 1;
}

static int start(int rank, int size, const char *fault, int victim)
{
    char text[16];
    pid_t child = fork();

    if (child != 0) {
        printf("rank %d pid %d\n", rank, (int)child);
        fflush(stdout);
        return child > 0 ? 0 : -1;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    snprintf(text, sizeof(text), "%d", rank);
    setenv("SLUICE_RANK", text, 1);
    snprintf(text, sizeof(text), "%d", size);
    setenv("SLUICE_SIZE", text, 1);
    exit(run(fault, victim));
}

int main(int argc, char **argv)
{
    int size = argc == 4 ? atoi(argv[1]) : 0;

    if (size < 2 || size > RANKS_MAX) {
        fputs("usage: live_ranks SIZE none|stop|kill|sleep|other|exit|within-MS RANK\n", stderr);
        return 2;
    }
    for (int rank = 0; rank < size; rank++)
        if (start(rank, size, argv[2], atoi(argv[3])) != 0)
            return 1;
    while (wait(NULL) > 0)
        continue;
    return 0;
}
