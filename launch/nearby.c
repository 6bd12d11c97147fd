/* SPDX-License-Identifier: Apache-2.0 */
/* Listens and dials on unix sockets, and compares users. */
#include "launch/nearby.h"

#include "core/err.h"
#include "core/host.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define SOCKET_FLAGS (SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC)
#define BACKLOG 4096

void sl_nearby_name(uint16_t port, char out[SL_NEARBY_NAME_MAX])
{
    snprintf(out, SL_NEARBY_NAME_MAX, "@sluice-meet-%u", port);
}

void sl_nearby_seat_name(uint64_t id, char out[SL_NEARBY_NAME_MAX])
{
    snprintf(out, SL_NEARBY_NAME_MAX, "@sluice-seat-%016llx", (unsigned long long)id);
}

static socklen_t fill_name(struct sockaddr_un *addr, const char *name)
{
    memset(addr, 0, sizeof(*addr));
    addr->sun_family = AF_UNIX;
    memcpy(addr->sun_path + 1, name + 1, strlen(name) - 1); /* a zero byte instead of the @ */
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
}

bool sl_nearby_possible(void)
{
    int fd = socket(AF_UNIX, SOCKET_FLAGS, 0);

    if (fd >= 0)
        close(fd);
    return fd >= 0 || errno == EMFILE || errno == ENFILE;
}

/* Somebody has the name: says who. */
static int fail_taken(const char *name, const struct sockaddr_un *addr, socklen_t len)
{
    int err = -EADDRINUSE, fd = socket(AF_UNIX, SOCKET_FLAGS, 0);
    struct ucred peer;

    if (fd < 0 || connect(fd, (const struct sockaddr *)addr, len) != 0) {
        sl_fail(err, "another process has the name %s", name); /* or had: it may be closing */
    } else {
        err = sl_host_same_user(fd, &peer) ? -EADDRINUSE : -EACCES;
        sl_fail(err, "process %d of user %u has the name %s", (int)peer.pid, (unsigned)peer.uid,
                name);
    }
    if (fd >= 0)
        close(fd);
    return err;
}

int sl_nearby_listen(const char *name, int *out)
{
    struct sockaddr_un addr;
    socklen_t len = fill_name(&addr, name);
    int fd = socket(AF_UNIX, SOCKET_FLAGS, 0), err;

    if (fd < 0)
        return sl_fail(-errno, "no unix socket is to be had: %s", strerror(errno));
    if (bind(fd, (struct sockaddr *)&addr, len) == 0 && listen(fd, BACKLOG) == 0) {
        *out = fd;
        return 0;
    }
    err = -errno;
    close(fd);
    if (err == -EADDRINUSE)
        return fail_taken(name, &addr, len);
    return sl_fail(err, "no unix socket to listen on: %s", strerror(-err));
}

int sl_nearby_dial(const char *name, int *out)
{
    struct sockaddr_un addr;
    socklen_t len = fill_name(&addr, name);
    int fd = socket(AF_UNIX, SOCKET_FLAGS, 0), err;
    struct ucred peer;

    if (fd < 0)
        return sl_fail(-errno, "no unix socket is to be had: %s", strerror(errno));
    if (connect(fd, (struct sockaddr *)&addr, len) != 0) {
        err = -errno;
        close(fd);
        return sl_fail(err, "connecting to %s failed: %s", name, strerror(-err));
    }
    if (!sl_host_same_user(fd, &peer)) {
        close(fd);
        return sl_fail(-EACCES,
                       "process %d of user %u has the name %s, not one of user %u; set the same "
                       "SLUICE_SECRET on all ranks if it is a rank of this job",
                       (int)peer.pid, (unsigned)peer.uid, name, (unsigned)geteuid());
    }
    *out = fd;
    return 0;
}
