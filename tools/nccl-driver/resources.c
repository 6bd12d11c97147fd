/* SPDX-License-Identifier: Apache-2.0 */
/* Counts what the process holds, and reaches the plugin's sockets from outside. */
#include "tools/nccl-driver/resources.h"

#include "tools/nccl-driver/watch.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <malloc.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#define CALLS_MOST 128

static int calls[CALLS_MOST], call_count;

static long entries(const char *path)
{
    DIR *dir = opendir(path);
    long n = 0;

    while (dir != NULL && readdir(dir) != NULL)
        n++;
    if (dir != NULL)
        closedir(dir);
    return n;
}

static long lines(const char *path)
{
    FILE *file = fopen(path, "r");
    long n = 0;
    int c;

    while (file != NULL && (c = getc(file)) != EOF)
        n += c == '\n';
    if (file != NULL)
        fclose(file);
    return n;
}

void resources_count(struct resources *out)
{
    *out = (struct resources){.descriptors = entries("/proc/self/fd"),
                              .threads = entries("/proc/self/task"),
                              .mappings = lines("/proc/self/maps"),
                              .heap_bytes = (long)mallinfo2().uordblks};
}

/* A sanitizer's own records grow; its leak check looks at the heap instead. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HEAP_IS_OURS false
#else
#define HEAP_IS_OURS true
#endif

int resources_compare(const struct resources *before, const struct resources *after, int rounds,
                      long heap_most, const char *what)
{
    if (after->descriptors > before->descriptors)
        return watch_fail("%d rounds of %s left %ld descriptors open", rounds, what,
                          after->descriptors - before->descriptors);
    if (after->threads > before->threads)
        return watch_fail("%d rounds of %s left %ld threads", rounds, what,
                          after->threads - before->threads);
    if (!HEAP_IS_OURS)
        return 0;
    /* One more mapping or two may come from an arena that grew: a leak leaves one each round. */
    if (after->mappings >= before->mappings + rounds)
        return watch_fail("%d rounds of %s left %ld mappings", rounds, what,
                          after->mappings - before->mappings);
    if (heap_most >= 0 && after->heap_bytes > before->heap_bytes + heap_most * rounds)
        return watch_fail("%d rounds of %s left %ld bytes of heap", rounds, what,
                          after->heap_bytes - before->heap_bytes);
    return 0;
}

static int call_one(int fd, const char *words)
{
    struct sockaddr_storage address = {0};
    socklen_t len = sizeof(address);
    int call;

    if (getsockname(fd, (struct sockaddr *)&address, &len) != 0 || call_count == CALLS_MOST)
        return 0;
    if (address.ss_family == AF_INET) {
        struct sockaddr_in *in = (struct sockaddr_in *)&address;

        if (in->sin_addr.s_addr == htonl(INADDR_ANY))
            in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    } else if (address.ss_family == AF_INET6) {
        struct sockaddr_in6 *in = (struct sockaddr_in6 *)&address;

        if (IN6_IS_ADDR_UNSPECIFIED(&in->sin6_addr))
            in->sin6_addr = in6addr_loopback;
    } else if (address.ss_family != AF_UNIX) {
        return 0;
    }
    call = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (call < 0)
        return 0;
    (void)connect(call, (struct sockaddr *)&address, len);
    if (words != NULL)
        send(call, words, strlen(words), MSG_NOSIGNAL);
    calls[call_count++] = call;
    return 1;
}

static int each_socket(int (*on)(int fd, const char *words), bool listening, const char *words)
{
    DIR *dir = opendir("/proc/self/fd");
    int fds[512], count = 0, n = 0;
    struct dirent *entry;

    while (dir != NULL && (entry = readdir(dir)) != NULL && count < 512) {
        int fd = atoi(entry->d_name), listens = 0;
        socklen_t len = sizeof(listens);

        if (entry->d_name[0] == '.' ||
            getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &len) != 0 ||
            (listens != 0) != listening)
            continue;
        fds[count++] = fd;
    }
    if (dir != NULL)
        closedir(dir);
    for (int i = 0; i < count; i++)
        n += on(fds[i], words);
    return n;
}

int resources_call_listeners(const char *words)
{
    return each_socket(call_one, true, words);
}

void resources_hang_up(void)
{
    for (int i = 0; i < call_count; i++)
        close(calls[i]);
    call_count = 0;
}

static int is_tcp(int fd, const char *words)
{
    struct sockaddr_storage peer = {0};
    socklen_t len = sizeof(peer);

    return getpeername(fd, (struct sockaddr *)&peer, &len) == 0 &&
           (peer.ss_family == AF_INET || peer.ss_family == AF_INET6);
}

int resources_tcp(void)
{
    return each_socket(is_tcp, false, NULL);
}

/* Dissolving the association sends a reset and leaves the descriptor as it is, in the plugin's
 * hands. */
static int reset_one(int fd, const char *words)
{
    struct sockaddr nobody = {.sa_family = AF_UNSPEC};

    if (!is_tcp(fd, words))
        return 0;
    /* Not connect(): a sanitizer would take it for a use of the plugin's descriptor that races. */
    if (syscall(SYS_connect, fd, &nobody, sizeof(nobody)) != 0)
        shutdown(fd, SHUT_RDWR);
    return 1;
}

int resources_reset_tcp(void)
{
    return each_socket(reset_one, false, NULL);
}
