/* SPDX-License-Identifier: Apache-2.0 */
/* Variables of the preload shim and its modules: SLUICE_PRELOAD*. */
#ifndef SL_PRELOAD_CONFIG_H
#define SL_PRELOAD_CONFIG_H

#include "core/config.h"

/* In the order of its row's choices. */
enum sl_preload_mode { SL_PRELOAD_MODE_ON, SL_PRELOAD_MODE_OFF, SL_PRELOAD_MODE_REPORT };

struct sl_preload_config {
    enum sl_preload_mode mode;
    char nccl[SL_TEXT_MAX];
    int64_t exact, mpi_early_calls;
};

/* The shim has no engine, and with it no struct sl_config: defaults, and what envp says. -EINVAL
 * names the variable; the fields behind it keep their defaults. */
int sl_preload_config_read(struct sl_preload_config *out, char *const *envp);

SL_CONFIG_SECTION(preload)

#endif
