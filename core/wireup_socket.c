/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pipes of wire-up as sockets: a unix socket for workers of this host, whose user the kernel tells,
 * and TCP at the addresses that SLUICE_INTERFACE allows for all others.
 */
#include "core/wireup_addr.h"

#include "core/config.h"
#include "core/err.h"
#include "core/fork.h"
#include "core/host.h"
#include "core/netif.h"
#include "core/port_range.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 4096
#define PORT_TRIES 64
#define FLAGS (SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC)

struct sl_wire {
    uint64_t host;
    int local; /* the unix socket; -1: none */
    int fds[SL_WIREUP_PLACES_MAX];
    unsigned fd_count, fd_next;
};

struct sl_pipe {
    int fd;
    bool local;
    char to[80];
};

static int no_socket(const char *kind)
{
    int err = -errno;

    return sl_fail(err, "no %s is to be had: %s%s", kind, sluice_strerror(err),
                   err == -EMFILE ? "; raise 'ulimit -n'" : "");
}

/* ---- listening ---- */

static void socket_close(struct sl_wire *wire)
{
    if (wire == NULL)
        return;
    if (wire->local >= 0)
        close(wire->local);
    while (wire->fd_count > 0)
        close(wire->fds[--wire->fd_count]);
    free(wire);
}

static int listen_local(struct sl_wire *wire, const struct sl_wireup_addr *addr)
{
    struct sockaddr_un name;
    socklen_t len;
    int err = sl_wireup_local_name(addr->id, &name, &len), fd;

    if (err != 0)
        return err;
    fd = socket(AF_UNIX, FLAGS, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&name, len) != 0 || listen(fd, BACKLOG) != 0) {
        err = no_socket("unix socket to listen on");

        if (fd >= 0)
            close(fd);
        return err;
    }
    wire->local = sl_fork_closes(fd);
    return 0;
}

static int listen_at(const struct sockaddr_storage *at, uint16_t *port)
{
    int fd = socket(at->ss_family, FLAGS, 0), err;

    if (fd < 0)
        return no_socket("socket");
    err = sl_sockaddr_listen(fd, at, port, BACKLOG, SL_PENDING_MS);
    if (err == 0)
        return sl_fork_closes(fd);
    close(fd);
    return err;
}

/* At every place, on one port; those whose address cannot be used are left out. */
static int listen_everywhere(struct sl_wire *wire, const struct sl_netif_list *chosen,
                             uint16_t port, struct sl_wireup_addr *addr)
{
    int err = -EADDRNOTAVAIL;

    addr->place_count = 0;
    for (unsigned i = 0; i < chosen->count; i++) {
        const struct sl_netif *netif = &chosen->items[i];

        if (sl_sockaddr_link_local(&netif->addr) || wire->fd_count == SL_WIREUP_PLACES_MAX)
            continue;
        err = listen_at(&netif->addr, &port);
        if (err == -EADDRNOTAVAIL || err == -EACCES)
            continue;
        if (err < 0)
            break;
        wire->fds[wire->fd_count++] = err;
        if (!sl_wireup_place_add(addr, &netif->addr)) {
            close(wire->fds[--wire->fd_count]);
            break;
        }
    }
    addr->port = port;
    /* A port that is free at one place may be taken at another. */
    if (addr->place_count > 0 && err != -EADDRINUSE)
        return 0;
    while (wire->fd_count > 0)
        close(wire->fds[--wire->fd_count]);
    return err < 0 ? err : -EADDRNOTAVAIL;
}

static int listen_network(struct sl_wire *wire, const struct sl_config *config,
                          struct sl_wireup_addr *addr)
{
    struct sl_netif_list chosen;
    struct sl_port_range range;
    char why[256];
    int err = sl_port_range_parse(config->port_range, &range)
                  ?: sl_netif_find(config->interface, &chosen, why, sizeof(why));

    if (err != 0)
        return err;
    unsigned span = range.low != 0 ? sl_port_range_count(&range) : PORT_TRIES;

    err = -EADDRINUSE;
    for (unsigned i = 0; i < span && err == -EADDRINUSE; i++)
        err = listen_everywhere(
            wire, &chosen,
            (uint16_t)(range.low == 0 ? 0 : range.low + ((unsigned)getpid() + i) % span), addr);
    if (err == 0)
        return 0;
    snprintf(why, sizeof(why), "%s", sluice_last_error());
    return sl_fail(err, "no port %s%s can be listened on: %s",
                   range.low != 0 ? "of SLUICE_PORT_RANGE " : "", config->port_range, why);
}

static int socket_random(struct sl_wire *wire, void *out, size_t len)
{
    (void)wire;
    return getrandom(out, len, 0) == (ssize_t)len
               ? 0
               : sl_fail(-EIO, "no random numbers are to be had to connect ranks");
}

static int socket_open(struct sl_worker *worker, bool one_host, struct sl_wireup_addr *addr,
                       struct sl_wire **out)
{
    static const uint8_t none[SL_WIREUP_ID_BYTES];
    struct sl_wire *wire = calloc(1, sizeof(*wire));
    int err = 0;

    if (wire == NULL)
        return sl_fail(-ENOMEM, "no memory to be connected to");
    wire->local = -1;
    wire->host = addr->host = sl_host_hash(worker->config);
    if (memcmp(addr->id, none, sizeof(none)) == 0)
        err = socket_random(wire, addr->id, sizeof(addr->id));
    err = err ?: listen_local(wire, addr);
    /* Without unix sockets even workers of this host meet by TCP. */
    if (err == 0 ? !one_host : err != -EMFILE && err != -ENFILE)
        err = listen_network(wire, worker->config, addr);
    if (err != 0) {
        socket_close(wire);
        return err;
    }
    *out = wire;
    return 0;
}

/* ---- pipes ---- */

static int pipe_new(int fd, bool local, struct sl_pipe **out)
{
    struct sl_pipe *pipe = malloc(sizeof(*pipe));
    int one = 1;

    if (pipe == NULL) {
        close(fd);
        return sl_fail(-ENOMEM, "no memory to connect");
    }
    *pipe = (struct sl_pipe){.fd = sl_fork_closes(fd), .local = local};
    if (!local) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    }
    *out = pipe;
    return 0;
}

static void name_process(struct sl_pipe *pipe, const struct ucred *peer)
{
    snprintf(pipe->to, sizeof(pipe->to), "process %d of this host", (int)peer->pid);
}

static int dial_local(const struct sl_wireup_addr *to, struct sl_pipe **out)
{
    struct sockaddr_un name;
    struct ucred peer;
    socklen_t len;
    int err = sl_wireup_local_name(to->id, &name, &len), fd;

    if (err != 0)
        return err;
    fd = socket(AF_UNIX, FLAGS, 0);
    if (fd < 0)
        return no_socket("unix socket");
    if (connect(fd, (struct sockaddr *)&name, len) != 0) {
        err = -errno;
        close(fd);
        return sl_fail(err, "it cannot be reached on this host: %s", sluice_strerror(err));
    }
    if (!sl_host_same_user(fd, &peer)) {
        close(fd);
        return sl_fail(-EACCES, "process %d of user %u has its name, not one of user %u",
                       (int)peer.pid, (unsigned)peer.uid, (unsigned)geteuid());
    }
    err = pipe_new(fd, true, out);
    if (err == 0)
        name_process(*out, &peer);
    return err;
}

static int dial_network(const struct sockaddr_storage *to, struct sl_pipe **out)
{
    int fd = socket(to->ss_family, FLAGS, 0), err;
    char text[80];

    if (fd < 0)
        return no_socket("socket");
    sl_sockaddr_text(to, text, sizeof(text));
    if (connect(fd, (const struct sockaddr *)to, sl_sockaddr_len(to)) != 0 &&
        errno != EINPROGRESS) {
        err = -errno;
        close(fd);
        return sl_fail(err, "%s cannot be reached: %s", text, sluice_strerror(err));
    }
    err = pipe_new(fd, false, out);
    if (err == 0)
        snprintf((*out)->to, sizeof((*out)->to), "%s", text);
    return err;
}

/* Loopback addresses mean the peer on its own host alone. */
static int socket_dial(struct sl_wire *wire, const struct sl_wireup_addr *to, unsigned n,
                       struct sl_pipe **out)
{
    bool same_host = to->host == wire->host;
    struct sockaddr_storage place;

    if (same_host && n-- == 0)
        return dial_local(to, out);
    for (unsigned i = 0; sl_wireup_place_at(to, i, &place); i++) {
        if (sl_sockaddr_loopback(&place) && !same_host)
            continue;
        if (n-- == 0)
            return dial_network(&place, out);
    }
    return -ENODEV;
}

static int accept_local(struct sl_wire *wire, struct sl_pending_set *set,
                        struct sl_pending *pending, uint64_t now_ns, struct sl_pipe **out)
{
    int fd = wire->local >= 0 ? accept4(wire->local, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC) : -1;
    struct ucred peer;
    char from[64], why[96];
    int err;

    if (fd < 0)
        return wire->local >= 0 ? -errno : -EAGAIN;
    if (!sl_host_same_user(fd, &peer)) {
        snprintf(from, sizeof(from), "process %d of user %u", (int)peer.pid, (unsigned)peer.uid);
        snprintf(why, sizeof(why), "this rank belongs to user %u", (unsigned)geteuid());
        sl_pending_refused(set, from, why, now_ns);
        close(fd);
        return -EAGAIN;
    }
    err = pipe_new(fd, true, out);
    if (err == 0) {
        name_process(*out, &peer);
        sl_pending_add_user(set, pending, peer.uid, peer.pid, now_ns);
    }
    return err;
}

/* Places take turns: a crowd at one keeps no peer out at another. */
static int socket_accept(struct sl_wire *wire, struct sl_pending_set *set,
                         struct sl_pending *pending, uint64_t now_ns, struct sl_pipe **out)
{
    int err = accept_local(wire, set, pending, now_ns, out);

    for (unsigned i = 0; err == -EAGAIN && i < wire->fd_count; i++) {
        struct sockaddr_storage from = {0};
        socklen_t len = sizeof(from);
        int fd = accept4(wire->fds[wire->fd_next], (struct sockaddr *)&from, &len,
                         SOCK_NONBLOCK | SOCK_CLOEXEC);

        wire->fd_next = (wire->fd_next + 1) % wire->fd_count;
        err = fd < 0 ? -errno : pipe_new(fd, false, out);
        if (err == 0) {
            sl_sockaddr_host(&from, (*out)->to, sizeof((*out)->to));
            sl_pending_add(set, pending, &from, now_ns);
        }
    }
    return err;
}

static ssize_t socket_send(struct sl_pipe *pipe, const void *bytes, size_t len)
{
    ssize_t n = send(pipe->fd, bytes, len, MSG_NOSIGNAL | MSG_DONTWAIT);

    return n >= 0 ? n : errno == EINTR ? -EAGAIN : errno == EPIPE ? -ECONNRESET : -errno;
}

static ssize_t socket_recv(struct sl_pipe *pipe, void *bytes, size_t len)
{
    ssize_t n = recv(pipe->fd, bytes, len, MSG_DONTWAIT);

    return n >= 0 ? n : errno == EINTR ? -EAGAIN : -errno;
}

static void socket_hang_up(struct sl_pipe *pipe)
{
    close(pipe->fd);
    free(pipe);
}

static const char *socket_to(const struct sl_pipe *pipe)
{
    return pipe->to;
}

static int socket_fd(const struct sl_pipe *pipe)
{
    return pipe->fd;
}

static unsigned socket_listeners(const struct sl_wire *wire, struct pollfd *out, unsigned cap)
{
    unsigned count = 0;

    if (wire->local >= 0 && count++ < cap)
        out[0] = (struct pollfd){wire->local, POLLIN, 0};
    for (unsigned i = 0; i < wire->fd_count; i++, count++)
        if (count < cap)
            out[count] = (struct pollfd){wire->fds[i], POLLIN, 0};
    return count;
}

const struct sl_wire_ops sl_wire_sockets = {
    .open = socket_open,
    .close = socket_close,
    .dial = socket_dial,
    .accept = socket_accept,
    .send = socket_send,
    .recv = socket_recv,
    .hang_up = socket_hang_up,
    .to = socket_to,
    .fd = socket_fd,
    .random = socket_random,
    .listeners = socket_listeners,
};
