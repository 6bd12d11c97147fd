/* SPDX-License-Identifier: Apache-2.0 */
/* The size of the last cache, out of sysfs. */
#include "core/cache.h"

#include "core/host.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CACHE_GUESS ((size_t)8 << 20)

/* One line of /sys/devices/system/cpu/cpuN/cache/indexM/FILE; false when there is none. */
static bool read_cache_text(int cpu, int index, const char *file, char *text, size_t size)
{
    char path[128];

    snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/cache/index%d/%s", cpu, index,
             file);
    return sl_host_line(path, text, size);
}

/* The kernel lists a core's own caches: where the last one belongs to a group of cores (AMD's core
 * complexes), this is the group's, not the sum of all groups, which sysconf() may tell. */
size_t sl_cache_last_level(void)
{
    int here = sched_getcpu(), cpu = here < 0 ? 0 : here, level, level_max = 0;
    char type[32], text[32];
    size_t best = 0, kib;
    long fallback;

    for (int i = 0; read_cache_text(cpu, i, "type", type, sizeof(type)); i++) {
        if (strncmp(type, "Instruction", 11) == 0 ||
            !read_cache_text(cpu, i, "level", text, sizeof(text)) ||
            sscanf(text, "%d", &level) != 1 || level < level_max ||
            !read_cache_text(cpu, i, "size", text, sizeof(text)) ||
            sscanf(text, "%zuK", &kib) != 1 || kib == 0)
            continue;
        level_max = level;
        best = kib << 10;
    }
    if (best != 0)
        return best;
    fallback = sysconf(_SC_LEVEL3_CACHE_SIZE);
    return fallback > 0 ? (size_t)fallback : CACHE_GUESS;
}
