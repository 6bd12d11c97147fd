/* SPDX-License-Identifier: Apache-2.0 */
/* Of bpftool's skeletons only the bytes are used: what is loaded is chosen at run time. */
#include "ebpf/objects.h"

#include "core/err.h"

#include <string.h>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wcast-qual"
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wshadow"
#include "skeletons.h"
#pragma GCC diagnostic pop

static const struct {
    const char *name;
    const void *(*bytes)(size_t *len);
} objects[] = {
#define X(name) {#name, sl_bpf_##name##__elf_bytes},
    SL_BPF_OBJECTS(X)
#undef X
};

const void *sl_bpf_object(const char *name, size_t *len)
{
    for (unsigned i = 0; i < SL_ARRAY_LEN(objects); i++)
        if (strcmp(objects[i].name, name) == 0)
            return objects[i].bytes(len);
    return NULL;
}
