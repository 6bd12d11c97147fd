/* SPDX-License-Identifier: Apache-2.0 */
/* A transport that counts what it opens, connects, registers and maps, over one that is named, and
 * ranks over it. */
#ifndef SL_TESTS_COUNTED_H
#define SL_TESTS_COUNTED_H

#include "core/transport.h"
#include "tests/unit/collectives/crew.h"

#include <sluice/sluice.h>

extern struct sl_transport_ops counted_ops;

void counted_set_up(const char *transport);

/* All of it, by all ranks of this process. */
unsigned counted_so_far(void);

/* The same, when every rank of comm has called and none goes on; so of all that was before. */
unsigned counted_by_all(struct sluice_comm *comm);

/* Ranks over it. */
struct crew counted_crew(int ranks, const char *settings);

/* One element of every rank of comm, added. */
int counted_sum(struct sluice_comm *comm, float mine, float *out);

#endif
