/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks as threads of this process, each with a communicator over a real transport, or over
 * whatever wraps one. They meet in memory: no socket, no launcher. A check that fails is noted with
 * its rank, and ends that rank's body only.
 */
#ifndef SL_TESTS_CREW_H
#define SL_TESTS_CREW_H

#include "collectives/comm.h"

#define CREW_MAX 40

typedef void crew_body(struct sluice_comm *comm, int rank);

/* Settings as in world.h; ops[i] is rank i's transport, and must be completed. Returns NULL, or
 * what failed. The body runs with NULL where the communicator could not be made, if may_fail is
 * set; else that fails the case. */
struct crew {
    int ranks;
    const char *settings;
    const struct sl_transport_ops *ops[CREW_MAX];
    bool may_fail;
    bool keeps; /* the body destroys its communicator */
};

const char *crew_run(const struct crew *crew, crew_body *body);

/* From a body: another communicator, of these ranks of the crew by their rank in it, over an
 * exchange of their own. All of them name the same group, which no others use meanwhile. Returns as
 * sl_comm_create(). */
#define CREW_GROUPS 4
int crew_make(int group, const int *ranks, int count, struct sluice_comm **out);
/* The same from another thread, as that rank of the crew. */
int crew_make_as(int rank, int group, const int *ranks, int count, struct sluice_comm **out);

/* From the bodies of all of a communicator's ranks: whether they have the same len bytes. */
bool crew_alike(struct sluice_comm *comm, const void *bytes, size_t len);

void crew_failed(const char *file, int line, const char *what);

#define RUN_CREW(crew, body)                                                                       \
    do {                                                                                           \
        const char *why_ = crew_run(crew, body);                                                   \
        if (why_ != NULL)                                                                          \
            fail_msg("%s", why_);                                                                  \
    } while (0)

#define CREW_EXPECT(condition)                                                                     \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            crew_failed(__FILE__, __LINE__, #condition);                                           \
            return;                                                                                \
        }                                                                                          \
    } while (0)

#endif
