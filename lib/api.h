/* SPDX-License-Identifier: Apache-2.0 */
/* The common part of the files of the public interface. */
#ifndef SL_LIB_API_H
#define SL_LIB_API_H

#include "collectives/operation.h"
#include "core/event.h"
#include "core/fork.h"
#include "core/types.h"

/* A communicator is used by one thread at a time; its worker keeps others out that move it, too. */
static inline void sl_enter(struct sluice_comm *comm)
{
    sl_worker_enter(comm->worker);
}

static inline void sl_leave(struct sluice_comm *comm)
{
    sl_worker_exit(comm->worker);
}

/* -EINVAL in a child of the process that made the communicator. Before everything else: locks may
 * be held there by threads that the child does not have. */
static inline int sl_check_process(const struct sluice_comm *comm)
{
    return SL_LIKELY(sl_fork_same(comm->life)) ? 0 : sl_fork_refuse();
}

/* group.c: groups of this thread that are open, one in another; and a checked call, kept until the
 * outermost ends. */
extern _Thread_local unsigned sl_group_depth;
int sl_group_collect(struct sluice_comm *comm, const struct sl_call *call, const void *in,
                     void *out, struct sluice_req **req);
int sl_group_collect_operation(struct sluice_operation *operation, struct sluice_req **req);

/* sluice.c: starts a persistent operation now. req NULL: waits for its end. */
int sl_operation_start_now(struct sluice_operation *operation, struct sluice_req **req);

/* Whether count elements can be multiplied by bytes and by ranks, as schedules do, without an
 * overflow. Only sizes beyond most memory cost a division. */
static inline bool sl_count_fits(uint64_t count, size_t esize, uint32_t ranks)
{
    return SL_LIKELY(count < UINT64_C(1) << 32) || count <= (uint64_t)INT64_MAX / (esize * ranks);
}

/* sluice.c: starts a call now. req NULL: waits for its end. */
int sl_call_start(struct sluice_comm *comm, const struct sl_call *call, const void *in, void *out,
                  struct sluice_req **req);

/* sluice.c: the same for a caller that is inside, and waits for its end. */
int sl_call_inside(struct sluice_comm *comm, const struct sl_call *call, const void *in, void *out);

/* page.c: when it returns, the state page has all that this communicator can tell as of now. For a
 * report of this moment by who reads the page. */
void sl_comm_publish(struct sluice_comm *comm);

/* page.c: shows a call that has yet to be made as the communicator's next collective, by its name
 * (up to 15 letters) and what it waits for (up to 23). For a caller that keeps all threads from
 * calling meanwhile. Its place, for sl_comm_hide_next(), or -1: it is not shown. */
int sl_comm_show_next(const struct sluice_comm *comm, const char *coll, const char *doing);
void sl_comm_hide_next(int place);

/* config.c: the environment, overridden by the settings of caller, which may be NULL. */
int sl_config_merge(const struct sluice_config *caller, struct sl_config *out);

/* setup.c: sluice_comm_create() over an exchange of the caller's own, which tells rank and size and
 * stays the caller's. poke: see collectives/comm.h, or NULL. */
int sl_comm_create_over(struct sl_exchange *exchange, const struct sluice_config *config,
                        void (*poke)(void *arg), void *poke_arg, struct sluice_comm **out);

#endif
