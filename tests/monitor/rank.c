/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank as training jobs have them, for the injection campaign: steps of computing and of one
 * checked collective, until rank 0 is asked to end (SIGTERM); its data tells the others.
 *
 *   monitor_rank [--bytes N] [--busy-us N] [--sleep-us N] [--from RANK] [--dataset FILE]
 *
 * Says "ready PID" after the first step, and "steps N" at the end. Status 0; 1: a call failed, and
 * what it said; 3: a value was wrong.
 */
#include <sluice/sluice.h>

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096
#define STRIDE 613     /* pages; prime, so that all of them come in turn */
#define CHECK_EVERY 61 /* elements: prime, so that each piece of a message is looked at */

struct job {
    size_t count;               /* elements, at least 2 */
    uint64_t busy_ns, slept_us; /* of a step, computing and not */
    int root;                   /* whose data it is; -1: of all, summed */
    const unsigned char *dataset;
    size_t dataset_len, at;
    float *in, *out;
    uint64_t steps;
};

static volatile sig_atomic_t is_over;
static volatile unsigned char sink;

static void on_signal(int number)
{
    (void)number;
    is_over = 1;
}

static uint64_t cpu_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

/* By time on the processor: whoever is kept from it takes longer, as a rank that computes does. */
static void compute(struct job *job)
{
    uint64_t until = cpu_ns() + job->busy_ns;
    volatile float sum = 0;

    while (job->busy_ns != 0 && cpu_ns() < until)
        for (unsigned i = 0; i < 2000; i++)
            sum = sum + (float)i;
    /* A batch of a data set: pages that the kernel may have taken back meanwhile. */
    for (unsigned i = 0; job->dataset != NULL && i < 256; i++) {
        sink = job->dataset[job->at];
        job->at = (job->at + PAGE) % job->dataset_len;
    }
    if (job->slept_us != 0)
        usleep((useconds_t)job->slept_us);
}

/* Small whole numbers, so that every order of adding is exact. The first element says who ends. */
static float value(const struct job *job, int rank, size_t i)
{
    return (float)((i + job->steps) % 17 + (size_t)rank);
}

static float expected(const struct job *job, int size, size_t i)
{
    float sum = 0;

    if (job->root >= 0)
        return value(job, job->root, i);
    for (int rank = 0; rank < size; rank++)
        sum += value(job, rank, i);
    return sum;
}

/* 0: go on; 1: all end now; negative: it failed. */
static int step(struct sluice_comm *comm, struct job *job)
{
    int rank = sluice_comm_rank(comm), size = sluice_comm_size(comm), err;

    for (size_t i = 1; i < job->count; i += CHECK_EVERY)
        job->in[i] = value(job, rank, i);
    job->in[0] = is_over && rank == (job->root >= 0 ? job->root : 0) ? 1 : 0;
    err = job->root >= 0
              ? sluice_broadcast(comm, job->in, job->out, job->count, SLUICE_F32, job->root, NULL)
              : sluice_allreduce(comm, job->in, job->out, job->count, SLUICE_F32, SLUICE_SUM, NULL);
    if (err != 0)
        return err;
    for (size_t i = 1; i < job->count; i += CHECK_EVERY)
        if (job->out[i] != expected(job, size, i)) {
            fprintf(stderr, "rank %d: step %llu: element %zu is %g and not %g\n", rank,
                    (unsigned long long)job->steps, i, (double)job->out[i],
                    (double)expected(job, size, i));
            exit(3);
        }
    job->steps++;
    return job->out[0] != 0;
}

static int map_dataset(const char *path, struct job *job)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat stat;
    void *data;

    if (fd < 0 || fstat(fd, &stat) != 0 || stat.st_size < PAGE)
        return -EINVAL;
    data = mmap(NULL, (size_t)stat.st_size, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (data == MAP_FAILED)
        return -errno;
    job->dataset = data;
    job->dataset_len = (size_t)stat.st_size / PAGE * PAGE;
    return 0;
}

static int run(struct job *job)
{
    struct sluice_comm *comm;
    int err = sluice_comm_from_env(&comm);

    if (err != 0) {
        fprintf(stderr, "cannot start: %s\n", sluice_last_error());
        return 1;
    }
    err = step(comm, job);
    printf("ready %d\n", (int)getpid());
    fflush(stdout);
    while (err == 0) {
        compute(job);
        err = step(comm, job);
    }
    if (err < 0)
        fprintf(stderr, "rank %d: %s\n", sluice_comm_rank(comm), sluice_last_error());
    sluice_comm_destroy(comm);
    printf("steps %llu\n", (unsigned long long)job->steps);
    return err < 0;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"bytes", required_argument, NULL, 'b'},    {"busy-us", required_argument, NULL, 'u'},
        {"sleep-us", required_argument, NULL, 's'}, {"from", required_argument, NULL, 'f'},
        {"dataset", required_argument, NULL, 'd'},  {NULL, 0, NULL, 0}};
    struct job job = {.count = (1 << 20) / sizeof(float), .root = -1};
    const char *dataset = NULL;
    int option;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1)
        switch (option) {
        case 'b': job.count = strtoul(optarg, NULL, 0) / sizeof(float); break;
        case 'u': job.busy_ns = strtoull(optarg, NULL, 0) * 1000; break;
        case 's': job.slept_us = strtoull(optarg, NULL, 0); break;
        case 'f': job.root = atoi(optarg); break;
        case 'd': dataset = optarg; break;
        default: return 2;
        }
    if (job.count < 2)
        job.count = 2;
    job.in = calloc(job.count, sizeof(float));
    job.out = calloc(job.count, sizeof(float));
    if (job.in == NULL || job.out == NULL || (dataset != NULL && map_dataset(dataset, &job) != 0)) {
        fprintf(stderr, "no memory, or no data set\n");
        return 2;
    }
    signal(SIGTERM, on_signal);
    return run(&job);
}
