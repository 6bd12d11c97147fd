/* SPDX-License-Identifier: Apache-2.0 */
/* Prometheus's text form, of xpu_timer and of NCCL Inspector. */
#include "read.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_format(&sl_read_xpu_timer, data, size);
    fuzz_format(&sl_read_inspector_prom, data, size);
    return 0;
}
