/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers of flows, and whose they are. The lower half of a number is a place in a table, the upper
 * half counts how often the place was taken; a place that is free is taken again after all others
 * that were free before. Who polls reads the table without a lock.
 */
#include "core/clock.h"
#include "core/err.h"
#include "dpdk/port/inside.h"

#include <pthread.h>
#include <stdlib.h>

#define CHUNK 256
#define CHUNKS 256
#define REST 128 /* places that are free before one is taken again */

struct place {
    _Atomic uint32_t number; /* 0: free */
    uint16_t turn, next;     /* under lock; next: free place */
    struct sl_dpdk_user *_Atomic user;
};

static struct place first_chunk[CHUNK]; /* enough for most, and no heap that stays behind */
static struct place *_Atomic chunks[CHUNKS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned chunk_count, free_count;
static uint16_t free_first, free_last;

static struct place *place_at(uint32_t number)
{
    struct place *chunk =
        atomic_load_explicit(&chunks[number % (CHUNK * CHUNKS) / CHUNK], memory_order_acquire);

    return chunk != NULL ? &chunk[number % CHUNK] : NULL;
}

struct sl_dpdk_user *sl_dpdk_flow_user(uint32_t number)
{
    struct place *place = place_at(number);

    if (place == NULL || number == 0 ||
        atomic_load_explicit(&place->number, memory_order_acquire) != number)
        return NULL;
    return atomic_load_explicit(&place->user, memory_order_relaxed);
}

static void add_free(uint16_t at)
{
    if (free_count++ > 0)
        place_at(free_last)->next = at;
    else
        free_first = at;
    free_last = at;
}

static int add_chunk(void)
{
    if (chunk_count == CHUNKS)
        return sl_fail(-ENOMEM, "this process has %d flows over DPDK, which is the most",
                       CHUNK * CHUNKS);
    struct place *chunk = chunk_count == 0 ? first_chunk : calloc(CHUNK, sizeof(*chunk));
    if (chunk == NULL)
        return sl_fail(-ENOMEM, "no memory for more flows over DPDK");
    uint16_t turn = (uint16_t)sl_seed(); /* a number of another process fits here seldom */
    unsigned first = chunk_count * CHUNK;
    for (unsigned i = 0; i < CHUNK; i++)
        chunk[i].turn = turn;
    atomic_store_explicit(&chunks[chunk_count++], chunk, memory_order_release);
    for (unsigned i = 0; i < CHUNK; i++)
        add_free((uint16_t)(first + i));
    return 0;
}

int sl_dpdk_flow_number(struct sl_dpdk_user *user, uint32_t *out)
{
    int err = 0;

    pthread_mutex_lock(&lock);
    if (free_count <= REST)
        err = add_chunk();
    if (err == 0) {
        uint16_t at = free_first;
        struct place *place = place_at(at);

        free_first = place->next;
        free_count--;
        if (++place->turn == 0)
            place->turn = 1; /* so that no number is 0 */
        *out = (uint32_t)place->turn << 16 | at;
        atomic_store_explicit(&place->user, user, memory_order_relaxed);
        atomic_store_explicit(&place->number, *out, memory_order_release);
    }
    pthread_mutex_unlock(&lock);
    return err;
}

static void forget(struct place *place, uint16_t at)
{
    atomic_store_explicit(&place->number, 0, memory_order_release);
    add_free(at);
}

void sl_dpdk_flow_forget(struct sl_dpdk_user *user, uint32_t number)
{
    pthread_mutex_lock(&lock);
    if (sl_dpdk_flow_user(number) == user)
        forget(place_at(number), (uint16_t)number);
    pthread_mutex_unlock(&lock);
}

void sl_dpdk_flows_forget(struct sl_dpdk_user *user)
{
    pthread_mutex_lock(&lock);
    for (unsigned at = 0; at < chunk_count * CHUNK; at++) {
        struct place *place = place_at(at);

        if (atomic_load_explicit(&place->number, memory_order_relaxed) != 0 &&
            atomic_load_explicit(&place->user, memory_order_relaxed) == user)
            forget(place, (uint16_t)at);
    }
    pthread_mutex_unlock(&lock);
}
