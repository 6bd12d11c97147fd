/* SPDX-License-Identifier: Apache-2.0 */
/* Which algorithm for which shape: a cost model over measured links, or what SLUICE_ALGO says. */
#ifndef SL_COLLECTIVES_SELECT_H
#define SL_COLLECTIVES_SELECT_H

#include "collectives/comm.h"
#include "collectives/plan.h"

#include <stdio.h>

/* Chooses, sets shape->chunk and builds. -EINVAL: SLUICE_ALGO names what cannot do this shape. */
int sl_select_build(const struct sluice_comm *comm, struct sl_shape *shape,
                    struct sl_schedule *out);

/* Builds by algo, whatever it costs. */
int sl_select_build_as(const struct sluice_comm *comm, const struct sl_algo *algo,
                       struct sl_shape *shape, struct sl_schedule *out);

/* What algo, one of sl_coded_algos, should take for shape, in ns; below 0: shape is not for it. */
double sl_select_coded(const struct sluice_comm *comm, const struct sl_algo *algo,
                       const struct sl_shape *shape);

/* Writes by which algorithms the terms of shape's code are reduced. */
void sl_select_explain_terms(const struct sluice_comm *comm, const struct sl_shape *shape,
                             FILE *out);

/* What would be chosen without a code, and what it should take; NULL: nothing can be. */
const struct sl_algo *sl_select_raw(const struct sluice_comm *comm, const struct sl_shape *shape,
                                    double *ns);

/* Writes, for one call, what each algorithm is predicted to take, or why it is out, and the
 * choice. */
int sl_select_explain(const struct sluice_comm *comm, const struct sl_call *call, FILE *out);

/* What this algorithm should take, in ns, by the costs alone: without the correction by what
 * operations took. */
double sl_select_predict(const struct sluice_comm *comm, const struct sl_shape *shape,
                         const char *algo);

/* forced.c: by name, or NULL. */
const struct sl_algo *sl_algo_find(const char *name, size_t len);

/* forced.c: SLUICE_ALGO. The algorithm that setting forces for coll; NULL: none. */
int sl_forced_algo(const char *setting, enum sl_coll coll, const struct sl_algo **out);

/* forced.c: -EINVAL: setting has an item that can never force anything; the sentence says which and
 * why. */
int sl_forced_check(const char *setting);

#endif
