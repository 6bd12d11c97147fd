/* SPDX-License-Identifier: Apache-2.0 */
/* Says why memory could not be locked: need, limit, use and advice. */
#include "core/err.h"
#include "core/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define KIB UINT64_C(1024)

/* "64 KiB", "1.5 GiB": rounded up, so that a limit set to it is enough. */
static const char *size_text(uint64_t bytes, char out[32])
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
    uint64_t tenths = (bytes / KIB + (bytes % KIB != 0)) * 10;
    unsigned unit = 0;

    if (bytes == UINT64_MAX)
        return "unlimited";
    for (; tenths >= 10 * KIB && unit + 1 < SL_ARRAY_LEN(units); unit++)
        tenths = tenths / KIB + (tenths % KIB != 0);
    snprintf(out, 32, tenths % 10 != 0 ? "%llu.%llu %s" : "%llu%.0llu %s",
             (unsigned long long)(tenths / 10), (unsigned long long)(tenths % 10), units[unit]);
    return out;
}

static uint64_t status_kib(const char *line, const char *name)
{
    size_t len = strlen(name);

    return strncmp(line, name, len) == 0 ? strtoull(line + len, NULL, 10) * KIB : 0;
}

void sl_mem_lock_read(struct sl_mem_lock *out)
{
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    FILE *file = fopen("/proc/self/status", "re");
    char line[256];

    getrlimit(RLIMIT_MEMLOCK, &limit);
    *out = (struct sl_mem_lock){.limit =
                                    limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : limit.rlim_cur};
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        out->locked += status_kib(line, "VmLck:");
        out->pinned += status_kib(line, "VmPin:");
    }
    if (file != NULL)
        fclose(file);
}

int sl_mem_lock_failed_at(int err, size_t len, const struct sl_mem_lock *lock)
{
    char need[32], limit[32], locked[32], pinned[32];
    const char *why = strerror(-err);

    size_text(len, need);
    if (err != -ENOMEM && err != -EPERM && err != -EAGAIN)
        return sl_fail(err, "%s of memory cannot be registered: %s", need, why);
    size_text(lock->locked, locked);
    size_text(lock->pinned, pinned);
    if (lock->limit == UINT64_MAX)
        return sl_fail(
            err,
            "%s of memory cannot be registered: %s; this process has locked %s and pinned "
            "%s, and RLIMIT_MEMLOCK sets no limit: look for a limit of the device or of "
            "the control group, or for too little free memory",
            need, why, locked, pinned);
    return sl_fail(
        err,
        "%s of memory cannot be registered: %s; RLIMIT_MEMLOCK allows %s, of which this "
        "process has locked %s and pinned %s: raise it by ulimit -l unlimited, for services "
        "LimitMEMLOCK=infinity, under Slurm PropagateResourceLimits with MEMLOCK in it, for "
        "containers --ulimit memlock=-1",
        need, why, size_text(lock->limit, limit), locked, pinned);
}

int sl_mem_lock_failed(int err, size_t len)
{
    struct sl_mem_lock lock;

    sl_mem_lock_read(&lock);
    return sl_mem_lock_failed_at(err, len, &lock);
}
