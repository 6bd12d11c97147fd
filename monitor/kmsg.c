/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/kmsg.h"

#include "core/err.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- records ---- */

static void take_text(const char *bytes, size_t len, char *out, size_t cap)
{
    size_t kept = 0;

    for (size_t i = 0; i < len && bytes[i] != '\n' && kept + 1 < cap; i++)
        out[kept++] = isprint((unsigned char)bytes[i]) || bytes[i] == '\t' ? bytes[i] : '?';
    out[kept] = '\0';
}

/* A decimal number that ends with that character. NULL: it is none. */
static const char *take_number(const char *at, const char *end, char stop, uint64_t *out)
{
    uint64_t value = 0;
    const char *start = at;

    while (at < end && isdigit((unsigned char)*at)) {
        if (value > (UINT64_MAX - 9) / 10)
            return NULL;
        value = value * 10 + (uint64_t)(*at++ - '0');
    }
    if (at == start || at == end || *at != stop)
        return NULL;
    *out = value;
    return at + 1;
}

static bool parse_record(const char *bytes, size_t len, struct sl_mon_kmsg *out)
{
    const char *end = bytes + len, *semicolon = memchr(bytes, ';', len);
    uint64_t priority = 0;
    const char *at = take_number(bytes, end, ',', &priority);

    if (at == NULL || semicolon == NULL)
        return false;
    at = take_number(at, end, ',', &out->number);
    if (at == NULL)
        return false;
    at = take_number(at, end, ',', &out->time_us);
    if (at == NULL || at > semicolon)
        return false;
    out->has_number = true;
    out->priority = priority & 7;
    take_text(semicolon + 1, (size_t)(end - semicolon - 1), out->text, sizeof(out->text));
    return true;
}

/* "<6>[    2.608284] text" without one of the two; the time may be a date. */
static bool parse_line(const char *bytes, size_t len, struct sl_mon_kmsg *out)
{
    const char *end = bytes + len, *at = bytes, *close;
    uint64_t priority = 6, seconds = 0, fraction = 0;

    if (at < end && *at == '<') {
        at = take_number(at + 1, end, '>', &priority);
        if (at == NULL)
            return false;
    }
    if (at == end || *at != '[')
        return false;
    close = memchr(at, ']', (size_t)(end - at));
    if (close == NULL)
        return false;
    at++;
    while (at < close && *at == ' ')
        at++;
    at = take_number(at, close, '.', &seconds);
    if (at != NULL && seconds < UINT64_C(1) << 40) {
        while (at < close && isdigit((unsigned char)*at) && fraction < 1000000)
            fraction = fraction * 10 + (uint64_t)(*at++ - '0');
        out->time_us = seconds * 1000000 + fraction;
    }
    out->priority = priority & 7;
    at = close + 1;
    while (at < end && *at == ' ')
        at++;
    take_text(at, (size_t)(end - at), out->text, sizeof(out->text));
    return true;
}

bool sl_mon_kmsg_parse(const char *bytes, size_t len, struct sl_mon_kmsg *out)
{
    *out = (struct sl_mon_kmsg){.number = 0};
    return (parse_record(bytes, len, out) || parse_line(bytes, len, out)) && out->text[0] != '\0';
}

/* ---- XIDs ---- */

static const struct {
    uint32_t xid;
    bool fatal;
    const char *text;
} xids[] = {
    {13, false, "graphics engine exception: an error of the program, or of the GPU"},
    {31, false, "memory page fault: mostly an error of the program"},
    {32, false, "invalid or corrupted push buffer"},
    {38, false, "driver firmware error"},
    {43, false, "the GPU stopped processing: mostly an error of the program"},
    {45, false, "preemptive cleanup after an earlier error"},
    {48, true, "uncorrectable ECC error"},
    {61, true, "internal micro-controller breakpoint"},
    {62, true, "internal micro-controller halt"},
    {63, false, "a row or page of memory is remapped at the next reset"},
    {64, true, "remapping a row or page of memory failed"},
    {68, false, "video processor exception"},
    {69, false, "graphics engine class error"},
    {74, true, "NVLink error"},
    {79, true, "the GPU has fallen off the bus"},
    {92, false, "many correctable ECC errors"},
    {94, false, "contained uncorrectable ECC error: the program that met it ends"},
    {95, true, "uncontained uncorrectable ECC error"},
    {109, false, "context switch timeout"},
    {110, true, "security fault"},
    {119, true, "GSP did not answer an RPC in time"},
    {120, true, "GSP error"},
    {121, false, "corrected C2C error"},
    {136, true, "link training failed"},
    {140, true, "unrecovered ECC error"},
    {143, true, "GPU initialisation error"},
    {145, false, "NVLink RLW error"},
    {149, true, "NVLink NETIR error"},
    {154, true, "the GPU asks to be recovered"},
    {155, false, "NVLink: software-defined error"},
    {156, true, "resource retirement event"},
    {157, true, "resource retirement failure"},
    {158, true, "GPU fatal timeout"},
};

const char *sl_mon_xid(uint32_t xid, bool *fatal)
{
    for (size_t i = 0; i < SL_ARRAY_LEN(xids); i++)
        if (xids[i].xid == xid) {
            *fatal = xids[i].fatal;
            return xids[i].text;
        }
    *fatal = false;
    return NULL;
}

/* ---- findings ---- */

/* "0000:9b:00.0" of what begins like a PCI address: "PCI:0000:9b:00", "0000:41:00.1". */
static bool take_pci(const char *at, char *out, size_t cap)
{
    unsigned domain, bus, slot, function = 0;
    int used = 0;

    if (sscanf(at, "%4x:%2x:%2x%n", &domain, &bus, &slot, &used) != 3 || used < 10 || slot > 0x1f)
        return false;
    if (at[used] == '.' && at[used + 1] >= '0' && at[used + 1] <= '7')
        function = (unsigned)(at[used + 1] - '0');
    snprintf(out, cap, "%04x:%02x:%02x.%u", domain, bus, slot, function);
    return true;
}

static bool find_pci(const char *text, char *out, size_t cap)
{
    for (const char *at = text; *at != '\0'; at++)
        if (isxdigit((unsigned char)*at) && (at == text || !isxdigit((unsigned char)at[-1])) &&
            take_pci(at, out, cap))
            return true;
    return false;
}

static bool starts(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static bool has_any(const char *text, const char *const *words)
{
    for (; *words != NULL; words++)
        if (strcasestr(text, *words) != NULL)
            return true;
    return false;
}

/* "NVRM: Xid (PCI:0000:9b:00): 119, pid=...", "NVRM: Xid (0000:03:00): 59, ..." */
static bool find_xid(const char *text, struct sl_mon_finding *out)
{
    const char *at = strstr(text, "Xid (");
    char *end;
    bool fatal;

    if (!starts(text, "NVRM: ") || at == NULL)
        return false;
    at += strlen("Xid (");
    if (starts(at, "PCI:"))
        at += strlen("PCI:");
    if (!take_pci(at, out->name, sizeof(out->name)))
        return false;
    at = strstr(at, "):");
    if (at == NULL)
        return false;
    unsigned long xid = strtoul(at + 2, &end, 10);

    if (end == at + 2 || xid == 0 || xid > UINT16_MAX)
        return false;
    out->code = (uint32_t)xid;
    (void)sl_mon_xid(out->code, &fatal);
    out->check = fatal ? SL_MON_CHECK_GPU_FATAL : SL_MON_CHECK_GPU_ERROR;
    return true;
}

/* "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 ..." */
static bool find_sxid(const char *text, struct sl_mon_finding *out)
{
    const char *at = strstr(text, "SXid (PCI:");
    char *end;

    if (!starts(text, "nvidia-nvswitch") || at == NULL ||
        !take_pci(at + strlen("SXid (PCI:"), out->name, sizeof(out->name)))
        return false;
    at = strstr(at, "):");
    if (at == NULL)
        return false;
    unsigned long sxid = strtoul(at + 2, &end, 10);

    if (end == at + 2 || sxid == 0 || sxid > UINT16_MAX)
        return false;
    out->code = (uint32_t)sxid;
    out->check =
        strcasestr(end, "non-fatal") != NULL ? SL_MON_CHECK_GPU_ERROR : SL_MON_CHECK_GPU_FATAL;
    return true;
}

/* The driver of a NIC, by what the kernel's drivers of RDMA devices are called. */
static bool find_driver(const char *text, struct sl_mon_finding *out)
{
    static const char *const drivers[] = {"mlx5_core ", "mlx4_core ", "bnxt_en ", "irdma ",
                                          "ice ",       "ena ",       "efa ",     NULL};
    static const char *const troubles[] = {"health compromised",
                                           "fatal error",
                                           "firmware internal error",
                                           "fw reported critical",
                                           "command execution timeout",
                                           "cmd timeout",
                                           "timeout. will cause a leak of a command resource",
                                           "no done completion",
                                           "poll_health",
                                           "assert_var",
                                           "device is in fatal",
                                           "high temperature",
                                           "TX timeout",
                                           "unrecoverable",
                                           "hung",
                                           NULL};

    for (const char *const *driver = drivers; *driver != NULL; driver++)
        if (starts(text, *driver) && has_any(text, troubles) &&
            find_pci(text, out->name, sizeof(out->name))) {
            out->check = SL_MON_CHECK_NIC_DRIVER;
            return true;
        }
    return false;
}

/* "NETDEV WATCHDOG: eth0 (mlx5_core): transmit queue 3 timed out" */
static bool find_watchdog(const char *text, struct sl_mon_finding *out)
{
    const char *at = strstr(text, "NETDEV WATCHDOG: ");
    size_t len;

    if (at == NULL || strstr(at, "timed out") == NULL)
        return false;
    at += strlen("NETDEV WATCHDOG: ");
    len = strcspn(at, " (:");
    if (len == 0 || len >= sizeof(out->name))
        return false;
    snprintf(out->name, sizeof(out->name), "%.*s", (int)len, at);
    out->check = SL_MON_CHECK_NIC_DRIVER;
    return true;
}

/* Whom a root port names: "error received: 0000:01:00.0"; newer kernels say "error message received
 * from 0000:01:00.0". NULL: it names nobody. */
static const char *reporter(const char *text)
{
    static const char *const forms[] = {"error received: ", "error message received from "};

    for (unsigned i = 0; i < SL_ARRAY_LEN(forms); i++) {
        const char *at = strstr(text, forms[i]);

        if (at != NULL)
            return at + strlen(forms[i]);
    }
    return NULL;
}

/* What was corrected cost a repetition on the link; what was not and is not fatal, a transaction;
 * after what is fatal the link is not to be trusted. (Newer kernels say "Correctable".) */
static enum sl_mon_check severity(const char *text)
{
    if (strstr(text, "(Fatal)") != NULL)
        return SL_MON_CHECK_NIC_BUS_FATAL;
    return strstr(text, "Correct") != NULL ? SL_MON_CHECK_NIC_BUS_CORRECTED : SL_MON_CHECK_NIC_BUS;
}

/* "pcieport 0000:00:01.0: AER: Uncorrected (Fatal) error received: 0000:01:00.0", "... PCIe Bus
 * Error: severity=Corrected, type=Data Link Layer, ..." of the device itself. */
static bool find_aer(const char *text, struct sl_mon_finding *out)
{
    const char *received = strstr(text, "AER: ") != NULL ? reporter(text) : NULL;

    if (received == NULL && strstr(text, "PCIe Bus Error: ") == NULL)
        return false;
    if (received != NULL ? !take_pci(received, out->name, sizeof(out->name))
                         : !find_pci(text, out->name, sizeof(out->name)))
        return false;
    out->check = severity(text);
    return true;
}

static bool find_host(const char *text, struct sl_mon_finding *out)
{
    snprintf(out->name, sizeof(out->name), "host");
    if (strstr(text, "Machine Check") != NULL && strstr(text, "[Hardware Error]") != NULL &&
        strcasestr(text, "corrected error") == NULL) {
        out->check = SL_MON_CHECK_HOST_MACHINE;
        return true;
    }
    if (strstr(text, "EDAC ") != NULL && strstr(text, " UE ") != NULL) {
        out->check = SL_MON_CHECK_HOST_MACHINE;
        return true;
    }
    if (starts(text, "INFO: task ") && strstr(text, " blocked for more than ") != NULL) {
        out->check = SL_MON_CHECK_HOST_HUNG;
        return true;
    }
    if (strstr(text, "ut of memory: Killed process ") != NULL) {
        out->check = SL_MON_CHECK_HOST_MEMORY;
        return true;
    }
    return false;
}

bool sl_mon_kmsg_find(const char *text, struct sl_mon_finding *out)
{
    *out = (struct sl_mon_finding){.check = SL_MON_CHECK_COUNT};
    return find_xid(text, out) || find_sxid(text, out) || find_driver(text, out) ||
           find_watchdog(text, out) || find_aer(text, out) || find_host(text, out);
}
