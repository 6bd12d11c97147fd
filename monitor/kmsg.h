/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines of the kernel's log: what they say of hardware.
 *
 * Pure: bytes in, findings out, whatever the bytes are. /dev/kmsg has records
 *
 *     6,3964,206764307,-;nvidia-nvswitch2: open (major=510)
 *      KEY=value
 *
 * of priority and facility, number, microseconds since boot and flags (Linux,
 * Documentation/ABI/testing/dev-kmsg); dmesg and pstore have "[  206.764307] text", "<6>[...] text"
 * and "[Sun Feb 23 16:24:18 2025] text".
 */
#ifndef SL_MONITOR_KMSG_H
#define SL_MONITOR_KMSG_H

#include "monitor/check.h"

#include <stddef.h>

#define SL_MON_KMSG_TEXT 1024

struct sl_mon_kmsg {
    uint64_t number; /* of the record, without a gap; 0 where the form has none */
    uint64_t time_us;
    uint8_t priority;
    bool has_number;
    char text[SL_MON_KMSG_TEXT]; /* of the first line; control characters as ? */
};

/* False: it is no line of any of these forms, or empty. */
bool sl_mon_kmsg_parse(const char *bytes, size_t len, struct sl_mon_kmsg *out);

/* What a line accuses. */
struct sl_mon_finding {
    enum sl_mon_check check;
    char name[64]; /* of the subject: "0000:9b:00.0", "eth0", "host" */
    uint32_t code; /* XID or SXID; else 0 */
};

/* False: it says nothing of what is watched here. */
bool sl_mon_kmsg_find(const char *text, struct sl_mon_finding *out);

/* What an XID means: "GPU has fallen off the bus"; NULL: not known. fatal: the GPU needs a reset or
 * a replacement; else a program may have caused it. (NVIDIA, "XID Errors".) */
const char *sl_mon_xid(uint32_t xid, bool *fatal);

#endif
