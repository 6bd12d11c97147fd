/* SPDX-License-Identifier: Apache-2.0 */
/* Prints docs/env.md from the tables of variables; a test compares the two. */
#include "core/config.h"
#include "dpdk/config.h"
#include "lib/backends.h"
#include "tools/bench/config.h"
#include "tools/nccl/config.h"
#include "tools/preload/config.h"

#include <stdio.h>

static const char *const type_names[] = {
    [SL_CONFIG_TEXT] = "text",   [SL_CONFIG_INT] = "number",
    [SL_CONFIG_BYTES] = "size",  [SL_CONFIG_SWITCH] = "on, off, auto",
    [SL_CONFIG_CHOICE] = "word",
};

static void print_value(const struct sl_config_row *row)
{
    if (row->value[0] == '\0')
        printf("Empty by default");
    else
        printf("Default `%s`", row->value);
    if (row->unit[0] != '\0' && row->type != SL_CONFIG_BYTES)
        printf(" (%s)", row->unit);
}

static void print_choices(const char *choices)
{
    printf("; one of ");
    for (; *choices != '\0'; choices++)
        printf(*choices == ' ' ? ", " : "%c", *choices);
}

static void print_range(const struct sl_config_row *row)
{
    if (row->least > 0)
        printf(", 0 or from %lld to %lld", (long long)row->least, (long long)row->max);
    else if (row->type == SL_CONFIG_INT || (row->type == SL_CONFIG_BYTES && row->max < INT64_MAX))
        printf(", from %lld to %lld", (long long)row->min, (long long)row->max);
    else if (row->type == SL_CONFIG_BYTES)
        printf(", at least %lld", (long long)row->min);
    else if (row->room != 0)
        printf(" of up to %zu bytes", row->room - 1);
}

static void print_row(const struct sl_config_row *row)
{
    printf("\n## SLUICE_%s\n\n", row->name);
    print_value(row);
    if (row->choices != NULL) {
        print_choices(row->choices);
    } else {
        printf("; %s", type_names[row->type]);
        print_range(row);
    }
    printf(".\n%s\n", row->help);
}

int main(void)
{
    const struct sl_config_section *section;

    sl_backends_register();
    if (sl_config_register(&sl_dpdk_section) != 0 || sl_config_register(&sl_bench_section) != 0 ||
        sl_config_register(&sl_preload_section) != 0 || sl_config_register(&sl_nccl_section) != 0)
        return 1;
    printf("# Environment variables\n\n"
           "Sluice reads these once, when a communicator is made. A variable that is set but empty "
           "counts as not set;\nan unknown `SLUICE_*` gets a warning with the nearest name, a bad "
           "value an error that says what would do.\nSizes may end in k, M or G (powers of 1024). "
           "Fields of `struct sluice_config` come before the environment.\n\n"
           "This page is printed from the tables of variables (`docs/print_env.c`): "
           "`core/config_rows.c`, and `config.c` in\nthe folder of each transport and tool. To "
           "change it, change the table, build, and run\n`build/docs/print_env > docs/env.md`.\n");
    for (unsigned i = 0; (section = sl_config_section(i)) != NULL; i++)
        for (size_t j = 0; j < section->row_count; j++)
            print_row(&section->rows[j]);
    return 0;
}
