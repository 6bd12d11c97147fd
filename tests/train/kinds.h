/* SPDX-License-Identifier: Apache-2.0 */
/* The kinds of methods there are, and what they share. */
#ifndef SL_TESTS_TRAIN_KINDS_H
#define SL_TESTS_TRAIN_KINDS_H

#include "methods.h"

extern const struct kind kind_operation; /* codec: of an operation; NULL: raw */
extern const struct kind kind_tensor;    /* number: bits of a code, with one scale */
extern const struct kind kind_feedback;  /* codec, both ways; number: enum sl_feedback_sides */
extern const struct kind kind_econtrol;  /* codec; number: eta */
extern const struct kind kind_dgc;       /* number: the part that is sent; codec: "warm" */
extern const struct kind kind_lion;      /* codec: "vote" or "average" */
extern const struct kind kind_demo;      /* codec: of coefficients; number: decay */
extern const struct kind kind_powersgd;  /* number: rank; codec: of factors, or NULL */
extern const struct kind kind_sketched;  /* number: elements a step (0: all) */
extern const struct kind kind_local; /* codec: "diloco", "streaming", "late", "dilocox", "fedzip" */

void *memory_of(size_t size);
/* theta by run->mean, with the optimiser's momentum. */
int move_by_mean(struct run *run, float rate);
size_t no_parts(const struct run *run, struct sl_state_part *parts);

#endif
