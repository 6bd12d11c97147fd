/* SPDX-License-Identifier: Apache-2.0 */
/* Stands in for cluster.c where what it needs was not there to build it. */
#include "tools/sluiced/cluster.h"

#include "core/err.h"

#include <errno.h>
#include <stdio.h>

int sld_cluster_check(const struct sl_mon_config *config)
{
    (void)config;
    return sl_fail(-ENOTSUP, "this sluiced was built without --cluster: meson's summary says what "
                             "it needs");
}

int sld_cluster_run(const struct sl_mon_config *config, int signals, bool *again)
{
    (void)signals;
    *again = false;
    (void)sld_cluster_check(config);
    fprintf(stderr, "sluiced: %s\n", sluice_last_error());
    return 1;
}
