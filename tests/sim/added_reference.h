/* SPDX-License-Identifier: Apache-2.0 */
/* What an allreduce by encodings that add must give (coded_reference.h). */
#ifndef SL_TESTS_SIM_ADDED_REFERENCE_H
#define SL_TESTS_SIM_ADDED_REFERENCE_H

#include "tests/sim/coded_reference.h"

#include <stdbool.h>

/* The collective goes by encodings that add. */
bool added_reference_knows(const struct coded_reference *ref);

void added_reference_run(const struct coded_reference *ref, uint32_t turn, const void *const *ins,
                         void *const *outs);

#endif
