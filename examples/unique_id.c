/* SPDX-License-Identifier: Apache-2.0 */
/*
 * No launcher: rank 0 makes a handle and hands it to the others by any means, here to its children
 * by fork. With MPI it would be MPI_Bcast(&id, sizeof(id), MPI_BYTE, 0, MPI_COMM_WORLD).
 *
 *   cc unique_id.c $(pkg-config --cflags --libs sluice) -o unique_id
 *   ./unique_id 4
 */
#include <sluice/sluice.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static int work(const struct sluice_unique_id *id, int rank, int size)
{
    struct sluice_comm *comm;
    int64_t greeting = rank == 0 ? 4711 : 0;
    int err = sluice_comm_create_id(id, rank, size, NULL, &comm);

    if (err == 0) {
        err = sluice_broadcast(comm, &greeting, &greeting, 1, SLUICE_I64, 0, NULL);
        if (err == 0)
            printf("rank %d of %d got %d\n", rank, size, (int)greeting);
    }
    if (err != 0)
        fprintf(stderr, "rank %d: %s\n", rank, sluice_last_error());
    else
        sluice_comm_destroy(comm);
    fflush(stdout);
    return err != 0 || greeting != 4711;
}

int main(int argc, char **argv)
{
    int size = argc > 1 ? atoi(argv[1]) : 2, failed, status;
    struct sluice_unique_id id;

    if (size < 1 || size > 1024) {
        fprintf(stderr, "usage: unique_id [RANKS]\n");
        return 2;
    }
    if (sluice_unique_id_create(&id) != 0) {
        fprintf(stderr, "no meeting place: %s\n", sluice_last_error());
        return 1;
    }
    for (int rank = 1; rank < size; rank++)
        if (fork() == 0)
            _exit(work(&id, rank, size));
    failed = work(&id, 0, size);
    while (wait(&status) > 0)
        failed |= status != 0;
    return failed;
}
