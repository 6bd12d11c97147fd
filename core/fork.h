/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Communicators of this process in a child that it forks. They stay the parent's, which goes on
 * with them, so in the child every call on them is refused, and the sockets are
 * closed: a connection whose copy lives on in a child would hide from the peers that the parent
 * died.
 *
 * Two ways lead into a child. fork() runs our handler, which closes and forgets. A bare clone()
 * runs none; but a page that the kernel empties in every new process (MADV_WIPEONFORK) tells it,
 * too, so calls are refused there as well. vfork() and posix_spawn() share the memory of the parent
 * until they exec: nothing happens, and O_CLOEXEC does the rest.
 */
#ifndef SL_CORE_FORK_H
#define SL_CORE_FORK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Number of this process among those that descend from each other; 0: of none that has called
 * sl_fork_life(). */
extern const _Atomic uint64_t *sl_fork_word;

/* The number of this process. Called when a communicator or the like is made, and kept in it. */
uint64_t sl_fork_life(void);

/* Is this still the process that had this number? */
static inline bool sl_fork_same(uint64_t life)
{
    return atomic_load_explicit(sl_fork_word, memory_order_relaxed) == life;
}

/* -EINVAL, with the sentence for a call on another process's object. */
int sl_fork_refuse(void);

/* Closes fd in children that fork from now on, if it is the same file still: for sockets and memory
 * files, each with a number of its own, so that nothing needs to be done when they are closed.
 * Returns fd; negative values pass. */
int sl_fork_closes(int fd);

/* Children that fork from now on do not have this memory, whole pages of a mapping: nothing in it
 * is theirs. */
void sl_fork_hides(void *addr, size_t len);

/* Runs in each child that forks from now on, after its descriptors were closed. At most 8, for
 * ever. */
void sl_fork_on_child(void (*forget)(void));

#endif
