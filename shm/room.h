/* SPDX-License-Identifier: Apache-2.0 */
/* Is there room for this much memory? Asked before the kernel is, which may kill instead of
 * refuse. */
#ifndef SL_SHM_ROOM_H
#define SL_SHM_ROOM_H

#include <stddef.h>

/* For len bytes of addresses, of which `backed` are memory: 0, or -ENOMEM with need, limit and
 * advice in the sentence. what names the memory. */
int shm_room_check(const char *what, const char *advice, size_t len, size_t backed);

#endif
