/* SPDX-License-Identifier: Apache-2.0 */
/* munmap() that waits for the end of a burst: see memif_guard.h. */
#include "testing/dpdk/memif_guard.h"

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

_Atomic unsigned sl_memif_round;
static _Thread_local bool is_poller;

void sl_memif_guard(void)
{
    is_poller = true;
}

/* Before libc's own: symbols of the program come first, for libraries that it opens too. */
__attribute__((visibility("default"))) int munmap(void *addr, size_t len)
{
    unsigned round = atomic_load(&sl_memif_round);
    while (!is_poller && round % 2 && atomic_load(&sl_memif_round) == round)
        sched_yield();
    return (int)syscall(SYS_munmap, addr, len);
}
