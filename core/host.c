/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the kernel which host this is, which cores are ours, and whose a process is. */
#include "core/host.h"

#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

bool sl_host_line(const char *path, char *out, size_t cap)
{
    FILE *file = fopen(path, "re");
    bool ok = file != NULL && fgets(out, (int)cap, file) != NULL;

    if (file != NULL)
        fclose(file);
    if (ok)
        out[strcspn(out, "\n")] = '\0';
    return ok;
}

uint64_t sl_hash(uint64_t start, const void *bytes, size_t len)
{
    const uint8_t *at = bytes;
    uint64_t hash = start;

    for (size_t i = 0; i < len; i++)
        hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
    return hash;
}

uint64_t sl_hash_text(const char *text)
{
    return sl_hash(SL_HASH_START, text, strlen(text));
}

static size_t read_text(const char *path, char *out, size_t cap)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t len = fd < 0 ? -1 : read(fd, out, cap - 1);

    if (fd >= 0)
        close(fd);
    out[len > 0 ? len : 0] = '\0';
    return len > 0 ? (size_t)len : 0;
}

uint64_t sl_host_hash(const struct sl_config *config)
{
    uint8_t id[SL_HOST_ID_BYTES];
    uint64_t hash;

    sl_host_id(config, id);
    memcpy(&hash, id, sizeof(hash));
    return hash;
}

void sl_host_id(const struct sl_config *config, uint8_t out[SL_HOST_ID_BYTES])
{
    uint64_t halves[2] = {0, UINT64_C(0x84222325cbf29ce4)}; /* the second starts apart */
    char text[SL_TEXT_MAX + 64] = "";
    struct stat net = {0};

    if (config->host_id[0] != '\0') {
        snprintf(text, sizeof(text), "%s", config->host_id);
    } else {
        if (read_text("/proc/sys/kernel/random/boot_id", text, SL_TEXT_MAX) == 0)
            gethostname(text, SL_TEXT_MAX - 1); /* no /proc: the best that is left */
        stat("/proc/self/ns/net", &net);
        size_t len = strlen(text);

        snprintf(text + len, sizeof(text) - len, "/%llu", (unsigned long long)net.st_ino);
    }
    halves[0] = sl_hash_text(text);
    for (const char *at = text; *at != '\0'; at++)
        halves[1] = (halves[1] ^ (unsigned char)*at) * UINT64_C(0x100000001b3) + 0x9e;
    memcpy(out, halves, sizeof(halves));
}

/* Of /proc/self/cgroup the lines "ID:CONTROLLERS:PATH" of the processors, "cpu" or with it, and of
 * version 2, "0::". */
static uint64_t hash_cpu_groups(char *text)
{
    uint64_t h = 0;
    char *rest = NULL;

    for (char *line = strtok_r(text, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        const char *names = strchr(line, ':');
        const char *path = names != NULL ? strchr(names + 1, ':') : NULL;

        if (path == NULL)
            continue;
        bool cpu =
            strncmp(names, ":cpu:", 5) == 0 || strncmp(names, ":cpu,", 5) == 0 || path == names + 1;

        for (const char *at = strstr(names, ",cpu"); at != NULL && at < path && !cpu;
             at = strstr(at + 1, ",cpu"))
            cpu = at[4] == ',' || at[4] == ':';
        h = cpu ? h * 31 + sl_hash_text(path) : h;
    }
    return h;
}

uint64_t sl_host_sched_group(void)
{
    char groups[4096], on[8], session[64] = "", text[160];
    struct stat name_space = {0};

    read_text("/proc/self/cgroup", groups, sizeof(groups));
    stat("/proc/self/ns/cgroup", &name_space);
    if (read_text("/proc/sys/kernel/sched_autogroup_enabled", on, sizeof(on)) != 0 && on[0] == '1')
        read_text("/proc/self/autogroup", session, sizeof(session));
    session[strcspn(session, " \n")] = '\0'; /* "/autogroup-18 nice 0" */
    snprintf(text, sizeof(text), "%s %llu %llx", session, (unsigned long long)name_space.st_ino,
             (unsigned long long)hash_cpu_groups(groups));
    return sl_hash_text(text);
}

uint64_t sl_host_facts(void)
{
    char text[sizeof(struct utsname) + 32];
    struct utsname name;

    if (uname(&name) != 0)
        return 0;
    snprintf(text, sizeof(text), "%s %s %s %ld", name.nodename, name.release, name.machine,
             sysconf(_SC_NPROCESSORS_ONLN));
    return sl_hash_text(text);
}

void sl_host_cores(uint64_t mask[SL_CPU_WORDS])
{
    memset(mask, 0, SL_CPU_WORDS * sizeof(mask[0]));
    if (sched_getaffinity(0, SL_CPU_WORDS * sizeof(mask[0]), (cpu_set_t *)(void *)mask) != 0)
        mask[0] = 1;
}

uint64_t sl_host_switches(void)
{
    struct rusage usage = {.ru_nivcsw = 0};

    getrusage(RUSAGE_THREAD, &usage);
    return (uint64_t)usage.ru_nivcsw;
}

void sl_host_bind(unsigned idx, unsigned count)
{
    uint64_t mask[SL_CPU_WORDS], one[SL_CPU_WORDS] = {0};
    unsigned cores = 0, at = 0;

    sl_host_cores(mask);
    for (unsigned w = 0; w < SL_CPU_WORDS; w++)
        cores += (unsigned)__builtin_popcountll(mask[w]);
    if (cores < count)
        return;
    for (unsigned core = 0; core < 64 * SL_CPU_WORDS; core++) {
        if ((mask[core / 64] >> core % 64 & 1) == 0 || at++ != idx)
            continue;
        one[core / 64] = UINT64_C(1) << core % 64;
        sched_setaffinity(0, sizeof(one), (const cpu_set_t *)(const void *)one);
        return;
    }
}

/* The number that all users without one in this user namespace show: of a system, so it is read
 * once. */
static long overflow_user(void)
{
    static _Atomic long known = -1;
    long user = known;
    char line[64];

    if (user < 0)
        known = user =
            sl_host_line("/proc/sys/kernel/overflowuid", line, sizeof(line)) ? atol(line) : 65534;
    return user;
}

static bool all_users_have_numbers(void)
{
    unsigned inside, outside, count;
    char line[64];

    if (access("/proc/self/uid_map", F_OK) != 0)
        return true; /* a kernel without user namespaces */
    return sl_host_line("/proc/self/uid_map", line, sizeof(line)) &&
           sscanf(line, "%u %u %u", &inside, &outside, &count) == 3 && inside == 0 &&
           outside == 0 && count == UINT32_MAX;
}

bool sl_host_same_user(int fd, struct ucred *peer)
{
    socklen_t len = sizeof(*peer);

    *peer = (struct ucred){.pid = -1, .uid = (uid_t)-1, .gid = (gid_t)-1};
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, peer, &len) != 0 || peer->uid != geteuid())
        return false;
    return (long)peer->uid != overflow_user() || all_users_have_numbers();
}
