/* SPDX-License-Identifier: Apache-2.0 */
/* Ends sockets of this process: connections of TCP, links of ports. */
#include "tests/fault/fault.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#define SOCKETS_MAX 256

/* A link of the run's first port: one of the two ends has the name, that of the socket. */
static bool is_first_port(const struct fault_run *run, int fd)
{
    struct sockaddr_un own = {0}, peer = {0};
    socklen_t own_len = sizeof(own), peer_len = sizeof(peer);
    char folder[64];

    (void)getsockname(fd, (struct sockaddr *)&own, &own_len);
    (void)getpeername(fd, (struct sockaddr *)&peer, &peer_len);
    snprintf(folder, sizeof(folder), "%s/a/", run->dir);
    return strncmp(own.sun_path, folder, strlen(folder)) == 0 ||
           strncmp(peer.sun_path, folder, strlen(folder)) == 0;
}

/* Memif's sockets have packets in order. */
static bool is_wanted(const struct fault_run *run, int fd)
{
    struct sockaddr_storage peer;
    socklen_t peer_len = sizeof(peer), len = sizeof(int);
    int type = 0;

    if (getpeername(fd, (struct sockaddr *)&peer, &peer_len) != 0 ||
        getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) != 0)
        return false;
    switch (run->kind) {
    case FAULT_LINK: return type == SOCK_SEQPACKET;
    case FAULT_GONE: return type == SOCK_SEQPACKET && is_first_port(run, fd);
    default: return type != SOCK_DGRAM;
    }
}

static int find(const struct fault_run *run, int *found)
{
    DIR *dir = opendir("/proc/self/fd");
    int count = 0;

    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        int fd = atoi(entry->d_name);

        if (fd > 2 && count < SOCKETS_MAX && is_wanted(run, fd))
            found[count++] = fd;
    }
    if (dir != NULL)
        closedir(dir);
    return count;
}

/* Of a TCP socket this sends the reset, also while others hold the file; a Unix one refuses it. */
static void reset(int fd)
{
    const struct sockaddr none = {.sa_family = AF_UNSPEC};

    if (connect(fd, &none, sizeof(none)) != 0)
        shutdown(fd, SHUT_RDWR);
}

void fault_sockets(const struct fault_run *run)
{
    int found[SOCKETS_MAX], count = find(run, found);

    for (int i = 0; i < count; i++)
        if (run->kind == FAULT_GONE || i == (int)(run->seed % (uint64_t)count))
            reset(found[i]);
}
