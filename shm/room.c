/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Is there room for this much memory? Asked before the kernel is.
 *
 * Pages of a memfd count against the memory control group, and a group at its limit does not make
 * fallocate fail: the kernel kills a process of the group. A file size limit (ulimit -f) sends
 * SIGXFSZ. So both are compared first. It is no promise, as others allocate too, but it turns the
 * usual mistakes (a container limit, an absurd ring size) into a sentence. The size of /dev/shm is
 * no limit: a memfd does not live there.
 */
#include "shm/room.h"

#include "core/clock.h"
#include "core/err.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define MIB (1024.0 * 1024.0)
#define LINE_LEN 512

/* Small requests are not worth reading files for. */
#define CHECK_MIN (256u * 1024)

static int read_number(const char *dir, const char *file, unsigned long long *out)
{
    char path[3 * LINE_LEN];
    FILE *f;
    int got;

    snprintf(path, sizeof(path), "%s/%s", dir, file);
    f = fopen(path, "re");
    if (f == NULL)
        return -ENOENT;
    got = fscanf(f, "%llu", out); /* "max" is no number: no limit */
    fclose(f);
    return got == 1 ? 0 : -ENOENT;
}

static unsigned long long mem_available(void)
{
    char line[LINE_LEN];
    unsigned long long kib = ~0ull >> 10;
    FILE *f = fopen("/proc/meminfo", "re");

    if (f == NULL)
        return ~0ull;
    while (fgets(line, sizeof(line), f) != NULL)
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
            break;
    fclose(f);
    return kib << 10;
}

/* Pages of files count as used until the memory is needed. */
static unsigned long long reclaimable(const char *dir)
{
    char line[3 * LINE_LEN];
    unsigned long long sum = 0, value;
    FILE *f;

    snprintf(line, sizeof(line), "%s/memory.stat", dir);
    f = fopen(line, "re");
    if (f == NULL)
        return 0;
    while (fgets(line, sizeof(line), f) != NULL)
        if (sscanf(line, "inactive_file %llu", &value) == 1 ||
            sscanf(line, "active_file %llu", &value) == 1)
            sum += value;
    fclose(f);
    return sum;
}

/* Memory that the group at dir, of either version, still lets its processes take. */
static unsigned long long room_in(const char *dir, unsigned long long *limit)
{
    unsigned long long max, used;

    if ((read_number(dir, "memory.max", &max) == 0 &&
         read_number(dir, "memory.current", &used) == 0) ||
        (read_number(dir, "memory.limit_in_bytes", &max) == 0 &&
         read_number(dir, "memory.usage_in_bytes", &used) == 0)) {
        unsigned long long files = max - used < max / 2 ? reclaimable(dir) : 0;

        *limit = max;
        used -= files < used ? files : used;
        return max > used ? max - used : 0;
    }
    return ~0ull;
}

/* The narrowest of this process's memory group and the groups above it. In a container with a
 * namespace of its own the path is "/" and its root shows the container's limit. */
static unsigned long long group_room(unsigned long long *limit)
{
    char line[LINE_LEN], dir[2 * LINE_LEN];
    unsigned long long best = ~0ull;
    FILE *f = fopen("/proc/self/cgroup", "re");

    if (f == NULL)
        return best;
    while (fgets(line, sizeof(line), f) != NULL) {
        char *path = strstr(line, ":memory:");
        const char *root = "/sys/fs/cgroup/memory";

        line[strcspn(line, "\n")] = '\0';
        if (path != NULL) {
            path += strlen(":memory:");
        } else if (strncmp(line, "0::", 3) == 0) {
            path = line + 3;
            root = "/sys/fs/cgroup";
        } else {
            continue;
        }
        for (;;) {
            unsigned long long here_limit = 0, here;
            char *slash;

            snprintf(dir, sizeof(dir), "%s%s", root, path);
            here = room_in(dir, &here_limit);
            if (here < best) {
                best = here;
                *limit = here_limit;
            }
            slash = strrchr(path, '/');
            if (slash == NULL || path[0] == '\0')
                break;
            *slash = '\0';
        }
    }
    fclose(f);
    return best;
}

/* Asked before the file is filled: that takes seconds where it is large and the machine busy, and
 * peers wait no longer. */
static bool has_addresses(size_t len)
{
    void *at = mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (at == MAP_FAILED)
        return false;
    munmap(at, len);
    return true;
}

/* Who connects to many peers asks for each: what a look found serves, for a moment, for requests
 * that all together are a small part of it. */
#define LOOK_NS (50 * SL_NS_PER_MS)
#define LOOK_PART 256

static _Thread_local struct {
    uint64_t until_ns;
    size_t left;
} look;

int shm_room_check(const char *what, const char *advice, size_t len, size_t backed)
{
    unsigned long long limit = 0, room, available;
    uint64_t now_ns = sl_now(&sl_clock_monotonic);
    struct rlimit file;

    if (getrlimit(RLIMIT_FSIZE, &file) == 0 && file.rlim_cur != RLIM_INFINITY &&
        len > file.rlim_cur)
        return sl_fail(-ENOMEM,
                       "%s needs %.1f MiB of memory, but files may have %.1f MiB at most; raise "
                       "the limit (ulimit -f) or %s",
                       what, (double)len / MIB, (double)file.rlim_cur / MIB, advice);
    if (len < CHECK_MIN)
        return 0;
    if (!has_addresses(len))
        return sl_fail(-ENOMEM,
                       "%s needs %.1f MiB of addresses, which this process cannot map: %s; see "
                       "ulimit -v, or %s",
                       what, (double)len / MIB, strerror(errno), advice);
    if (backed <= look.left && now_ns < look.until_ns) {
        look.left -= backed;
        return 0;
    }
    room = group_room(&limit);
    if (backed > room)
        return sl_fail(-ENOMEM,
                       "%s needs %.1f MiB of memory, but the control group has %.1f MiB left of "
                       "its limit of %.1f MiB; raise the container's memory limit or %s",
                       what, (double)backed / MIB, (double)room / MIB, (double)limit / MIB, advice);
    available = mem_available();
    if (backed > available)
        return sl_fail(-ENOMEM,
                       "%s needs %.1f MiB of memory, but only %.1f MiB are available; free some "
                       "or %s",
                       what, (double)backed / MIB, (double)available / MIB, advice);
    look.left = (room < available ? room : available) / LOOK_PART;
    look.until_ns = now_ns + LOOK_NS;
    return 0;
}
