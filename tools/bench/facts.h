/* SPDX-License-Identifier: Apache-2.0 */
/* What a report says about the ranks before the numbers. */
#ifndef SB_FACTS_H
#define SB_FACTS_H

#include "bench.h"

#define SB_PATHS_MAX 128

/* Fills *facts from the communicator; paths[SB_PATHS_MAX] gets a text that facts borrows. */
void sb_facts_fill(struct sb_facts *facts, const struct sluice_comm *comm,
                   const struct sb_options *options, char *paths);

#endif
