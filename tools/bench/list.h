/* SPDX-License-Identifier: Apache-2.0 */
/* What this build and machine have: sluice-bench --list. */
#ifndef SB_LIST_H
#define SB_LIST_H

#include "core/config.h"

#include <stdio.h>

/* Version, launcher, cores and caches, transports with devices, kernels, algorithms; each thing
 * that is out with the reason. json, unless NULL: a file for the transports ("-": stdout, and no
 * text). */
int sb_list(FILE *out, const struct sl_config *config, const char *json);

#endif
