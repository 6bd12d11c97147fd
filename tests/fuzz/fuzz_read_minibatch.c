/* SPDX-License-Identifier: Apache-2.0 */
/* Times of mini-batches. */
#include "read.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_format(&sl_read_minibatch, data, size);
    return 0;
}
