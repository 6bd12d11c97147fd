/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the reduction kernels by name and CPU, and tells the size of the last cache. */
#include "collectives/reduce.h"

#include "collectives/reduce_kernels.h"
#include "core/err.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CACHE_GUESS ((size_t)8 << 20)

int sl_kernels_select(const char *name, const struct sl_kernels **out)
{
    for (size_t i = 0; i < sl_kernels_choice_count; i++) {
        const struct sl_kernels_choice *choice = &sl_kernels_choices[i];
        const char *lacks = choice->lacks();

        if (strcmp(name, "auto") == 0 ? lacks != NULL : strcmp(name, choice->kernels->name) != 0)
            continue;
        if (lacks != NULL)
            return sl_fail(-ENOTSUP, "this CPU cannot run the %s kernels: it lacks %s; set "
                           "SLUICE_KERNEL to auto", name, lacks);
        *out = choice->kernels;
        return 0;
    }
    if (strcmp(name, "avx512") == 0 || strcmp(name, "avx2") == 0)
        return sl_fail(-ENOTSUP, "this build has no %s kernels, which are for x86-64; set "
                       "SLUICE_KERNEL to auto", name);
    return sl_fail(-EINVAL, "there are no kernels named '%s'; set SLUICE_KERNEL to auto, avx512, "
                   "avx2 or c", name);
}

/* One line of /sys/devices/system/cpu/cpuN/cache/indexM/FILE; false when there is none. */
static bool read_cache_text(int cpu, int index, const char *file, char *text, int size)
{
    char path[128];
    FILE *in;
    bool ok;

    snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/cache/index%d/%s", cpu, index,
             file);
    in = fopen(path, "re");
    if (in == NULL)
        return false;
    ok = fgets(text, size, in) != NULL;
    fclose(in);
    return ok;
}

/* The kernel lists a core's own caches: where the last one belongs to a group of cores (AMD's core
 * complexes), this is the group's, not the sum of all groups. */
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
