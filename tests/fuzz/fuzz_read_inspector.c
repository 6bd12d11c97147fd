/* SPDX-License-Identifier: Apache-2.0 */
/* What NCCL Inspector writes, in JSON. */
#include "read.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_format(&sl_read_inspector, data, size);
    return 0;
}
