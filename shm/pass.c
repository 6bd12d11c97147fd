/* SPDX-License-Identifier: Apache-2.0 */
/* Unix sockets: listen, dial, and pass descriptors with the messages. */
#include "shm/pass.h"

#include "core/err.h"
#include "core/fork.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define SOCKET_FLAGS (SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC)

int shm_fail_fd(int err, const char *what)
{
    struct rlimit limit = {0};

    if (err == -EMFILE) {
        getrlimit(RLIMIT_NOFILE, &limit);
        return sl_fail(err,
                       "no descriptor is left for %s: the limit is %llu open files; raise it "
                       "(ulimit -n) or use fewer ranks per host",
                       what, (unsigned long long)limit.rlim_cur);
    }
    if (err == -ENFILE)
        return sl_fail(err, "the system has no descriptor left for %s; raise fs.file-max", what);
    return sl_fail(err, "%s: %s", what, strerror(-err));
}

static socklen_t fill_name(struct sockaddr_un *addr, const char *name, size_t len)
{
    memset(addr, 0, sizeof(*addr));
    addr->sun_family = AF_UNIX;
    memcpy(addr->sun_path + 1, name, len); /* a leading zero byte: the abstract namespace */
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len);
}

int shm_listen(char name[SHM_NAME_MAX], uint16_t *name_len, int *out)
{
    struct sockaddr_un addr;
    uint64_t chance[2];
    socklen_t addr_len;
    int fd, len;

    if (getrandom(chance, sizeof(chance), 0) != (ssize_t)sizeof(chance))
        return sl_fail(-errno, "the kernel gave no random bytes: %s", strerror(errno));
    len = snprintf(name, SHM_NAME_MAX, "sluice-%d-%016llx%016llx", (int)getpid(),
                   (unsigned long long)chance[0], (unsigned long long)chance[1]);
    fd = socket(AF_UNIX, SOCKET_FLAGS, 0);
    if (fd < 0)
        return shm_fail_fd(-errno, "a unix socket");
    addr_len = fill_name(&addr, name, (size_t)len);
    if (bind(fd, (struct sockaddr *)&addr, addr_len) != 0 || listen(fd, 4096) != 0) {
        int err = -errno;

        close(fd);
        return sl_fail(err, "no unix socket to listen on: %s", strerror(-err));
    }
    *name_len = (uint16_t)len;
    *out = sl_fork_closes(fd);
    return 0;
}

int shm_dial(const char *name, size_t name_len, int *out)
{
    struct sockaddr_un addr;
    socklen_t addr_len = fill_name(&addr, name, name_len);
    int fd = socket(AF_UNIX, SOCKET_FLAGS, 0), err;

    if (fd < 0)
        return shm_fail_fd(-errno, "a unix socket");
    if (connect(fd, (struct sockaddr *)&addr, addr_len) == 0) {
        *out = sl_fork_closes(fd);
        return 0;
    }
    err = -errno;
    close(fd);
    if (err == -EAGAIN)
        return err;
    return sl_fail(err, "the shm peer's socket @%.*s does not answer: %s", (int)name_len, name,
                   strerror(-err));
}

int shm_accept(int listener, int *out)
{
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

    if (fd < 0) {
        if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED)
            return -EAGAIN;
        return shm_fail_fd(-errno, "a shm connection");
    }
    *out = sl_fork_closes(fd);
    return 0;
}

/* Room and alignment for the descriptors of one message. */
union rights {
    struct cmsghdr head;
    char bytes[CMSG_SPACE(SHM_FDS_MAX * sizeof(int))];
};

int shm_post(int fd, uint16_t type, const void *body, size_t len, const int *fds, unsigned count)
{
    struct shm_msg_head head = {SHM_MAGIC, SHM_VERSION, type};
    struct iovec iov[2] = {{&head, sizeof(head)}, {(void *)(uintptr_t)body, len}};
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = len == 0 ? 1 : 2};
    union rights rights;

    sl_assert(count <= SHM_FDS_MAX);
    if (count > 0) {
        memset(&rights, 0, sizeof(rights));
        msg.msg_control = rights.bytes;
        msg.msg_controllen = CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);

        cmsg->cmsg_level = SOL_SOCKET;
        cmsg->cmsg_type = SCM_RIGHTS;
        cmsg->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(cmsg), fds, count * sizeof(int));
    }
    while (sendmsg(fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
        if (errno == EINTR)
            continue;
        /* ETOOMANYREFS: too many descriptors of this user are in flight; they land soon. */
        if (errno == EAGAIN || errno == ENOBUFS || errno == ETOOMANYREFS)
            return -EAGAIN;
        if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN)
            return sl_fail(-ECONNRESET, "the shm peer closed its socket");
        return sl_fail(-errno, "sending to a shm peer failed: %s", strerror(errno));
    }
    return 0;
}

/* Collects the descriptors of msg; those beyond SHM_FDS_MAX cannot come, as there is no room. */
static unsigned collect(struct msghdr *msg, int fds[SHM_FDS_MAX])
{
    unsigned count = 0;

    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c != NULL; c = CMSG_NXTHDR(msg, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        unsigned here = (unsigned)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));

        for (unsigned i = 0; i < here; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
            if (count < SHM_FDS_MAX)
                fds[count++] = fd;
            else
                close(fd);
        }
    }
    return count;
}

int shm_take(int fd, struct shm_msg *msg, size_t *body, int fds[SHM_FDS_MAX], unsigned *fd_count)
{
    char bytes[sizeof(*msg) + 1]; /* one more, so that a longer record shows */
    struct iovec iov = {bytes, sizeof(bytes)};
    union rights rights;
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = rights.bytes,
                       .msg_controllen = sizeof(rights.bytes)};
    ssize_t got;
    unsigned count;
    int err;

    /* A peer that closed with our messages unread leaves ECONNRESET in front of its last words; it
     * is told once. */
    for (int resets = 0;;) {
        got = recvmsg(fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (got >= 0 || (errno != EINTR && (errno != ECONNRESET || resets++ > 0)))
            break;
    }
    if (got < 0 && errno == EAGAIN)
        return -EAGAIN;
    if (got < 0)
        return sl_fail(-ECONNRESET, "the shm peer's socket failed: %s", strerror(errno));
    if (got == 0)
        return sl_fail(-ECONNRESET, "the shm peer closed its socket");
    count = collect(&m, fds);
    err = shm_msg_parse(bytes, (size_t)got, msg, body);
    if (err == 0 && (m.msg_flags & MSG_CTRUNC) != 0)
        err = shm_fail_fd(-EMFILE, "a shm peer's memory");
    if (err != 0) {
        while (count > 0)
            close(fds[--count]);
        return err;
    }
    *fd_count = count;
    return 0;
}
