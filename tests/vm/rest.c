/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank that has its result and computes, in no call of the library, while a path between it and
 * its peer breaks: what the other rank has sent must end all the same, well before its deadline.
 *
 * usage: rest DIR    as rank 0 or 1 of 2
 *   DIR/broken  appears once the path is broken, after rank 1 has printed "posted"
 *   DIR/over    rank 0 makes it when its sends are over; rank 1 rests until then
 *
 * Rank 0 prints "sent after MS ms". Both print "done". Exit status 1: a wrong byte, or a file that
 * does not come. 3: an operation failed.
 */
#include <fcntl.h>
#include <sluice/sluice.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define EXIT_WRONG 1
#define EXIT_USAGE 2
#define EXIT_FAILED 3
#define MESSAGES 8
#define BYTES 20001 /* all that is in flight passes without an acknowledge */
#define PATIENCE_MS 60000

static uint8_t data[MESSAGES][BYTES];
static struct sluice_req *reqs[MESSAGES];

static double now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec * 1e-6;
}

static uint8_t value(unsigned round, unsigned message, size_t at)
{
    return (uint8_t)(round * 101 + message * 31 + at * 7 + (at >> 8));
}

static int failed(void)
{
    printf("failed: %s\n", sluice_last_error());
    return EXIT_FAILED;
}

/* In no call of the library meanwhile. */
static int rest_until(const char *dir, const char *name)
{
    double end = now_ms() + PATIENCE_MS;
    char path[256];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    while (access(path, F_OK) != 0) {
        if (now_ms() > end) {
            printf("wrong: %s does not come\n", path);
            return EXIT_WRONG;
        }
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); /* between looks */
    }
    return 0;
}

static int make(const char *dir, const char *name)
{
    char path[256];
    int fd;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    fd = open(path, O_CREAT | O_WRONLY, 0600);
    return fd < 0 || close(fd) != 0 ? EXIT_WRONG : 0;
}

static int start_all(struct sluice_comm *comm, unsigned round)
{
    int rank = sluice_comm_rank(comm), err = 0;

    for (unsigned m = 0; m < MESSAGES && err == 0; m++) {
        for (size_t i = 0; i < BYTES; i++)
            data[m][i] = rank == 0 ? value(round, m, i) : 0;
        err = rank == 0 ? sluice_send(comm, data[m], BYTES, SLUICE_U8, 1, &reqs[m])
                        : sluice_recv(comm, data[m], BYTES, SLUICE_U8, 0, &reqs[m]);
    }
    return err;
}

static int end_all(void)
{
    int err = 0;

    for (unsigned m = 0; m < MESSAGES && err == 0; m++)
        err = sluice_wait(reqs[m]);
    for (unsigned m = 0; m < MESSAGES; m++)
        sluice_req_free(reqs[m]);
    return err;
}

static int check(unsigned round)
{
    for (unsigned m = 0; m < MESSAGES; m++)
        for (size_t i = 0; i < BYTES; i++)
            if (data[m][i] != value(round, m, i)) {
                printf("wrong: round %u, message %u, byte %zu\n", round, m, i);
                return EXIT_WRONG;
            }
    return 0;
}

static int carry(struct sluice_comm *comm, unsigned round)
{
    return start_all(comm, round) != 0 || end_all() != 0 ? failed() : check(round);
}

/* Rank 1 posts, the path breaks, rank 0 sends, rank 1 has everything and rests. */
static int send_to_one_that_rests(struct sluice_comm *comm, const char *dir, unsigned round)
{
    double started;
    int status;

    if (sluice_comm_rank(comm) == 1) {
        if (start_all(comm, round) != 0 || sluice_test(reqs[0]) < 0)
            return failed();
        printf("posted\n");
        if (end_all() != 0)
            return failed();
        status = check(round);
        return status != 0 ? status : rest_until(dir, "over");
    }
    status = rest_until(dir, "broken");
    started = now_ms();
    if (status == 0)
        status = carry(comm, round);
    if (status == 0)
        printf("sent after %.0f ms\n", now_ms() - started);
    return status != 0 ? status : make(dir, "over");
}

int main(int argc, char **argv)
{
    struct sluice_comm *comm;
    int status;

    if (argc != 2) {
        fprintf(stderr, "usage: rest DIR\n");
        return EXIT_USAGE;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (sluice_comm_from_env(&comm) != 0)
        return failed();
    status = carry(comm, 1);
    if (status == 0)
        status = send_to_one_that_rests(comm, argv[1], 2);
    if (status == 0)
        status = carry(comm, 3);
    if (status == 0)
        printf("done\n");
    sluice_comm_destroy(comm);
    return status;
}
