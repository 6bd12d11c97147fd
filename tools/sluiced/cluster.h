/* SPDX-License-Identifier: Apache-2.0 */
/* sluiced --cluster: the whole program, once its configuration is read. */
#ifndef SLUICED_CLUSTER_H
#define SLUICED_CLUSTER_H

#include "monitor/config.h"

#include <stdbool.h>

/* -EINVAL, -ENOTSUP with a sentence. */
int sld_cluster_check(const struct sl_mon_config *config);
/* Until it is told to end. The exit status. signals: SIGHUP ends it too, for the loop around it:
 * *again is true then. */
int sld_cluster_run(const struct sl_mon_config *config, int signals, bool *again);

#endif
