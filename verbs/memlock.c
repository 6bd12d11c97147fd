/* SPDX-License-Identifier: Apache-2.0 */
/* Compares what would be pinned with RLIMIT_MEMLOCK, and says where that is set. */
#include "verbs/memlock.h"

#include "core/mem.h"

#include <linux/capability.h>
#include <stdio.h>
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

bool sl_verbs_memlock_fits(uint64_t more, char *why, size_t cap)
{
    struct sl_mem_lock lock;
    uint64_t needed;

    sl_mem_lock_read(&lock);
    needed = lock.pinned + more;
    if (lock.limit == UINT64_MAX || needed <= lock.limit || may_lock_everything())
        return true;
    snprintf(why, cap,
             "locked memory is limited to %llu KiB, but %llu KiB are needed, and registered "
             "buffers besides: ulimit -l unlimited; systemd, slurmd: LimitMEMLOCK=infinity; "
             "containers: --ulimit memlock=-1",
             (unsigned long long)(lock.limit >> 10), (unsigned long long)((needed + 1023) >> 10));
    return false;
}
