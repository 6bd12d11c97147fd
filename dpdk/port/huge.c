/* SPDX-License-Identifier: Apache-2.0 */
/* Looks for huge pages that this process may take. */
#include "dpdk/port/huge.h"

#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* of Linux 5.14 */
#endif

#define PAGE ((uint64_t)2 << 20)
#define RESERVED ((uint64_t)512 << 30) /* addresses that EAL sets aside for them */

static uint64_t free_pages(void)
{
    FILE *file = fopen("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "re");
    unsigned long long count = 0;

    if (file == NULL)
        return 0;
    if (fscanf(file, "%llu", &count) != 1)
        count = 0;
    fclose(file);
    return count;
}

/* A container may have a limit of its own, and a page beyond it ends the process when it is
 * touched: so one is asked for in a way that fails instead. */
static bool gets_one(void)
{
    int fd = memfd_create("sluice-huge", MFD_HUGETLB | MFD_CLOEXEC);
    bool gets = false;

    if (fd < 0)
        return false;
    if (ftruncate(fd, (off_t)PAGE) == 0) {
        void *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

        if (page != MAP_FAILED) {
            gets = madvise(page, PAGE, MADV_POPULATE_WRITE) == 0;
            munmap(page, PAGE);
        }
    }
    close(fd);
    return gets;
}

bool sl_dpdk_memory_policy_allowed(void)
{
    return syscall(SYS_get_mempolicy, NULL, NULL, 0, NULL, 0) == 0 || errno != EPERM;
}

bool sl_dpdk_huge_pages_free(uint64_t bytes)
{
    struct rlimit addresses;

    if (free_pages() * PAGE < bytes || !sl_dpdk_memory_policy_allowed())
        return false;
    if (getrlimit(RLIMIT_AS, &addresses) == 0 && addresses.rlim_cur != RLIM_INFINITY &&
        addresses.rlim_cur < RESERVED)
        return false;
    return gets_one();
}
