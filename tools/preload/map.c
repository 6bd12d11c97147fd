/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The application's handles. An open hash table under a spin lock, which is held for nanoseconds;
 * each thread remembers what it found last, as programs use one communicator many times over.
 */
#include "tools/preload/engine.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>

struct sl_preload_slot {
    uintptr_t handle; /* 0: free */
    void *value;
};

/* Of the thread: what it found last, in which map, and when. */
static _Thread_local struct {
    const struct sl_preload_map *map;
    uint64_t generation;
    uintptr_t handle;
    void *value;
} last;

static void take_lock(struct sl_preload_map *map)
{
    while (atomic_exchange_explicit(&map->lock, 1, memory_order_acquire) != 0)
        sched_yield();
}

static void drop_lock(struct sl_preload_map *map)
{
    atomic_store_explicit(&map->lock, 0, memory_order_release);
}

static size_t home(const struct sl_preload_map *map, uintptr_t handle)
{
    return (size_t)((uint64_t)handle * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (map->cap - 1);
}

/* Where the handle is, or the free slot where it would be. */
static struct sl_preload_slot *find_slot(const struct sl_preload_map *map, uintptr_t handle)
{
    size_t at = home(map, handle);

    while (map->slots[at].handle != 0 && map->slots[at].handle != handle)
        at = (at + 1) & (map->cap - 1);
    return &map->slots[at];
}

void *sl_preload_map_get(struct sl_preload_map *map, uintptr_t handle)
{
    uint64_t generation = atomic_load_explicit(&map->generation, memory_order_acquire);

    if (last.handle == handle && last.map == map && last.generation == generation)
        return last.value;
    take_lock(map);
    void *value = map->cap != 0 ? find_slot(map, handle)->value : NULL;

    drop_lock(map);
    if (value != NULL) {
        last.map = map;
        last.generation = generation;
        last.handle = handle;
        last.value = value;
    }
    return value;
}

/* At least half of the table stays free. */
static int grow(struct sl_preload_map *map)
{
    struct sl_preload_map bigger = {.cap = map->cap != 0 ? map->cap * 2 : 16};

    if (map->used * 2 < map->cap)
        return 0;
    bigger.slots = calloc(bigger.cap, sizeof(*bigger.slots));
    if (bigger.slots == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < map->cap; i++)
        if (map->slots[i].handle != 0)
            *find_slot(&bigger, map->slots[i].handle) = map->slots[i];
    free(map->slots);
    map->slots = bigger.slots;
    map->cap = bigger.cap;
    return 0;
}

int sl_preload_map_add(struct sl_preload_map *map, uintptr_t handle, void *value)
{
    take_lock(map);
    int err = grow(map);

    if (err == 0) {
        *find_slot(map, handle) = (struct sl_preload_slot){handle, value};
        map->used++;
    }
    drop_lock(map);
    return err;
}

/* Empties a slot, and moves up those behind it that could not have their place because of it. */
static void empty(struct sl_preload_map *map, struct sl_preload_slot *slot)
{
    size_t hole = (size_t)(slot - map->slots), at = hole;

    for (;;) {
        at = (at + 1) & (map->cap - 1);
        if (map->slots[at].handle == 0)
            break;
        size_t want = home(map, map->slots[at].handle);

        if (((at - want) & (map->cap - 1)) >= ((at - hole) & (map->cap - 1))) {
            map->slots[hole] = map->slots[at];
            hole = at;
        }
    }
    map->slots[hole] = (struct sl_preload_slot){0, NULL};
    map->used--;
}

static void *remove_slot(struct sl_preload_map *map, struct sl_preload_slot *slot)
{
    void *value = slot->value;

    atomic_fetch_add_explicit(&map->generation, 1, memory_order_release);
    empty(map, slot);
    return value;
}

void *sl_preload_map_remove(struct sl_preload_map *map, uintptr_t handle)
{
    void *value = NULL;

    take_lock(map);
    if (map->cap != 0) {
        struct sl_preload_slot *slot = find_slot(map, handle);

        if (slot->handle != 0)
            value = remove_slot(map, slot);
    }
    drop_lock(map);
    return value;
}

void *sl_preload_map_pop(struct sl_preload_map *map)
{
    void *value = NULL;

    take_lock(map);
    for (size_t i = 0; i < map->cap && value == NULL; i++)
        if (map->slots[i].handle != 0)
            value = remove_slot(map, &map->slots[i]);
    if (value == NULL) {
        free(map->slots);
        map->slots = NULL;
        map->cap = 0;
    }
    drop_lock(map);
    return value;
}
