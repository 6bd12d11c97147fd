/* SPDX-License-Identifier: Apache-2.0 */
/* Every byte that a process can send over the shm socket, and every address. */
#include "core/err.h"
#include "shm/wire.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sl_addr bytes = {.len = size > SL_ADDR_MAX ? SL_ADDR_MAX : (uint16_t)size}, again;
    struct shm_addr addr;
    struct shm_msg msg;
    size_t body = 0;

    if (shm_msg_parse(data, size, &msg, &body) == 0) {
        sl_assert(size == SHM_MSG_LEN(body));
        if (msg.head.type == SHM_HELLO || msg.head.type == SHM_WELCOME)
            sl_assert(msg.hello.ring_bytes <= SHM_RING_MAX && msg.hello.cells <= SHM_CELLS_MAX);
        if (msg.head.type == SHM_REGION)
            sl_assert(msg.region.fd_off + msg.region.len >= msg.region.len);
        if (msg.head.type == SHM_REFUSE)
            sl_assert(memchr(msg.refuse.text, '\0', sizeof(msg.refuse.text)) != NULL);
    }
    memcpy(bytes.bytes, data, bytes.len);
    if (shm_addr_parse(&bytes, &addr) == 0) {
        sl_assert(addr.name_len > 0 && addr.name_len <= sizeof(addr.name));
        shm_addr_pack(&addr, &again);
        sl_assert(again.len == bytes.len && memcmp(again.bytes, bytes.bytes, bytes.len) == 0);
    }
    return 0;
}
