/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For modules of the shim: a Sluice communicator beside one of the application's, made over the
 * original library's own calls, and a table that finds it again.
 */
#ifndef SL_PRELOAD_ENGINE_H
#define SL_PRELOAD_ENGINE_H

#include <sluice/sluice.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* The ranks of an application's communicator, and how they reach each other without Sluice. */
struct sl_preload_peers {
    int rank, size;
    void *arg;

    /* Gives in[len] to all and gets all ranks' bytes, by rank, in out[size * len]: a collective
     * call of the original library on the communicator, which all ranks make in the same order as
     * their other calls on it. 0, or a negative errno: then nothing is known of the others any
     * more. */
    int (*allgather)(void *arg, const void *in, size_t len, void *out);

    /* What a waiting thread does from time to time for the original library's own progress: peers
     * may wait for that library before they come to the collective. NULL: nothing. */
    void (*poke)(void *arg);

    /* Deadline of a collective, where SLUICE_TIMEOUT_MS says nothing; 0: a day. Libraries without
     * deadlines let ranks come late by any time. */
    int64_t timeout_ms;

    /* What must be the same on all ranks for calls to be taken by the same rules: thresholds, the
     * module's own version. Compared before anything else. */
    uint64_t facts;

    /* Not 0: a negative errno why this rank will not, its sentence in sluice_last_error(). Then
     * none does. */
    int refuse;
};

/*
 * Makes a communicator, or not, on all ranks alike: whatever goes wrong on one makes the call fail
 * on all, so that none of them takes calls which others pass on. All ranks call it. Fails with a
 * negative errno and a sentence in sluice_last_error().
 */
int sl_preload_comm_create(const struct sl_preload_peers *peers, struct sluice_comm **out);

/* ---- the application's handles ---- */

/*
 * What belongs to a handle of the application: found in nanoseconds, by any thread. A handle that
 * is removed may be used again for something else by the application. Initialise with {0}.
 */
struct sl_preload_map {
    _Atomic uint64_t generation; /* rises with every removal: what threads remember is void then */
    _Atomic int lock;
    struct sl_preload_slot *slots;
    size_t cap, used;
};

/* NULL: nothing is known of the handle. Not 0 for handle. What is returned stays valid as long as
 * the application may use the handle: who removes it frees it, when no call on it is under way. */
void *sl_preload_map_get(struct sl_preload_map *map, uintptr_t handle);

/* Adds what belongs to a handle that is not in the map. -ENOMEM. */
int sl_preload_map_add(struct sl_preload_map *map, uintptr_t handle, void *value);

/* Takes a handle out. Returns what belonged to it, now the caller's; NULL: nothing did. */
void *sl_preload_map_remove(struct sl_preload_map *map, uintptr_t handle);

/* Takes any handle out, for tearing all down; NULL when the map is empty. */
void *sl_preload_map_pop(struct sl_preload_map *map);

/* Monotonic time in ns, for counts. */
uint64_t sl_preload_now(void);

#endif
