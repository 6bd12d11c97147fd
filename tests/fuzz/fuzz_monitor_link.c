/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of rtnetlink, one after another: no byte beyond them is read, a name ends, and whatever
 * the counts do, no flap lasts longer than there was time. */
#include "core/err.h"
#include "monitor/link.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sl_mon_link_track track = {.is_known = false};
    struct sl_mon_link_change change;
    uint64_t now_ns = 1000;

    /* The first byte says how long each of them is. */
    for (size_t at = 1; size > 1 && at < size;) {
        size_t len = 16 + data[0] < size - at ? 16u + data[0] : size - at;
        struct sl_mon_link link;
        void *copy = malloc(len); /* as aligned as the socket's buffer, and as long as it is */

        sl_assert(copy != NULL);
        memcpy(copy, data + at, len);
        at += len;
        if (len >= 16 && sl_mon_link_parse(copy, len, &link)) {
            sl_assert(link.ifindex > 0 && memchr(link.name, '\0', sizeof(link.name)) != NULL);
            sl_mon_link_track(&track, &link, now_ns, &change);
            sl_assert(change.lasted_ns < now_ns);
            sl_assert(!change.went_down || !link.has_carrier);
        }
        free(copy);
        now_ns += 1000;
    }
    return 0;
}
