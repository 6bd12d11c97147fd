/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes what a user may write into SLUICE_* variables: "NAME=value", a log setting, a size.
 * Whatever the text, it is refused with a sentence or gives a value within its limits. */
#include "core/config.h"
#include "core/err.h"
#include "core/log.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A number that was taken must lie within its row's limits; texts end inside their field. */
static void check_row(const struct sl_config_row *row, const char *field)
{
    int64_t value = 0;
    int choice;

    switch (row->type) {
    case SL_CONFIG_TEXT: sl_assert(memchr(field, '\0', sl_config_row_room(row)) != NULL); return;
    case SL_CONFIG_CHOICE:
        memcpy(&choice, field, sizeof(choice));
        for (const char *c = row->choices; *c != '\0'; c++)
            value += *c == ' ';
        sl_assert(choice >= 0 && choice <= value);
        return;
    default:
        memcpy(&value, field, sizeof(value));
        sl_assert(value >= row->min && value <= row->max);
    }
}

static void check_limits(struct sl_config *config)
{
    const struct sl_config_section *section;

    for (unsigned i = 0; (section = sl_config_section(i)) != NULL; i++)
        for (size_t j = 0; j < section->row_count; j++)
            check_row(&section->rows[j],
                      (const char *)sl_config_base(config, section) + section->rows[j].offset);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sl_config config;
    int64_t bytes;
    char *entry = malloc(size + 1), *equals;
    int err;

    sl_assert(entry != NULL);
    memcpy(entry, data, size);
    entry[size] = '\0';
    if (sl_log_configure(entry) != 0)
        sl_assert(sluice_last_error()[0] != '\0');
    if (sl_parse_bytes(entry, &bytes) == 0)
        sl_assert(bytes >= 0);
    equals = strchr(entry, '=');
    if (equals != NULL) {
        *equals = '\0';
        sl_config_defaults(&config);
        err = sl_config_set(&config, entry, equals + 1);
        sl_assert(err <= 0);
        sl_assert(err == 0 || sluice_last_error()[0] != '\0');
        check_limits(&config);
    }
    free(entry);
    return 0;
}
