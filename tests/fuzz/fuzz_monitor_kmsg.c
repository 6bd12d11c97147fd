/* SPDX-License-Identifier: Apache-2.0 */
/* Records of the kernel's log, which carry what any user of /dev/kmsg wrote: what is read is a text
 * that ends and has nothing to move a terminal by; what is found has a name, and is of a kind of
 * subject that has such a check. */
#include "core/err.h"
#include "monitor/kmsg.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sl_mon_finding finding;
    struct sl_mon_kmsg record;

    if (!sl_mon_kmsg_parse((const char *)data, size, &record))
        return 0;
    size_t len = strnlen(record.text, sizeof(record.text));

    sl_assert(len > 0 && len < sizeof(record.text) && record.priority < 8);
    for (size_t i = 0; i < len; i++)
        sl_assert(record.text[i] == '\t' || (record.text[i] >= ' ' && record.text[i] != 0x7f));
    if (!sl_mon_kmsg_find(record.text, &finding))
        return 0;
    len = strnlen(finding.name, sizeof(finding.name));
    sl_assert(finding.check < SL_MON_CHECK_COUNT && len > 0 && len < sizeof(finding.name));
    sl_assert(finding.code == 0 || sl_mon_checks[finding.check].kind == SL_MON_GPU);
    return 0;
}
