/* SPDX-License-Identifier: Apache-2.0 */
/* Looks instead of running: choices of algorithms, schedules. */
#ifndef SB_INSPECT_H
#define SB_INSPECT_H

#include "bench.h"

/* --explain and --print-schedule. All ranks call it; rank 0 prints the choices, each rank its
 * schedule. */
int sb_inspect(struct sluice_comm *comm, const struct sb_options *options, FILE *out);

#endif
