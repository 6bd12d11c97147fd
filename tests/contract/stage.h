/* SPDX-License-Identifier: Apache-2.0 */
/* Where the contract is played: real time and a real transport, or the simulator's. One of
 * stage_real.c and stage_sim.c is linked, so the contract itself is the same for all. */
#ifndef SL_TESTS_CONTRACT_STAGE_H
#define SL_TESTS_CONTRACT_STAGE_H

#include "core/transport.h"

#include <stdbool.h>

#define STAGE_WORKERS 2

/* The transport under test, not completed. */
extern const struct sl_transport_ops *const stage_ops;

/* Two processes can meet here: the forked cases make sense. */
extern const bool stage_forks;

/* Before every case. */
void stage_reset(void);

/* Worker idx of this process, idx < STAGE_WORKERS. */
struct sl_worker *stage_worker(unsigned idx);

/* Nothing moved in a whole round of progress: lets time pass. */
void stage_idle(void);

/* Nanoseconds on the workers' clock. */
uint64_t stage_now(void);

#endif
