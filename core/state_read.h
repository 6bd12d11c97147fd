/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a state page, of this process or another, that may be old, foreign, stopped, dead, in the
 * middle of a change, or made to hurt its reader.
 *
 * Nothing is believed: sizes and places are held against the file's own size, a file is read, never
 * mapped (its owner could cut it), a record is copied until its turn is the same before and after,
 * a bounded number of times, and all texts are ended. No memory is taken and no lock, so that the
 * handler of a signal may read, too.
 */
#ifndef SL_CORE_STATE_READ_H
#define SL_CORE_STATE_READ_H

#include "core/state.h"

#include <stdbool.h>

#define SL_STATE_SECTIONS_MAX 16 /* that a reader looks at */

struct sl_state_reader {
    int fd; /* or -1: memory */
    const void *memory;
    uint64_t bytes;
    unsigned section_count;
    struct sl_state_section sections[SL_STATE_SECTIONS_MAX];
};

/* Borrows fd. -EPROTO: it holds no page that this reader knows. */
int sl_state_read_fd(int fd, struct sl_state_reader *out);

/* Of this process; aligned to 8 bytes. Borrowed. */
int sl_state_read_memory(const void *page, size_t bytes, struct sl_state_reader *out);

/* How many records of a kind there are, used or not; 0: none. */
uint32_t sl_state_count(const struct sl_state_reader *reader, enum sl_state_kind kind);

/* Where a section lies, all of it inside of the file as it was when it was opened. False: none. */
bool sl_state_find(const struct sl_state_reader *reader, enum sl_state_kind kind,
                   struct sl_state_section *out);

/* Things of a kind that found no record. */
uint64_t sl_state_count_left_out(const struct sl_state_reader *reader, enum sl_state_kind kind);

enum sl_state_is {
    SL_STATE_UNUSED,
    SL_STATE_WHOLE,
    SL_STATE_TORN, /* its owner is, or died, in the middle of writing it */
};

/* Copies a record: the part that both sides know, zeroes for the rest. Unless it is WHOLE only
 * numbers outside the turn (struct sl_state_calls) may be believed. */
enum sl_state_is sl_state_get(const struct sl_state_reader *reader, enum sl_state_kind kind,
                              uint32_t place, void *out, size_t bytes);

/* The whole error of that communicator (its number). False: the page has none, or is writing it. */
bool sl_state_get_error(const struct sl_state_reader *reader, uint64_t comm,
                        struct sl_state_error *out);

/* The same for records that bear a number (SL_STATE_EVENT): *number is that of the event. */
struct sl_event;
enum sl_state_is sl_state_get_event(const struct sl_state_reader *reader, uint32_t place,
                                    struct sl_event *out, uint64_t *number);

#endif
