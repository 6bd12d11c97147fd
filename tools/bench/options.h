/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of sluice-bench. */
#ifndef SB_OPTIONS_H
#define SB_OPTIONS_H

#include "bench.h"

/* What an empty command line means. */
void sb_options_init(struct sb_options *options);

/* Sets *options from the command line; texts are borrowed from argv. -EINVAL: the sentence says
 * what was not understood and what would do. */
int sb_options_parse(struct sb_options *options, int argc, char **argv);

void sb_options_help(FILE *out);

/* The next size after bytes, or 0 when the sweep is over. */
uint64_t sb_options_next_size(const struct sb_options *options, uint64_t bytes);

/* The type that name says, also in nccl-tests' words ("float"), or -1. */
int sb_dtype_find(const char *name, size_t len);

/* The operator that name says, or -1. */
int sb_op_find(const char *name, size_t len);

#endif
