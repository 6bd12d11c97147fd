/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allreduce of one size, one after the other, and how fast they go: for cases in which a rail gets
 * worse, or better, while they run.
 *
 * usage: pace STOP [BYTES [EVERY_MS]]
 *   STOP      the file that ends it; rank 0 looks, all ranks end after the same operation
 *   BYTES     of each operation (1048576)
 *   EVERY_MS  how often it is told (250)
 *
 * Rank 0 prints "pace AT OPERATIONS MBS LONGEST": ms of the host's monotonic clock, how many ended
 * since the last line, their bytes a second in MB/s, and the longest in ms. Exit status 1: a wrong
 * element. 3: an operation failed.
 */
#include <errno.h>
#include <sluice/sluice.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define EXIT_WRONG 1
#define EXIT_USAGE 2
#define EXIT_FAILED 3

struct pace {
    struct sluice_comm *comm;
    int rank, size;
    const char *stop;
    size_t count; /* elements */
    double every_ms, told_ms, longest_ms;
    unsigned operations;
    uint32_t *in, *out;
};

static double now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec * 1e-6;
}

static int failed(int err)
{
    printf("failed: %d: %s\n", err, sluice_last_error());
    return EXIT_FAILED;
}

static void tell(struct pace *pace, double took_ms)
{
    double now = now_ms(), passed = now - pace->told_ms;

    pace->operations++;
    if (took_ms > pace->longest_ms)
        pace->longest_ms = took_ms;
    if (passed < pace->every_ms)
        return;
    if (pace->rank == 0)
        printf("pace %.0f %u %.2f %.1f\n", now, pace->operations,
               pace->operations * (double)(pace->count * sizeof(uint32_t)) / passed / 1e3,
               pace->longest_ms);
    pace->operations = 0;
    pace->longest_ms = 0;
    pace->told_ms = now;
}

/* The first element asks for the end, the last one shows that data arrived. */
static int run(struct pace *pace)
{
    pace->told_ms = now_ms();
    for (uint32_t turn = 1;; turn++) {
        double began = now_ms();
        struct sluice_req *req;
        int err;

        pace->in[0] = pace->rank == 0 && access(pace->stop, F_OK) == 0;
        pace->in[pace->count - 1] = turn + (uint32_t)pace->rank;
        err = sluice_allreduce(pace->comm, pace->in, pace->out, pace->count, SLUICE_U32, SLUICE_SUM,
                               &req);
        if (err == 0) {
            err = sluice_wait(req);
            sluice_req_free(req);
        }
        if (err != 0)
            return failed(err);
        if (pace->out[pace->count - 1] !=
            turn * (uint32_t)pace->size + (uint32_t)(pace->size * (pace->size - 1) / 2)) {
            printf("wrong: operation %u\n", turn);
            return EXIT_WRONG;
        }
        tell(pace, now_ms() - began);
        if (pace->out[0] != 0) {
            printf("done: %u operations\n", turn);
            return 0;
        }
    }
}

int main(int argc, char **argv)
{
    struct pace pace = {.every_ms = argc > 3 ? strtod(argv[3], NULL) : 250};
    size_t bytes = argc > 2 ? strtoull(argv[2], NULL, 10) : 1048576;
    int err, status;

    if (argc < 2 || bytes < 2 * sizeof(uint32_t))
        return EXIT_USAGE;
    setvbuf(stdout, NULL, _IOLBF, 0);
    pace.stop = argv[1];
    pace.count = bytes / sizeof(uint32_t);
    err = sluice_comm_from_env(&pace.comm);
    if (err != 0)
        return failed(err);
    pace.rank = sluice_comm_rank(pace.comm);
    pace.size = sluice_comm_size(pace.comm);
    pace.in = calloc(pace.count, sizeof(uint32_t));
    pace.out = calloc(pace.count, sizeof(uint32_t));
    if (pace.in == NULL || pace.out == NULL)
        return failed(-ENOMEM);
    status = run(&pace);
    sluice_comm_destroy(pace.comm);
    free(pace.in);
    free(pace.out);
    return status;
}
