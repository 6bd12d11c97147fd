/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plugin over the verbs transport and the fake libibverbs, both ends in this process: one
 * context at a time, as the lock of its one engine is what keeps the fake to one thread. The wire
 * moves with the plugin's progress.
 */
#ifndef SL_TESTS_NCCL_RAILS_H
#define SL_TESTS_NCCL_RAILS_H

#include "tests/fake/fake_cuda.h"

#include <stdbool.h>

/* Two rails; GPUs too, where gpus is not 0. SLUICE_TRANSPORT is to be verbs. */
void rails_up(unsigned gpus);
/* Fails the test where something was done wrong or was left alive. */
void rails_down(void);
extern struct fake_ibv *rails_fake;
extern struct fake_cuda *rails_cuda;

#endif
