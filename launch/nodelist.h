/* SPDX-License-Identifier: Apache-2.0 */
/* Slurm's written form of a list of hosts: "gpu[01-03,7]-ib,login2". */
#ifndef SL_LAUNCH_NODELIST_H
#define SL_LAUNCH_NODELIST_H

#include <stddef.h>

/* The first host of list, as Slurm orders them. -EINVAL: list is not of that form, or the name does
 * not fit. */
int sl_nodelist_first(const char *list, char *out, size_t cap);

#endif
