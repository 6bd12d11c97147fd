/* SPDX-License-Identifier: Apache-2.0 */
/* Raises the soft limit on descriptors for the time of a meeting. */
#include "launch/descriptors.h"

#include "core/err.h"

#include <fcntl.h>
#include <unistd.h>

#define LEAST_BESIDE 16 /* pending connections, and what a library opens for a moment */
#define BESIDE 1280     /* an eighth of all may be pending connections: core/pending.h */

/* About how many are open: the lowest number that is free. */
static rlim_t count_open(void)
{
    int fd = open("/", O_PATH | O_CLOEXEC);

    if (fd >= 0)
        close(fd);
    return fd >= 0 ? (rlim_t)fd : 0;
}

int sl_descriptors_raise(unsigned count, struct sl_descriptors *out)
{
    rlim_t needed = count_open() + count + LEAST_BESIDE, wished = needed + BESIDE;
    struct rlimit limit;

    out->raised = false;
    if (getrlimit(RLIMIT_NOFILE, &out->before) != 0 || needed <= out->before.rlim_cur)
        return 0;
    if (needed > out->before.rlim_max)
        return sl_fail(-EMFILE,
                       "rank 0 of %u ranks needs %llu file descriptors while they meet, and no "
                       "more than %llu are allowed here: raise 'ulimit -n' (its hard limit, "
                       "'ulimit -Hn') to %llu or more",
                       count, (unsigned long long)needed, (unsigned long long)out->before.rlim_max,
                       (unsigned long long)needed);
    limit = (struct rlimit){wished < out->before.rlim_max ? wished : out->before.rlim_max,
                            out->before.rlim_max};
    out->raised = setrlimit(RLIMIT_NOFILE, &limit) == 0;
    return 0;
}

void sl_descriptors_restore(const struct sl_descriptors *descriptors)
{
    if (descriptors->raised)
        setrlimit(RLIMIT_NOFILE, &descriptors->before);
}
