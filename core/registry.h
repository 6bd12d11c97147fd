/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transports of this process. lib/backends.c registers those that were built, core/module.c
 * those that it loads; everybody else asks here, by name or by trait.
 *
 * A transport stays for the life of the process. Any thread may ask while another registers.
 */
#ifndef SL_CORE_REGISTRY_H
#define SL_CORE_REGISTRY_H

#include <stddef.h>
#include <stdint.h>

struct sl_transport_ops;

#define SL_TRANSPORTS_MAX 32 /* of a process */

/* Copies ops, with a stub for each operation it leaves out, and registers its variables and events.
 * -ENOTSUP: built for another SL_TRANSPORT_ABI; -EINVAL: no name, or a number out of range;
 * -EEXIST: name or number is taken; -ENOSPC: there are SL_TRANSPORTS_MAX. */
int sl_transport_register(const struct sl_transport_ops *ops);

/* All of them in the order of "auto" (ops->place), NULL-terminated; a snapshot. */
const struct sl_transport_ops *const *sl_transports(void);

/* The transport of that name (len bytes, any case), or NULL. */
const struct sl_transport_ops *sl_transport_find(const char *name, size_t len);

/* The first that has all of these traits (SL_TRAIT_*), or NULL. */
const struct sl_transport_ops *sl_transport_with(uint32_t traits);

/* The transports that a list such as SLUICE_TRANSPORT's names, in its order: "shm,tcp", or "auto"
 * for all. -ENODEV: one of them is not here; -EINVAL: none is named, or more than cap. */
int sl_transport_list(const char *list, const struct sl_transport_ops **out, unsigned cap,
                      unsigned *count);

#endif
