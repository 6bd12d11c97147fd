/* SPDX-License-Identifier: Apache-2.0 */
/* Packets as bytes: the only place that parses them. Anything may be in what is read. */
#include "dpdk/proto/wire.h"

#include "core/crc.h"

#include <string.h>

static uint16_t check_of(const struct sl_dp_head *head)
{
    struct sl_dp_head copy = *head;

    copy.check = 0;
    return (uint16_t)sl_crc32c(0, &copy, sizeof(copy)); /* these bits find any two wrong ones */
}

void sl_dp_head_seal(struct sl_dp_head *head)
{
    head->check = check_of(head);
}

uint32_t sl_dp_payload_crc(const struct sl_dp_head *head, const void *payload, size_t len)
{
    return sl_crc32c(sl_crc32c(0, head, sizeof(*head)), payload, len);
}

bool sl_dp_head_read(const void *bytes, size_t len, struct sl_dp_head *out)
{
    if (len < sizeof(*out))
        return false;
    memcpy(out, bytes, sizeof(*out));
    return out->check == check_of(out);
}

bool sl_dp_payload_read(const struct sl_dp_head *head, const void *bytes, size_t len,
                        const void **payload, size_t *payload_len)
{
    size_t around = sizeof(*head) + ((head->flags & SL_DP_FLAG_CRC) != 0 ? SL_DP_CRC_BYTES : 0);

    if (len < around)
        return false;
    *payload = (const uint8_t *)bytes + sizeof(*head);
    *payload_len = len - around;
    return true;
}

bool sl_dp_payload_good(const struct sl_dp_head *head, const void *payload, size_t payload_len)
{
    uint32_t sum;

    if ((head->flags & SL_DP_FLAG_CRC) == 0)
        return true;
    memcpy(&sum, (const uint8_t *)payload + payload_len, sizeof(sum));
    return sum == sl_dp_payload_crc(head, payload, payload_len);
}

bool sl_dp_ack_read(const void *payload, size_t len, struct sl_dp_ack *out)
{
    if (len < SL_DP_ACK_HEAD || len > sizeof(*out))
        return false;
    memcpy(out, payload, len);
    return out->words <= SL_DP_SACK_WORDS && len == SL_DP_ACK_HEAD + sizeof(uint64_t) * out->words;
}

bool sl_dp_peek(const void *bytes, size_t len, uint32_t *flow)
{
    if (len < SL_DP_HEAD_BYTES)
        return false;
    memcpy(flow, (const uint8_t *)bytes + offsetof(struct sl_dp_head, flow), sizeof(*flow));
    return true;
}
