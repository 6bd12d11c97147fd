/* SPDX-License-Identifier: Apache-2.0 */
/* Variables of shared memory: SLUICE_SHM_*. */
#ifndef SL_SHM_CONFIG_H
#define SL_SHM_CONFIG_H

#include "core/config.h"

struct sl_shm_config {
    int64_t ring_bytes, read;
};

SL_CONFIG_SECTION(shm)

#endif
