/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the kernel which host this is and which cores are ours. */
#include "core/host.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

uint64_t sl_hash_text(const char *text)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);

    for (; *text != '\0'; text++)
        h = (h ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return h;
}

static void read_boot_id(char *out, size_t cap)
{
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t len = fd < 0 ? -1 : read(fd, out, cap - 1);

    if (fd >= 0)
        close(fd);
    out[len > 0 ? len : 0] = '\0';
    if (len <= 0) /* no /proc: the host's name is the best that is left */
        gethostname(out, cap - 1);
}

uint64_t sl_host_hash(const struct sl_config *config)
{
    char text[SL_TEXT_MAX + 64] = "";
    struct stat net = {0};

    if (config->host_id[0] != '\0')
        return sl_hash_text(config->host_id);
    read_boot_id(text, SL_TEXT_MAX);
    stat("/proc/self/ns/net", &net);
    size_t len = strlen(text);

    snprintf(text + len, sizeof(text) - len, "/%llu", (unsigned long long)net.st_ino);
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
