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
static void check_limits(const struct sl_config *config)
{
    for (size_t i = 0; i < sl_config_row_count; i++) {
        const struct sl_config_row *row = &sl_config_rows[i];
        const char *field = (const char *)config + row->offset;

        if (row->type == SL_CONFIG_TEXT) {
            sl_assert(memchr(field, '\0', SL_TEXT_MAX) != NULL);
        } else {
            int64_t value;

            memcpy(&value, field, sizeof(value));
            sl_assert(value >= row->min && value <= row->max);
        }
    }
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
