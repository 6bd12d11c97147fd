/* SPDX-License-Identifier: Apache-2.0 */
/* Variables of the plugins for NCCL: SLUICE_NCCL_*. */
#ifndef SL_NCCL_CONFIG_H
#define SL_NCCL_CONFIG_H

#include "core/config.h"

struct sl_nccl_config {
    char profile[SL_TEXT_MAX], tuner[SL_TEXT_MAX];
    char env_file[SL_TEXT_MAX]; /* read by libnccl-env-sluice.so, which needs libc alone */
    int64_t profile_events, gpu, flows;
};

SL_CONFIG_SECTION(nccl)

/* sl_start(), with these. */
int sl_nccl_start(struct sl_config *config, char *const *envp);

#endif
