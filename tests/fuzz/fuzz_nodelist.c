/* SPDX-License-Identifier: Apache-2.0 */
/* Slurm's list of hosts. */
#include "core/err.h"
#include "tests/fuzz/text.h"
#include "launch/nodelist.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char out[32], *list = fuzz_text(data, size);

    if (list == NULL)
        return 0;
    if (sl_nodelist_first(list, out, sizeof(out)) == 0)
        sl_assert(*out != '\0' && strlen(out) < sizeof(out) && strpbrk(out, "[], \n") == NULL);
    free(list);
    return 0;
}
