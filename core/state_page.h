/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state page of this process, as its writer sees it: records are taken, put and given back.
 *
 * One page per process, made by the first communicator. A child of fork() does not have it, and
 * makes its own. Where no page can be made (no memory, no descriptor, a limit of file sizes)
 * nothing is published, and nothing else changes.
 */
#ifndef SL_CORE_STATE_PAGE_H
#define SL_CORE_STATE_PAGE_H

#include "core/config.h"
#include "core/event.h"
#include "core/state.h"

#include <stdbool.h>

#define SL_STATE_COMMS 64
#define SL_STATE_OPS 64
#define SL_STATE_SHAPES 128
#define SL_STATE_ERRORS 4
#define SL_STATE_CALLS 512

/* The page is there from now on, unless config says otherwise (SLUICE_STATE) or it cannot be. rank
 * and size: of the process, by its launcher. */
void sl_state_open(const struct sl_config *config, int rank, int size);

/* Fills in a record of this process, with turn 0. */
void sl_state_describe(const char *job, int rank, int size, struct sl_state_process *out);

/* A free record of a kind that has some: its place, from 0, or -1. For a path that may take
 * memory. */
int sl_state_take(enum sl_state_kind kind);
void sl_state_give(enum sl_state_kind kind, int place);

/* So many more things (or fewer) have found no record. */
void sl_state_left_out(enum sl_state_kind kind, int more);

/* Of a record that was taken. */
struct sl_state_comm *sl_state_comm_at(int place);

/* Puts all of a record but its turn. For a communicator, its calls stay as they are. */
void sl_state_put(enum sl_state_kind kind, int place, const void *record);

/* Adds a call that is over to the ring, with its turn; the oldest gives way. On any thread. */
void sl_state_add_call(const struct sl_state_call *call);

/* A number for a communicator that is made, from 1. */
uint64_t sl_state_number(void);

/* The ring of events; NULL: there is no page. */
struct sl_event_ring *sl_state_events(void);

/* The page itself, for a reader in this process; NULL: there is none. */
const void *sl_state_memory(size_t *bytes);

#endif
