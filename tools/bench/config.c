/* SPDX-License-Identifier: Apache-2.0 */
/* Variables of sluice-bench alone. */
#include "tools/bench/config.h"

#include "core/err.h"

#define AT(field) offsetof(struct sl_bench_config, field)

static const struct sl_config_row rows[] = {
    SL_ROW_SWITCH(
        "BIND", bind, "auto",
        "Ranks that sluice-bench -n starts keep to a core each: auto and on, when there are enough "
        "cores; off."),
};

struct sl_config_section sl_bench_section = {.area = "BIND",
                                             .rows = rows,
                                             .row_count = SL_ARRAY_LEN(rows),
                                             .size = sizeof(struct sl_bench_config)};
