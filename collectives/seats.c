/* SPDX-License-Identifier: Apache-2.0 */
/* Who sits with whom: hosts of a communicator, and how crowded they are. */
#include "collectives/family.h"

#include "core/shared.h"
#include "schedules/shares.h"

#include <stdlib.h>

/* Hosts of the communicator are numbered by first appearance. */
static int number_hosts(struct sluice_comm *comm)
{
    uint32_t *host = calloc(comm->size, sizeof(*host));
    uint32_t *number = calloc(comm->family->host_count, sizeof(*number)); /* from 1 */

    for (uint32_t r = 0; host != NULL && number != NULL && r < comm->size; r++) {
        uint32_t *its = &number[sl_seat_of(comm, r)->host];

        *its = *its != 0 ? *its : ++comm->host_count;
        host[r] = *its - 1;
    }
    if (number == NULL) {
        free(host);
        host = NULL;
    }
    free(number);
    if (host == NULL)
        return sl_fail(-ENOMEM, "no memory to meet %u ranks", comm->size);
    int err = sl_shared_keep(host, comm->size * sizeof(*host), &comm->held_host);

    if (err == 0)
        comm->host = sl_shared_bytes(comm->held_host);
    return err;
}

/* Ranks by host, to walk each host's once. first[host] is where those of a host begin; one more
 * than there are hosts. */
static void sort_by_host(const struct sluice_comm *comm, uint32_t *ranks, uint32_t *first)
{
    for (uint32_t r = 0; r < comm->size; r++)
        first[comm->host[r] + 1]++;
    for (uint32_t h = 0; h < comm->host_count; h++)
        first[h + 1] += first[h];
    /* Now first[h + 1] is the end of host h: filled from there down, it becomes its begin. */
    for (uint32_t r = comm->size; r-- > 0;)
        ranks[--first[comm->host[r] + 1]] = r;
    for (uint32_t h = 0; h < comm->host_count; h++)
        first[h] = first[h + 1];
    first[comm->host_count] = comm->size;
}

/* Cores that these ranks, all of one host, may use together: exactly where there are no more than
 * 64 of them; else masks that differ are taken to have nothing in common. */
static uint32_t count_cores(const struct sluice_comm *comm, const uint32_t *ranks, uint32_t count)
{
    uint64_t low = 0;
    uint32_t cores = 0;
    bool many = false;

    for (uint32_t i = 0; i < count; i++) {
        const struct sl_seat *its = sl_seat_of(comm, ranks[i]);
        bool seen = false;

        low |= its->cores_low;
        many |= its->cores > (uint32_t)__builtin_popcountll(its->cores_low);
        for (uint32_t k = i > 64 ? i - 64 : 0; k < i && !seen; k++)
            seen = sl_seat_of(comm, ranks[k])->cores_hash == its->cores_hash;
        cores += seen ? 0 : its->cores;
    }
    cores = many ? cores : (uint32_t)__builtin_popcountll(low);
    return cores != 0 ? cores : 1;
}

/* How crowded this host is, and the most crowded one: the same answer on all ranks, as the choice
 * of algorithms depends on it. */
static int count_crowds(struct sluice_comm *comm)
{
    uint32_t *ranks = calloc(comm->size + (size_t)comm->host_count + 1, sizeof(*ranks));
    uint32_t *first = ranks + comm->size, most = 1;

    if (ranks == NULL)
        return sl_fail(-ENOMEM, "no memory to meet %u ranks", comm->size);
    sort_by_host(comm, ranks, first);
    for (uint32_t h = 0; h < comm->host_count; h++) {
        uint32_t count = first[h + 1] - first[h],
                 cores = count_cores(comm, ranks + first[h], count);

        if ((count + cores - 1) / cores > most)
            most = (count + cores - 1) / cores;
        if (count > comm->most_local)
            comm->most_local = count;
        if (h != comm->host[comm->rank])
            continue;
        comm->local_size = count;
        comm->wait.oversubscribed = count > cores;
    }
    comm->costs.ranks_per_core = most;
    free(ranks);
    return 0;
}

/* Cores are shared by ranks that the scheduler keeps in groups apart: each rank in a session, a
 * container or a control group of its own. */
static bool are_apart(const struct sluice_comm *comm)
{
    for (uint32_t r = 0; r < comm->size; r++)
        if (comm->host[r] == comm->host[comm->rank] &&
            sl_seat_of(comm, r)->sched_group != sl_seat_of(comm, comm->rank)->sched_group)
            return comm->wait.oversubscribed;
    return false;
}

/* A word of a peer is not trusted to be in range: schedules are cut by it. */
static uint16_t speed_of(const struct sluice_comm *comm, uint32_t rank)
{
    uint16_t speed = sl_seat_of(comm, rank)->speed;

    return speed == 0 || speed > SL_SPEED_MAX ? SL_SPEED_MAX : speed;
}

/* All ranks have heard the same of each other, so all cut alike. */
static int take_speeds(struct sluice_comm *comm)
{
    bool alike = true;

    for (uint32_t r = 0; r < comm->size && alike; r++)
        alike = speed_of(comm, r) == speed_of(comm, 0);
    if (alike)
        return 0;
    uint16_t *speed = calloc(comm->size, sizeof(*speed));

    if (speed == NULL)
        return sl_fail(-ENOMEM, "no memory to meet %u ranks", comm->size);
    for (uint32_t r = 0; r < comm->size; r++)
        speed[r] = speed_of(comm, r);
    comm->speed = speed;
    return 0;
}

int sl_seats_take(struct sluice_comm *comm)
{
    int err = number_hosts(comm);

    err = err ?: take_speeds(comm);
    err = err ?: count_crowds(comm);
    if (err == 0)
        comm->wait.apart = are_apart(comm);
    return err;
}
