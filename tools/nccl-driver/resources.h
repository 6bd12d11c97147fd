/* SPDX-License-Identifier: Apache-2.0 */
/* What a process holds: descriptors, threads, mappings, heap; and the TCP sockets among the
 * descriptors. */
#pragma once

#include <stddef.h>

struct resources {
    long descriptors, threads, mappings, heap_bytes;
};

void resources_count(struct resources *out);
/* Fails the case if `rounds` rounds of something left more and more behind; heap_most is what each
 * may leave of the heap, -1: anything. Returns 0 or -1. */
int resources_compare(const struct resources *before, const struct resources *after, int rounds,
                      long heap_most, const char *what);

/* Connects to every socket of this process that listens, and says `words` if not NULL. Returns how
 * many; the connections stay open until resources_hang_up(). */
int resources_call_listeners(const char *words);
void resources_hang_up(void);
/* How many TCP connections this process has. */
int resources_tcp(void);
/* Has the kernel reset every TCP connection of this process. Returns how many. */
int resources_reset_tcp(void);
