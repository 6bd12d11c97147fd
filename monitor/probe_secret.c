/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/probe_secret.h"

#include "core/err.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LEAST 16 /* bytes of a secret */
#define MOST 1024

int sl_probe_secret(const char *path, uint8_t key[SL_DIGEST_BYTES])
{
    char text[MOST];
    struct stat is;
    ssize_t len;
    int fd, err;

    if (path[0] == '\0')
        return sl_fail(-EINVAL, "probes need a secret that all agents share: [probe] secret names "
                                "its file");
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return sl_fail(-errno, "the secret of probes, %s, cannot be opened: %s", path,
                       sluice_strerror(-errno));
    if (fstat(fd, &is) != 0 || !S_ISREG(is.st_mode) || (is.st_mode & (S_IRWXO | S_IWGRP)) != 0) {
        close(fd);
        return sl_fail(-EPERM, "the secret of probes, %s, is to be a file that others may not read",
                       path);
    }
    len = read(fd, text, sizeof(text));
    close(fd);
    while (len > 0 && (text[len - 1] == '\n' || text[len - 1] == '\r'))
        len--;
    if (len < LEAST || len == MOST)
        return sl_fail(-EINVAL, "the secret of probes, %s, has less than %d bytes, or %d and more",
                       path, LEAST, MOST);
    err = sl_probe_key(text, (size_t)len, key);
    explicit_bzero(text, sizeof(text));
    return err;
}
