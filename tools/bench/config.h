/* SPDX-License-Identifier: Apache-2.0 */
/* Variables of sluice-bench alone. */
#ifndef SL_BENCH_CONFIG_H
#define SL_BENCH_CONFIG_H

#include "core/config.h"

struct sl_bench_config {
    int64_t bind;
};

SL_CONFIG_SECTION(bench)

#endif
