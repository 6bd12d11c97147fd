/* SPDX-License-Identifier: Apache-2.0 */
/* What surrounds the calls: operators that the engine has not, lives of communicators, messages,
 * threads. */
#include "mpi_check.h"

#include <dirent.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- passed on ---- */

static void largest_power(void *in, void *inout, int *len, MPI_Datatype *type)
{
    (void)type;
    for (int i = 0; i < *len; i++)
        ((int *)inout)[i] |= ((int *)in)[i];
}

static void user_operator(void)
{
    int mine = 1 << world_rank, all = 0, type_size;
    MPI_Op op;

    MPI_Op_create(largest_power, 1, &op);
    MPI_Allreduce(&mine, &all, 1, MPI_INT, op, MPI_COMM_WORLD);
    check(all == (1 << world_size) - 1, "the program's own operator gives %x", (unsigned)all);
    MPI_Op_free(&op);
    MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_BXOR, MPI_COMM_WORLD);
    check(all == (1 << world_size) - 1, "bits of all ranks are %x", (unsigned)all);
    MPI_Type_size(MPI_LONG_DOUBLE, &type_size);
    long double one = 1.5L, sum = 0;

    MPI_Allreduce(&one, &sum, 1, MPI_LONG_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    check(sum == 1.5L * world_size, "the sum of %d-byte numbers is %Lg", type_size, sum);
}

static void place_of_largest(void)
{
    struct {
        double value;
        int rank;
    } mine = {(double)(world_rank * 7 % 5), world_rank}, best = {-1, -1};

    MPI_Allreduce(&mine, &best, 1, MPI_DOUBLE_INT, MPI_MAXLOC, MPI_COMM_WORLD);
    check(best.rank >= 0 && best.value == (double)(best.rank * 7 % 5), "rank %d has the largest",
          best.rank);
    MPI_Bcast(&mine, 1, MPI_DOUBLE_INT, 0, MPI_COMM_WORLD);
    check(mine.value == 0 && mine.rank == 0, "a pair became %g, %d", mine.value, mine.rank);
}

static void between_groups(void)
{
    MPI_Comm half, inter;
    int group = world_rank % 2, sum = -1, one = 1, others = (world_size + (group == 0 ? 0 : 1)) / 2;

    MPI_Comm_split(MPI_COMM_WORLD, group, 0, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - group, 5, &inter);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, inter);
    check(sum == others, "the other group has %d ranks, not %d", sum, others);
    MPI_Barrier(inter);
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
}

void passed_on(void)
{
    int one = 1, sum = 0;

    user_operator();
    place_of_largest();
    if (world_size >= 2)
        between_groups();
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_SELF);
    check(sum == 1, "alone the sum is %d", sum);
}

/* ---- lives of communicators ---- */

static void sum_on(MPI_Comm comm, int times)
{
    int size, rank;

    MPI_Comm_size(comm, &size);
    MPI_Comm_rank(comm, &rank);
    for (int i = 0; i < times; i++) {
        long mine = rank + i, sum = 0;

        MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, comm);
        if (!check(sum == (long)size * (size - 1) / 2 + (long)size * i, "sum %d is %ld", i, sum))
            return;
    }
}

void lives(void)
{
    MPI_Comm kept[4];

    for (int i = 0; i < 12; i++) { /* handles are used again for others */
        MPI_Comm comm = make_comm(i % COMM_KINDS);

        sum_on(comm, i % 5 == 4 ? 0 : 6);
        drop_comm(i % COMM_KINDS, comm);
    }
    for (int i = 0; i < 4; i++) {
        MPI_Comm_dup(i == 0 ? MPI_COMM_WORLD : kept[i - 1], &kept[i]);
        sum_on(kept[i], 4);
    }
    for (int i = 3; i >= 1; i--) {
        MPI_Comm_free(&kept[i]);
        sum_on(kept[i - 1], 4);
    }
    MPI_Comm_disconnect(&kept[0]);
    MPI_Comm_dup(MPI_COMM_WORLD, &kept[0]); /* is still there at MPI_Finalize */
    sum_on(kept[0], 4);
}

/* ---- connections ---- */

#define COPIES 9

/* Both what listens and what is connected. */
static int count_sockets(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int count = 0;

    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        char to[64] = "";

        count += readlinkat(dirfd(dir), entry->d_name, to, sizeof(to) - 1) > 0 &&
                 strncmp(to, "socket:", 7) == 0;
    }
    if (dir != NULL)
        closedir(dir);
    return count;
}

/* Every pair of ranks has something to say, by the engine, and before by MPI, which may connect
 * only then. */
static void meet_all(MPI_Comm comm)
{
    int size, rank, in[64] = {0}, out[64], one = 1, its = 0;

    MPI_Comm_size(comm, &size);
    MPI_Comm_rank(comm, &rank);
    for (int step = 1; step < size; step++)
        MPI_Sendrecv(&one, 1, MPI_INT, (rank + step) % size, 3, &its, 1, MPI_INT,
                     (rank + size - step) % size, 3, comm, MPI_STATUS_IGNORE);
    for (int i = 0; i < 4; i++) {
        memset(out, 0, sizeof(out));
        for (int r = 0; r < size; r++)
            in[r] = rank * 100 + r;
        MPI_Alltoall(in, 1, MPI_INT, out, 1, MPI_INT, comm);
        for (int r = 0; r < size; r++)
            check(out[r] == r * 100 + rank, "rank %d of %d gave %d", r, size, out[r]);
    }
}

/* Engines of communicators whose ranks have one together already. */
void copies(void)
{
    MPI_Comm comms[COPIES];
    int before, after;

    meet_all(MPI_COMM_WORLD);
    before = count_sockets();
    for (int i = 0; i < COPIES; i++) {
        comms[i] = make_comm(1 + i % 3);
        meet_all(comms[i]);
    }
    after = count_sockets();
    check(after <= before, "%d sockets became %d", before, after);
    for (int i = 0; i < COPIES; i++)
        drop_comm(1 + i % 3, comms[i]);
    meet_all(MPI_COMM_WORLD);
}

/* ---- messages ---- */

#define LONG_MESSAGE (3 * 1024 * 1024)

/* A rank starts a send too long to be buffered and waits in a collective, the receiver comes to
 * that only when it has the message: so MPI has to move while the first one waits. */
void waits(void)
{
    for (int round = 0; round < 6; round++) {
        int sender = round % world_size, receiver = (sender + 1) % world_size;
        char *message = malloc(LONG_MESSAGE);
        MPI_Request request = MPI_REQUEST_NULL;
        double one = 1, sum = 0;

        memset(message, world_rank == sender ? 'a' + round : 0, LONG_MESSAGE);
        if (world_size > 1 && world_rank == sender)
            MPI_Isend(message, LONG_MESSAGE, MPI_BYTE, receiver, round, MPI_COMM_WORLD, &request);
        if (world_size > 1 && world_rank == receiver) {
            MPI_Recv(message, LONG_MESSAGE, MPI_BYTE, sender, round, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
            check(message[LONG_MESSAGE - 1] == 'a' + round, "message %d is wrong", round);
        }
        if (round % 2 == 0)
            MPI_Allreduce(&one, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        else
            MPI_Barrier(MPI_COMM_WORLD);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        check(round % 2 != 0 || sum == world_size, "the sum is %g", sum);
        free(message);
    }
}

/* ---- threads ---- */

#define THREADS 3

static void *use_comm(void *arg)
{
    sum_on(*(MPI_Comm *)arg, 300);
    return NULL;
}

void threads(int provided)
{
    MPI_Comm comms[THREADS];
    pthread_t ids[THREADS];

    if (provided < MPI_THREAD_MULTIPLE)
        return; /* this MPI was built without */
    for (int i = 0; i < THREADS; i++)
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&ids[i], NULL, use_comm, &comms[i]);
    for (int i = 0; i < THREADS; i++)
        pthread_join(ids[i], NULL);
    for (int i = 0; i < THREADS; i++)
        MPI_Comm_free(&comms[i]);
}
