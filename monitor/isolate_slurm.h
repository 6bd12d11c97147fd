/* SPDX-License-Identifier: Apache-2.0 */
/* What sinfo says of all nodes and of one; for isolate_slurm.c and its tests. */
#ifndef SL_MONITOR_ISOLATE_SLURM_H
#define SL_MONITOR_ISOLATE_SLURM_H

#include "monitor/isolate.h"

/* text: of sinfo -haN -S N -o '%N|%T|%H|%E'. -ENOENT: that node is not in it. */
int sl_slurm_view(const char *text, const char *node, struct sl_isolate_view *out);
/* "sluice[17.3f2a9c1d]: ..." has the mark 17.3f2a9c1d. */
bool sl_slurm_mark(const char *reason, char *out, size_t cap);

#endif
