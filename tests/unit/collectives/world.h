/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks of one simulated network in this thread, each with a communicator. A check that fails
 * inside a rank is noted and ends that rank only: no jump leaves a fiber.
 */
#ifndef SL_TESTS_WORLD_H
#define SL_TESTS_WORLD_H

#include "collectives/comm.h"

/* Ranks share windows, so that each is connected to all; if not, to those beside it in the tree. */
extern bool world_maps;

typedef void world_body(struct sluice_comm **comm, int rank);

/* Runs body on so many ranks with settings like "ALGO=ring INFLIGHT_MAX=2" (times are virtual, the
 * timeout is 400 ms). Communicators that body did not destroy (and set NULL) are destroyed after.
 * Returns NULL, or what failed. */
const char *world_run(int ranks, const char *settings, world_body *body);

void world_failed(const char *file, int line, const char *what);

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            world_failed(__FILE__, __LINE__, #condition);                                          \
            return;                                                                                \
        }                                                                                          \
    } while (0)

/* An error with this code, whose sentence has these words. */
#define EXPECT_ERROR(call, code, words)                                                            \
    do {                                                                                           \
        int got_ = (call);                                                                         \
        if (got_ != (code) || strstr(sluice_last_error(), words) == NULL) {                        \
            world_failed(__FILE__, __LINE__, #call);                                               \
            return;                                                                                \
        }                                                                                          \
    } while (0)

#define RUN(ranks, settings, body)                                                                 \
    do {                                                                                           \
        const char *why_ = world_run(ranks, settings, body);                                       \
        if (why_ != NULL)                                                                          \
            fail_msg("%s", why_);                                                                  \
    } while (0)

#endif
