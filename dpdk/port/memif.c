/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets of memif: what they are called, and those that nobody listens to any more. */
#include "core/err.h"
#include "core/fork.h"
#include "dpdk/port/inside.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define SOCKET_USUAL "/run/memif.sock" /* as the driver has it */
#define GREETING_MS 250                /* a server looks each 50 ms */

static bool is_path(const struct sl_dpdk_spec *spec, struct sockaddr_un *out)
{
    char text[8];

    out->sun_family = AF_UNIX;
    if (!sl_dpdk_arg(spec->args, "socket", out->sun_path, sizeof(out->sun_path)))
        strcpy(out->sun_path, SOCKET_USUAL);
    return sl_dpdk_arg(spec->args, "socket-abstract", text, sizeof(text)) &&
           strcmp(text, "no") == 0;
}

uint32_t sl_dpdk_memif_segment(const struct sl_dpdk_spec *spec)
{
    struct sockaddr_un address;
    char id[16], text[sizeof(address.sun_path) + sizeof(id) + 16];

    (void)is_path(spec, &address);
    if (!sl_dpdk_arg(spec->args, "id", id, sizeof(id)))
        strcpy(id, "0");
    snprintf(text, sizeof(text), "memif %s %lu", address.sun_path, strtoul(id, NULL, 10));
    return sl_dpdk_hash(text);
}

/* Does a process listen there? Asked with a socket of another type, which the kernel refuses: a
 * connection that ends before the driver greets it would end the server's process (22.11 to 26.07:
 * it closes the descriptor that its thread goes on to watch). */
static bool is_alive(const struct sockaddr_un *address)
{
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool alive;

    if (fd < 0)
        return true;
    alive = connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0 ||
            (errno != ECONNREFUSED && errno != ENOENT);
    close(fd);
    return alive;
}

bool sl_dpdk_memif_serves(const struct sl_dpdk_spec *spec)
{
    char role[16];

    return sl_dpdk_arg(spec->args, "role", role, sizeof(role)) &&
           (strcmp(role, "server") == 0 || strcmp(role, "master") == 0);
}

/* The path of a socket's address; "": it has none. */
static const char *path_of(const struct sockaddr_un *name)
{
    if (name->sun_family != AF_UNIX)
        return "";
    return name->sun_path + (name->sun_path[0] == '\0'); /* abstract */
}

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash != NULL ? slash + 1 : path;
}

/* Is it connected to a socket of that name? The peer's is as its process called it: by another way
 * through links, or by where another container has the folder. */
static bool leads_to(int fd, const char *path)
{
    struct sockaddr_un peer = {0};
    socklen_t len = sizeof(peer) - 1, type_len = sizeof(int);
    int type = 0;

    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_len) == 0 && type == SOCK_SEQPACKET &&
           getpeername(fd, (struct sockaddr *)&peer, &len) == 0 &&
           strcmp(last_part(path_of(&peer)), last_part(path)) == 0;
}

/* Is it a socket of that name, or connected to it? */
static bool belongs_to(int fd, const char *path, bool peer_only)
{
    struct sockaddr_un own = {0};
    socklen_t len = sizeof(own) - 1;

    if (leads_to(fd, path))
        return true;
    return !peer_only && getsockname(fd, (struct sockaddr *)&own, &len) == 0 &&
           strcmp(path_of(&own), path) == 0;
}

/* The driver's sockets of that name, one after the other: each call goes on behind the last. -1:
 * there is none. */
static int next_socket(DIR *dir, const char *path, bool peer_only, struct stat *status)
{
    struct dirent *entry;

    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        int fd = atoi(entry->d_name);

        if (entry->d_name[0] != '.' && fstat(fd, status) == 0 && S_ISSOCK(status->st_mode) &&
            belongs_to(fd, path, peer_only))
            return fd;
    }
    return -1;
}

static bool is_listening(int fd)
{
    int listening = 0;
    socklen_t len = sizeof(listening);

    return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &len) == 0 && listening != 0;
}

void sl_dpdk_memif_own_sockets(const struct sl_dpdk_port *port)
{
    struct sockaddr_un address = {0};
    DIR *dir = opendir("/proc/self/fd");
    struct stat status;
    int fd;

    (void)is_path(&port->spec, &address);
    while ((fd = next_socket(dir, address.sun_path, false, &status)) >= 0) {
        (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
        sl_fork_closes(fd);
        /* The driver's accept() must not wait for a client that is gone: it has all locks. */
        if (is_listening(fd))
            (void)fcntl(fd, F_SETFL, O_NONBLOCK);
    }
    if (dir != NULL)
        closedir(dir);
}

static bool is_taken(int fd, uint64_t inode)
{
    for (unsigned i = 0; i < SL_DPDK_PORTS_MAX; i++) {
        const struct sl_dpdk_port *port = sl_dpdk_open_ports[i];

        if (port != NULL && port->socket_inode == inode && port->socket_fd == fd)
            return true;
    }
    return false;
}

void sl_dpdk_memif_find_socket(struct sl_dpdk_port *port)
{
    struct sockaddr_un address = {0};
    DIR *dir = opendir("/proc/self/fd");
    struct stat status;
    int fd;

    port->socket_inode = 0;
    (void)is_path(&port->spec, &address);
    do {
        fd = next_socket(dir, address.sun_path, true, &status);
    } while (fd >= 0 && is_taken(fd, status.st_ino));
    if (fd >= 0) {
        port->socket_fd = fd;
        port->socket_inode = status.st_ino;
    }
    if (dir != NULL)
        closedir(dir);
}

bool sl_dpdk_memif_has_socket(const struct sl_dpdk_port *port)
{
    struct stat status;

    return port->socket_inode != 0 && fstat(port->socket_fd, &status) == 0 &&
           S_ISSOCK(status.st_mode) && status.st_ino == port->socket_inode;
}

int sl_dpdk_memif_hold(const struct sl_dpdk_port *port)
{
    if (!port->is_client || !sl_dpdk_memif_has_socket(port))
        return -1;
    return sl_fork_closes(fcntl(port->socket_fd, F_DUPFD_CLOEXEC, 0));
}

void sl_dpdk_memif_let_go(int fd)
{
    struct pollfd greeting = {.fd = fd, .events = POLLIN};

    if (fd >= 0 && poll(&greeting, 1, GREETING_MS) != 0)
        close(fd);
}

static bool listens_at(const struct sl_dpdk_spec *spec, const void *arg)
{
    const struct sockaddr_un *address = arg;
    struct sockaddr_un other = {0};

    return is_path(spec, &other) && strcmp(other.sun_path, address->sun_path) == 0;
}

void sl_dpdk_memif_unname(const struct sl_dpdk_spec *spec)
{
    struct sockaddr_un address;

    if (is_path(spec, &address))
        (void)unlink(address.sun_path);
}

/* A server's socket serves several ports of a process, by their ids. */
static bool is_ours(const struct sockaddr_un *address)
{
    for (unsigned i = 0; i < SL_DPDK_PORTS_MAX; i++) {
        const struct sl_dpdk_port *port = sl_dpdk_open_ports[i];

        if (port != NULL && port->traits.is_gated && !port->is_client &&
            listens_at(&port->spec, address))
            return true;
    }
    return sl_dpdk_servers_any(listens_at, address);
}

int sl_dpdk_memif_clear(const struct sl_dpdk_spec *spec)
{
    struct sockaddr_un address = {0};
    struct stat status;

    if (!sl_dpdk_memif_serves(spec) || !is_path(spec, &address) || is_ours(&address) ||
        lstat(address.sun_path, &status) != 0)
        return 0;
    if (!S_ISSOCK(status.st_mode))
        return sl_fail(-EINVAL, "DPDK port '%s' should listen at %s, where something else lies",
                       spec->name, address.sun_path);
    if (is_alive(&address))
        return sl_fail(-EADDRINUSE,
                       "DPDK port '%s' should listen at %s, where another process listens",
                       spec->name, address.sun_path);
    if (unlink(address.sun_path) != 0)
        return sl_fail(-errno, "DPDK port '%s' cannot remove %s, which an ended process left: %s",
                       spec->name, address.sun_path, strerror(errno));
    return 0;
}
