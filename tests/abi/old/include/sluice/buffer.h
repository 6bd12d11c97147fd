/* SPDX-License-Identifier: Apache-2.0 */
/** Memory that transports share, and registration of the user's own. */
#ifndef SLUICE_BUFFER_H
#define SLUICE_BUFFER_H

#include <sluice/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct sluice_comm;
struct sluice_buffer;

/**
 * Allocate memory that transports can share: page aligned, registered with every transport of comm
 * that has a use for it. Over shared memory and TCP plain memory is as fast; with RDMA and GPU
 * transports this saves the first use's registration.
 *
 * Units   len is in bytes; the memory is page aligned and zero.
 * Memory  owned by the caller until sluice_free(); a communicator must not be destroyed before.
 * Errors  -EINVAL; -ENOMEM, with the limit that was met in the text.
 */
SLUICE_API int sluice_alloc(struct sluice_comm *comm, size_t len, void **out);

/** Give memory of sluice_alloc() back. No request may still use it. Takes NULL. */
SLUICE_API void sluice_free(struct sluice_comm *comm, void *ptr);

/**
 * Tell a communicator's transports that [ptr, ptr+len) will be used often, so that what they need
 * (pinning, keys) is done now and not on the data path. Calls may overlap and are counted.
 *
 * Memory  the range must stay mapped until sluice_deregister(); *out is owned by the caller.
 * Errors  -EINVAL, also for GPU memory; -ENOTSUP, no transport of this communicator registers memory (harmless);
 *         -ENOMEM, with the locked-memory limit and the need in the text.
 */
SLUICE_API int sluice_register(struct sluice_comm *comm, void *ptr, size_t len,
                               struct sluice_buffer **out);

/** Undo one sluice_register(). Takes NULL. */
SLUICE_API void sluice_deregister(struct sluice_comm *comm, struct sluice_buffer *buffer);

/**
 * Tell a communicator's transports that [ptr, ptr+len) is about to leave the process or to be given to
 * somebody else by an allocator: to be called before munmap(), free() of large blocks, madvise()
 * that drops pages. What the transports kept of that range (pinned pages, keys) is given up.
 *
 * Nothing is patched to find such moments. So a transport keeps nothing of memory that is not registered any
 * more, and without this call all is well as long as sluice_deregister() comes before the memory goes;
 * the call is the safety net under that. A setting that makes a transport keep more (docs/env.md
 * tells) needs it for everything that is given back. A range of which nothing is known costs nanoseconds.
 *
 * Memory  no request may still use it. Registrations that overlap stay owned by the caller, but are used
 *         no more: sluice_deregister() them.
 * Order   on the thread that uses comm at that time, like any call; not from inside an allocator that
 *         the library itself gets its memory from.
 * Errors  -EINVAL; -EBUSY, the range was still registered: the caller forgot a sluice_deregister(),
 *         and a peer may have been writing to it.
 */
SLUICE_API int sluice_memory_gone(struct sluice_comm *comm, void *ptr, size_t len);

#ifdef __cplusplus
}
#endif
#endif
