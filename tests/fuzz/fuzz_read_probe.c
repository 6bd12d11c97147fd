/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of what agents' probes found. */
#include "read.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_format(&sl_read_probe, data, size);
    return 0;
}
