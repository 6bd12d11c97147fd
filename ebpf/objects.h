/* SPDX-License-Identifier: Apache-2.0 */
/* The objects that were embedded at build. */
#ifndef SL_EBPF_OBJECTS_H
#define SL_EBPF_OBJECTS_H

#include <stddef.h>

/* Its bytes, of the program's own memory. NULL: there is none of that name. */
const void *sl_bpf_object(const char *name, size_t *len);

#endif
