/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's configuration: what is accepted is within its ranges, what is refused leaves the one
 * before as it was and names its line. */
#include "core/err.h"
#include "monitor/config.h"
#include "tests/fuzz/text.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_ranges(const struct sl_mon_config *config)
{
    for (unsigned i = 0; i < sl_mon_config_row_count; i++) {
        const struct sl_mon_config_row *row = &sl_mon_config_rows[i];
        const void *field = (const char *)config + row->offset;

        if (row->type == SL_MON_CONFIG_TEXT)
            sl_assert(memchr(field, '\0', row->cap) != NULL);
        if (row->type == SL_MON_CONFIG_NUMBER)
            sl_assert(*(const int64_t *)field >= row->least &&
                      *(const int64_t *)field <= row->most);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct sl_mon_config before, config;
    char *text = fuzz_text(data, size);
    FILE *file = text == NULL || text[0] == '\0' ? NULL : fmemopen(text, strlen(text), "r");

    if (file != NULL) {
        memset(&before, 0x5a, sizeof(before));
        config = before;
        if (sl_mon_config_read(file, "x", &config) == 0)
            check_ranges(&config);
        else
            sl_assert(memcmp(&config, &before, sizeof(config)) == 0 &&
                      strncmp(sluice_last_error(), "x:", 2) == 0);
        fclose(file);
    }
    free(text);
    return 0;
}
