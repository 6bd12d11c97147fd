/* SPDX-License-Identifier: Apache-2.0 */
/* What ibnetdiscover prints: what is taken for a fabric has two ends at each link. */
#include "monitor/read/fabric.h"
#include "read.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_read read = fuzz_read_of(data, size);
    struct sl_fabric fabric = {0};
    int err = sl_fabric_read(&fabric, &read.in);

    sl_assert(err == 0 || err == -EBADMSG);
    for (uint32_t i = 0; err == 0 && i < fabric.port_count; i++)
        sl_assert(fabric.ports[i].peer < fabric.port_count &&
                  fabric.ports[fabric.ports[i].peer].peer == i);
    sl_fabric_fini(&fabric);
    return 0;
}
