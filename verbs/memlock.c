/* SPDX-License-Identifier: Apache-2.0 */
/* Compares what would be pinned with RLIMIT_MEMLOCK, and says where that is set. */
#include "verbs/memlock.h"

#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* CAP_IPC_LOCK lifts the limit, but the kernel asks for it in the first user namespace only. */
static bool may_lock_everything(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{0}};
    unsigned long inside, outside, len;
    bool first_namespace;
    FILE *map;

    if (syscall(SYS_capget, &header, data) != 0 || (data[0].effective & 1u << CAP_IPC_LOCK) == 0)
        return false;
    map = fopen("/proc/self/uid_map", "re");
    if (map == NULL)
        return true; /* a kernel without user namespaces */
    first_namespace = fscanf(map, "%lu %lu %lu", &inside, &outside, &len) == 3 && inside == 0 &&
                      outside == 0 && len == UINT32_MAX;
    fclose(map);
    return first_namespace;
}

/* What drivers have pinned for this process so far. */
static uint64_t pinned_now(void)
{
    char line[128];
    unsigned long kib = 0;
    FILE *status = fopen("/proc/self/status", "re");

    if (status == NULL)
        return 0;
    while (fgets(line, sizeof(line), status) != NULL)
        if (sscanf(line, "VmPin: %lu", &kib) == 1)
            break;
    fclose(status);
    return (uint64_t)kib << 10;
}

bool sl_verbs_memlock_fits(uint64_t more, char *why, size_t cap)
{
    struct rlimit limit;
    uint64_t needed;

    if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || may_lock_everything())
        return true;
    needed = pinned_now() + more;
    if (needed <= limit.rlim_cur)
        return true;
    snprintf(why, cap,
             "the limit of locked memory is %llu KiB, but %llu KiB are needed, and registered buffers besides: "
             "ulimit -l unlimited, systemd (slurmd) LimitMEMLOCK=infinity, container --ulimit memlock=-1",
             (unsigned long long)(limit.rlim_cur >> 10), (unsigned long long)((needed + 1023) >> 10));
    return false;
}
