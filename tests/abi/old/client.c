/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program of commit 676efc1: compiled with the public headers of then, it runs over the library
 * of now. Two ranks make a communicator, use it, split it and destroy both.
 *
 * usage: old_client RANK ROOT
 */
#include <sluice/sluice.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 2, COUNT = 1000, GUARD = 0x5a };

/* The library must not write behind the structure, which was shorter then. */
struct guarded {
    struct sluice_config config;
    unsigned char guard[256];
};

static int complain(const char *what, int err)
{
    fprintf(stderr, "old_client: %s: %s: %s\n", what, sluice_strerror(err), sluice_last_error());
    return 1;
}

static int guard_is_whole(const struct guarded *room)
{
    for (size_t i = 0; i < sizeof(room->guard); i++)
        if (room->guard[i] != GUARD)
            return 0;
    return 1;
}

static int create(int rank, const char *root, struct sluice_comm **out)
{
    struct guarded room;
    int err;

    memset(&room, GUARD, sizeof(room));
    sluice_config_init(&room.config);
    if (!guard_is_whole(&room))
        return complain("sluice_config_init() wrote behind the structure", 0);
    room.config.rank = rank;
    room.config.size = RANKS;
    room.config.root = root;
    room.config.timeout_ms = 20000;
    err = sluice_comm_create(&room.config, out);
    return err != 0 ? complain("sluice_comm_create", err) : 0;
}

/* Blocking, with a request, and in a group, in memory of the library's. */
static int collectives(struct sluice_comm *comm)
{
    int rank = sluice_comm_rank(comm), size = sluice_comm_size(comm), err;
    struct sluice_req *req = NULL;
    float *numbers = NULL;
    int32_t blocks[RANKS] = {0}, mine = rank + 1, root = rank == 0 ? 7 : 0;

    err = sluice_alloc(comm, COUNT * sizeof(*numbers), (void **)&numbers);
    if (err != 0)
        return complain("sluice_alloc", err);
    for (int i = 0; i < COUNT; i++)
        numbers[i] = (float)(i + rank);
    err = sluice_allreduce(comm, numbers, numbers, COUNT, SLUICE_F32, SLUICE_SUM, &req);
    if (err == 0)
        err = sluice_wait(req);
    sluice_req_free(req);
    for (int i = 0; i < COUNT && err == 0; i++)
        if (numbers[i] != (float)(size * i + size * (size - 1) / 2))
            return complain("allreduce gave a wrong sum", 0);
    if (err == 0)
        err = sluice_group_start();
    if (err == 0)
        err = sluice_all_gather(comm, &mine, blocks, 1, SLUICE_I32, NULL);
    if (err == 0)
        err = sluice_broadcast(comm, &root, &root, 1, SLUICE_I32, 0, NULL);
    if (err == 0)
        err = sluice_group_end();
    if (err == 0)
        err = sluice_barrier(comm, NULL);
    sluice_free(comm, numbers);
    if (err != 0)
        return complain("a collective", err);
    for (int r = 0; r < size; r++)
        if (blocks[r] != r + 1)
            return complain("all_gather gave a wrong block", 0);
    return root == 7 ? 0 : complain("broadcast gave a wrong number", 0);
}

int main(int argc, char **argv)
{
    struct sluice_comm *comm = NULL, *half = NULL;
    int failed, err;

    if (argc != 3)
        return 2;
    failed = create(atoi(argv[1]), argv[2], &comm);
    if (!failed)
        failed = collectives(comm);
    if (!failed) {
        err = sluice_comm_split(comm, 0, -sluice_comm_rank(comm), &half);
        failed = err != 0 ? complain("sluice_comm_split", err) : 0;
    }
    if (!failed && sluice_comm_rank(half) != RANKS - 1 - sluice_comm_rank(comm))
        failed = complain("the split has another order", 0);
    sluice_comm_destroy(half);
    sluice_comm_destroy(comm);
    return failed;
}
