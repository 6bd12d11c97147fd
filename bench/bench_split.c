/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Splits of a world of processes: how long one takes from the first rank's call to the last rank's
 * return, and what it adds to a rank in descriptors and mappings.
 *
 *   usage: bench_split [RANKS [SPLITS [anew]]]    64 ranks and 64 splits, which live at the end
 *
 * anew: not splits, but communicators of all ranks that are made by an id, which rank 0 draws and
 * tells before the clock is taken. Their ranks meet, and join the world's family.
 *
 * All SLUICE_* apply. Each rank takes the clock before the call and after it; from one barrier to
 * the next the earliest and the latest count.
 */
#include <sluice/sluice.h>

#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define RANKS_MAX 1024
#define SPLITS_MAX 1000

static void check(int err, const char *what)
{
    if (err == 0)
        return;
    fprintf(stderr, "bench_split: %s: %s\n", what, sluice_last_error());
    _exit(1);
}

/* The same clock in all processes of a host. */
static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int count_entries(const char *path)
{
    DIR *dir = opendir(path);
    int count = 0;

    while (dir != NULL && readdir(dir) != NULL)
        count++;
    if (dir != NULL)
        closedir(dir);
    return count;
}

static int count_lines(const char *path)
{
    FILE *f = fopen(path, "re");
    int count = 0, c;

    while (f != NULL && (c = fgetc(f)) != EOF)
        count += c == '\n';
    if (f != NULL)
        fclose(f);
    return count;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static bool anew;

static double split_once(struct sluice_comm *world, int rank, struct sluice_comm **child)
{
    struct sluice_unique_id id = {{0}};
    double times[2], most[2];

    if (anew && rank == 0)
        check(sluice_unique_id_create(&id), "id");
    if (anew)
        check(sluice_broadcast(world, &id, &id, sizeof(id), SLUICE_U8, 0, NULL), "broadcast");
    check(sluice_barrier(world, NULL), "barrier");
    times[0] = -now_us();
    if (anew)
        check(sluice_comm_create_id(&id, rank, sluice_comm_size(world), NULL, child), "start");
    else
        check(sluice_comm_split(world, 0, rank, child), "split");
    times[1] = now_us();
    check(sluice_allreduce(world, times, most, 2, SLUICE_F64, SLUICE_MAX, NULL), "allreduce");
    return most[0] + most[1];
}

static void be_a_rank(const struct sluice_unique_id *id, int rank, int ranks, int splits)
{
    static struct sluice_comm *child[SPLITS_MAX];
    static double us[SPLITS_MAX];
    struct sluice_comm *world;

    check(sluice_comm_create_id(id, rank, ranks, NULL, &world), "start");
    int files = count_entries("/proc/self/fd"), maps = count_lines("/proc/self/maps");

    for (int i = 0; i < splits; i++)
        us[i] = split_once(world, rank, &child[i]);
    qsort(us, (size_t)splits, sizeof(us[0]), by_value);
    if (rank == 0)
        printf("%d ranks, %d %s: median %.0f us (%.0f to %.0f); %+d descriptors, %+d mappings\n",
               ranks, splits, anew ? "made anew" : "splits", us[splits / 2], us[0], us[splits - 1],
               count_entries("/proc/self/fd") - files, count_lines("/proc/self/maps") - maps);
    for (int i = 0; i < splits; i++)
        sluice_comm_destroy(child[i]);
    sluice_comm_destroy(world);
}

int main(int argc, char **argv)
{
    int ranks = argc > 1 ? atoi(argv[1]) : 64, splits = argc > 2 ? atoi(argv[2]) : 64, bad = 0;
    struct sluice_unique_id id;
    int status;

    anew = argc > 3 && strcmp(argv[3], "anew") == 0;
    if (ranks < 1 || ranks > RANKS_MAX || splits < 1 || splits > SPLITS_MAX) {
        fprintf(stderr, "usage: bench_split [RANKS [SPLITS [anew]]], up to %d and %d\n", RANKS_MAX,
                SPLITS_MAX);
        return 2;
    }
    check(sluice_unique_id_create(&id), "id");
    for (int r = 1; r < ranks; r++)
        if (fork() == 0) {
            be_a_rank(&id, r, ranks, splits);
            _exit(0);
        }
    be_a_rank(&id, 0, ranks, splits);
    while (wait(&status) > 0)
        bad |= status;
    return bad != 0;
}
