/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/klog.h"

#include "core/err.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define RECORD_MAX 8192 /* the kernel gives no longer ones */

int sl_mon_klog_open(struct sl_mon_klog *klog, const char *path, bool from_oldest)
{
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);

    if (fd < 0 && (errno == EACCES || errno == EPERM))
        return sl_fail(-EACCES,
                       "%s may not be read: give the agent CAP_SYSLOG, or set "
                       "kernel.dmesg_restrict to 0",
                       path);
    if (fd < 0)
        return sl_fail(-errno, "%s cannot be opened: %s", path, sluice_strerror(-errno));
    if (!from_oldest && lseek(fd, 0, SEEK_END) < 0) {
        int err = -errno;

        close(fd);
        return sl_fail(err, "%s has no end: %s", path, sluice_strerror(err));
    }
    *klog = (struct sl_mon_klog){.fd = fd};
    snprintf(klog->path, sizeof(klog->path), "%s", path);
    return 0;
}

void sl_mon_klog_adopt(struct sl_mon_klog *klog, int fd)
{
    *klog = (struct sl_mon_klog){.fd = fd};
}

void sl_mon_klog_close(struct sl_mon_klog *klog)
{
    if (klog->fd >= 0)
        close(klog->fd);
    klog->fd = -1;
}

/* Those between the last one and this one were overwritten before they were read. One that begins
 * anew was cleared: then nobody can tell. */
static void count(struct sl_mon_klog *klog, const struct sl_mon_kmsg *record)
{
    klog->records++;
    if (!record->has_number)
        return;
    if (klog->next != 0 && record->number > klog->next)
        klog->lost += record->number - klog->next;
    klog->next = record->number + 1;
}

int sl_mon_klog_read(struct sl_mon_klog *klog, unsigned most,
                     void (*take)(void *arg, const struct sl_mon_kmsg *record), void *arg)
{
    char bytes[RECORD_MAX];
    struct sl_mon_kmsg record;
    unsigned taken = 0;

    while (taken < most && klog->fd >= 0) {
        ssize_t len = read(klog->fd, bytes, sizeof(bytes));

        if (len < 0 && (errno == EPIPE || errno == EINTR)) /* overwritten: the next read goes on */
            continue;
        if (len < 0 && errno == EAGAIN)
            break;
        if (len < 0 && errno == EINVAL) { /* a record that is longer than any may be */
            klog->lost++;
            continue;
        }
        if (len <= 0) {
            int err = len == 0 ? -ENODEV : -errno;

            sl_mon_klog_close(klog);
            return sl_fail(err, "the kernel's log cannot be read any more: %s",
                           len == 0 ? "it has ended" : sluice_strerror(err));
        }
        taken++;
        if (!sl_mon_kmsg_parse(bytes, (size_t)len, &record))
            continue;
        count(klog, &record);
        take(arg, &record);
    }
    return (int)taken;
}
