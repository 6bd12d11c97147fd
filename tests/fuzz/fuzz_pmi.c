/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of a PMI launcher. */
#include "core/err.h"
#include "tests/fuzz/text.h"
#include "launch/pmi.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char out[64] = "untouched", *line = fuzz_text(data, size);

    if (line == NULL)
        return 0;
    if (sl_pmi_parse(line, "get_result", "value", out, sizeof(out)) == 0)
        sl_assert(strlen(out) < sizeof(out) && strchr(out, ' ') == NULL &&
                  strstr(line, out) != NULL);
    else
        sl_assert(strcmp(out, "untouched") == 0);
    sl_pmi_parse(line, "maxes", NULL, NULL, 0);
    free(line);
    return 0;
}
