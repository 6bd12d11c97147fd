/* SPDX-License-Identifier: Apache-2.0 */
/* Traces of Chrome's and Kineto's form. */
#include "read.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_format(&sl_read_trace, data, size);
    return 0;
}
