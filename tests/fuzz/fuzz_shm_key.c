/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of shm regions, as a peer hands them over: two bytes of length, as in struct sl_key, then
 * the key. */
#include "core/err.h"
#include "shm/wire.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sl_key key = {0}, again;
    struct shm_key parsed;

    if (size < 2)
        return 0;
    key.len = (uint16_t)(data[0] | data[1] << 8);
    memcpy(key.bytes, data + 2, size - 2 < SL_KEY_MAX ? size - 2 : SL_KEY_MAX);
    if (shm_key_parse(&key, &parsed) != 0)
        return 0;
    sl_assert(parsed.id != 0 && parsed.len != 0 && parsed.len <= INT64_MAX);
    shm_key_pack(&parsed, &again);
    sl_assert(again.len == key.len && memcmp(again.bytes, key.bytes, key.len) == 0);
    return 0;
}
