/* SPDX-License-Identifier: Apache-2.0 */
/* Frames and staging of an interface whose lanes need no registered memory. */
#include "multipath/memory.h"

#include <sys/mman.h>

static size_t frames_len(const struct sl_mp_iface *iface)
{
    return (size_t)iface->slot_bytes * SL_MP_FRAME_PLACES;
}

/* Pages that are never used cost nothing. NULL, with a sentence. */
static uint8_t *pages(size_t len)
{
    void *bytes = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (bytes == MAP_FAILED) {
        (void)sl_fail(-ENOMEM, "no memory for %zu KiB of buffers", len >> 10);
        return NULL;
    }
    return bytes;
}

int sl_mp_memory_open(struct sl_mp_iface *iface, unsigned chunks)
{
    iface->staging_len = (size_t)chunks * SL_MP_CHUNK_BYTES;
    iface->frame_bytes = pages(frames_len(iface));
    iface->staging_bytes = iface->frame_bytes != NULL ? pages(iface->staging_len) : NULL;
    if (iface->staging_bytes == NULL)
        return -ENOMEM;
    iface->staging_rails = sl_mp_rails_all(iface);
    return sl_mp_iface_open(iface, chunks);
}

void sl_mp_memory_close(struct sl_mp_iface *iface)
{
    if (iface->frame_bytes != NULL)
        munmap(iface->frame_bytes, frames_len(iface));
    if (iface->staging_bytes != NULL)
        munmap(iface->staging_bytes, iface->staging_len);
    iface->frame_bytes = iface->staging_bytes = NULL;
}
