/* SPDX-License-Identifier: Apache-2.0 */
/* Prints docs/env.md from the table in core/config.c; a test compares the two. */
#include "core/config.h"

#include <stdio.h>

static const char *const type_names[] = {
    [SL_CONFIG_TEXT] = "text",
    [SL_CONFIG_INT] = "number",
    [SL_CONFIG_BYTES] = "size",
    [SL_CONFIG_SWITCH] = "on, off, auto",
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
}

int main(void)
{
    printf("# Environment variables\n\n"
           "Sluice reads these once, when a communicator is made. A variable that is set but empty "
           "counts as not set;\nan unknown `SLUICE_*` gets a warning with the nearest name, a bad "
           "value an error that says what would do.\nSizes may end in k, M or G (powers of 1024). "
           "Fields of `struct sluice_config` come before the environment.\n\n"
           "This page is printed from the table in `core/config.c` (`docs/print_env.c`); to change "
           "it, change the table,\nbuild, and run `build/docs/print_env > docs/env.md`.\n");
    for (size_t i = 0; i < sl_config_row_count; i++) {
        const struct sl_config_row *row = &sl_config_rows[i];

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
    return 0;
}
