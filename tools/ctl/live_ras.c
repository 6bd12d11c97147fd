/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks NCCL's RAS, of any process of a job: lines of text over TCP, port 28028. The client says
 * CLIENT PROTOCOL and a number, and is answered SERVER PROTOCOL; SET FORMAT json (NCCL 2.28.7 and
 * later) and TIMEOUT are answered OK; STATUS is answered by the whole state, and the end of the
 * connection.
 */
#include "core/clock.h"
#include "core/err.h"
#include "tools/ctl/live.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PORT "28028"
#define PROTOCOL 2
#define ANSWER_MAX ((size_t)256 << 20)

struct talk {
    const char *address;
    int fd;
    int64_t deadline_ns;
};

static int wait_for(const struct talk *talk, short events, const char *what)
{
    struct pollfd poll_fd = {.fd = talk->fd, .events = events};
    int64_t left_ms = (talk->deadline_ns - (int64_t)sl_now(&sl_clock_monotonic)) / 1000000;
    int got = left_ms > 0 ? poll(&poll_fd, 1, (int)left_ms) : 0;

    if (got == 0)
        return sl_fail(-ETIMEDOUT, "NCCL RAS at %s does not %s in time", talk->address, what);
    return got > 0 || errno == EINTR
               ? 0
               : sl_fail(-errno, "NCCL RAS at %s: %s", talk->address, strerror(errno));
}

static int connect_to(struct talk *talk, const struct addrinfo *to)
{
    int err, value = 0;
    socklen_t len = sizeof(value);

    talk->fd =
        socket(to->ai_family, to->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, to->ai_protocol);
    if (talk->fd < 0)
        return sl_fail(-errno, "no socket to ask NCCL RAS: %s", strerror(errno));
    if (connect(talk->fd, to->ai_addr, to->ai_addrlen) == 0)
        return 0;
    if (errno != EINPROGRESS)
        return sl_fail(-errno, "NCCL RAS at %s: %s", talk->address, strerror(errno));
    err = wait_for(talk, POLLOUT, "accept");
    if (err == 0 && getsockopt(talk->fd, SOL_SOCKET, SO_ERROR, &value, &len) == 0 && value != 0)
        err = sl_fail(-value, "NCCL RAS at %s: %s", talk->address, strerror(value));
    return err;
}

/* "HOST", "HOST:PORT", "[ADDRESS]:PORT". */
static int split(const char *address, char *host, size_t cap, const char **port)
{
    const char *colon = strrchr(address, ':'), *end = strchr(address, ']');
    size_t len;

    if (address[0] == '[' && end != NULL) {
        *port = end[1] == ':' ? end + 2 : PORT;
        len = (size_t)(end - address) - 1;
        address++;
    } else if (colon != NULL && strchr(address, ':') == colon) {
        *port = colon + 1;
        len = (size_t)(colon - address);
    } else {
        *port = PORT;
        len = strlen(address);
    }
    if (len == 0 || len >= cap)
        return sl_fail(-EINVAL, "%s is no address of NCCL RAS", address);
    memcpy(host, address, len);
    host[len] = '\0';
    return 0;
}

static int open_talk(struct talk *talk)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    const char *port;
    char host[256];
    int err = split(talk->address, host, sizeof(host), &port), got;

    if (err != 0)
        return err;
    got = getaddrinfo(host, port, &hints, &found);
    if (got != 0)
        return sl_fail(-EHOSTUNREACH, "NCCL RAS at %s: %s", talk->address, gai_strerror(got));
    for (const struct addrinfo *at = found; at != NULL; at = at->ai_next) {
        err = connect_to(talk, at);
        if (err == 0)
            break;
        if (talk->fd >= 0)
            close(talk->fd);
        talk->fd = -1;
    }
    freeaddrinfo(found);
    return err;
}

static int say(const struct talk *talk, const char *text)
{
    for (size_t done = 0, len = strlen(text); done < len;) {
        ssize_t sent = send(talk->fd, text + done, len - done, MSG_NOSIGNAL);
        int err = 0;

        if (sent > 0)
            done += (size_t)sent;
        else if (errno == EAGAIN)
            err = wait_for(talk, POLLOUT, "listen");
        else if (errno != EINTR)
            err = sl_fail(-errno, "NCCL RAS at %s: %s", talk->address, strerror(errno));
        if (err != 0)
            return err;
    }
    return 0;
}

/* 0: it has ended the connection. */
static long hear(const struct talk *talk, char *to, size_t cap)
{
    for (;;) {
        ssize_t got = recv(talk->fd, to, cap, 0);
        int err = 0;

        if (got >= 0)
            return got;
        if (errno == EAGAIN)
            err = wait_for(talk, POLLIN, "answer");
        else if (errno != EINTR)
            err = sl_fail(-errno, "NCCL RAS at %s: %s", talk->address, strerror(errno));
        if (err != 0)
            return err;
    }
}

/* A line, that has to begin so. */
static int expect(const struct talk *talk, const char *beginning, const char *hint)
{
    char line[256];
    size_t len = 0;
    long got = 1;

    while (len + 1 < sizeof(line) && got > 0 && (len == 0 || line[len - 1] != '\n')) {
        got = hear(talk, line + len, 1);
        len += got > 0;
    }
    if (got < 0)
        return (int)got;
    line[len] = '\0';
    if (strncasecmp(line, beginning, strlen(beginning)) == 0)
        return 0;
    line[strcspn(line, "\r\n")] = '\0';
    sl_tame_text(line);
    return sl_fail(-EPROTO, "what answers at %s says '%s'%s", talk->address, line, hint);
}

static int hear_all(const struct talk *talk, char **bytes, size_t *len)
{
    size_t cap = 64 << 10;
    char *text = malloc(cap);
    long got = 1;

    *len = 0;
    while (text != NULL && got > 0) {
        if (*len == cap) {
            char *more = cap < ANSWER_MAX ? realloc(text, cap *= 2) : NULL;

            if (more == NULL)
                free(text);
            text = more;
            continue;
        }
        got = hear(talk, text + *len, cap - *len);
        *len += got > 0 ? (size_t)got : 0;
    }
    if (text == NULL)
        return sl_fail(-ENOMEM, "no memory for what NCCL RAS at %s says", talk->address);
    if (got < 0)
        free(text);
    else
        *bytes = text;
    return (int)got;
}

int sc_ras_fetch(const struct sc_source *source, int64_t deadline_ns, char **bytes, size_t *len)
{
    struct talk talk = {.address = source->address, .fd = -1, .deadline_ns = deadline_ns};
    char line[48];
    int err = open_talk(&talk);

    if (err != 0)
        return err;
    snprintf(line, sizeof(line), "CLIENT PROTOCOL %d\n", PROTOCOL);
    err = say(&talk, line);
    err = err ?: expect(&talk, "SERVER PROTOCOL ", ": that is no NCCL RAS");
    err = err ?: say(&talk, "SET FORMAT json\n");
    err = err ?: expect(&talk, "OK", ": JSON needs NCCL 2.28.7");
    err = err ?: say(&talk, "STATUS\n");
    err = err ?: hear_all(&talk, bytes, len);
    close(talk.fd);
    return err;
}
