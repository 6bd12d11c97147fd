/* SPDX-License-Identifier: Apache-2.0 */
/* Writes, resolves and listens on the addresses of meeting places. */
#include "launch/address.h"

#include "core/err.h"
#include "core/log.h"
#include "core/netif.h"
#include "core/pending.h"
#include "core/port_range.h"
#include "launch/nearby.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define BACKLOG 4096
#define PORT_TRIES 64

static struct sockaddr *any_of(struct sl_address *address)
{
    return (struct sockaddr *)&address->any;
}

void sl_address_text(const struct sl_address *address, char out[SL_ADDRESS_TEXT_MAX])
{
    const struct sockaddr *any = (const struct sockaddr *)&address->any;
    char host[64], port[8];

    if (getnameinfo(any, address->len, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        snprintf(out, SL_ADDRESS_TEXT_MAX, "?");
    else
        snprintf(out, SL_ADDRESS_TEXT_MAX, any->sa_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host,
                 port);
}

struct sl_address sl_address_make(const void *bytes, unsigned len, uint16_t port)
{
    struct sl_address address = {.any = sl_sockaddr_make(bytes, len, port)};

    address.len = sl_sockaddr_len(&address.any);
    return address;
}

struct sl_address sl_address_loopback(uint16_t port)
{
    const uint32_t in = htonl(INADDR_LOOPBACK);

    return sl_address_make(&in, sizeof(in), port);
}

/* A whole number from 1 to 65535 that ends where stop says. */
static int parse_port(const char *text, const char *stop, uint16_t *out)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);

    if (*text < '0' || *text > '9' || end != stop || value == 0 || value > 65535)
        return -EINVAL;
    *out = (uint16_t)value;
    return 0;
}

int sl_root_parse(const char *text, struct sl_root *out)
{
    const char *colon = strrchr(text, ':'), *host = text, *host_end = colon;
    const char *end = text + strlen(text), *plus = colon != NULL ? strchr(colon, '+') : NULL;
    struct sl_root root = {.more = 0};

    if (*text == '[') {
        host = text + 1;
        host_end = strchr(text, ']');
        if (host_end == NULL || colon != host_end + 1)
            return sl_fail(-EINVAL, "'%s' is not a meeting place: write [v6 address]:port", text);
    }
    if (colon == NULL || host_end == host || (size_t)(host_end - host) >= sizeof(root.host))
        return sl_fail(-EINVAL, "'%s' is not a meeting place: write host:port", text);
    if (*text != '[' && memchr(text, ':', (size_t)(colon - text)) != NULL)
        return sl_fail(-EINVAL, "'%s' is not a meeting place: put an IPv6 address in [ ]", text);
    if (parse_port(colon + 1, plus ?: end, &root.port) != 0)
        return sl_fail(-EINVAL, "'%s' is not a meeting place: its port must be from 1 to 65535",
                       text);
    if (plus != NULL && (parse_port(plus + 1, end, &root.more) != 0 || root.more >= SL_PLACES_MAX ||
                         root.port + root.more > 65535))
        return sl_fail(-EINVAL,
                       "'%s' is not a meeting place: after + stands how many more ports to "
                       "try, from 1 to %d",
                       text, SL_PLACES_MAX - 1);
    memcpy(root.host, host, (size_t)(host_end - host));
    *out = root;
    return 0;
}

int sl_root_resolve(const struct sl_root *root, struct sl_address *out, unsigned cap,
                    unsigned *count)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list;
    unsigned at = 0;
    int err = getaddrinfo(root->host, NULL, &hints, &list);

    if (err == EAI_SYSTEM)
        return sl_fail(-EAGAIN, "looking up host '%s' failed: %s", root->host, strerror(errno));
    if (err != 0) /* also an unknown name: where names appear with their hosts, it may come yet */
        return sl_fail(-EAGAIN, "looking up host '%s' failed: %s", root->host, gai_strerror(err));
    /* Port by port, so that all addresses of the likeliest port come first. */
    for (unsigned port = 0; port <= root->more; port++) {
        for (const struct addrinfo *info = list; info != NULL && at < cap; info = info->ai_next) {
            if (info->ai_family != AF_INET && info->ai_family != AF_INET6)
                continue;
            memcpy(&out[at].any, info->ai_addr, info->ai_addrlen);
            out[at].len = info->ai_addrlen;
            sl_sockaddr_set_port(&out[at++].any, (uint16_t)(root->port + port));
        }
    }
    freeaddrinfo(list);
    *count = at;
    return 0;
}

static int listen_on(struct sl_address *address, bool dual, int *out)
{
    int on = 1, both = !dual, hello_s = SL_PENDING_MS / 1000;
    int fd = socket(address->any.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return -errno;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0)
        goto err_close;
    if (address->any.ss_family == AF_INET6 &&
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &both, sizeof(both)) != 0)
        goto err_close;
    /* Who says nothing stays in the kernel: the rank that dials speaks first. */
    setsockopt(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &hello_s, sizeof(hello_s));
    if (bind(fd, any_of(address), address->len) != 0 || listen(fd, BACKLOG) != 0)
        goto err_close;
    *out = fd;
    return 0;

err_close:
    on = errno;
    close(fd);
    return -on;
}

static uint16_t port_of(int fd)
{
    struct sl_address address = {.len = sizeof(address.any)};

    if (getsockname(fd, any_of(&address), &address.len) != 0)
        return 0;
    return sl_sockaddr_port(&address.any);
}

/* All addresses of this host (or of its loopback) on one port; 0: a free one. */
static int listen_wide(uint16_t port, bool loopback, struct sl_listeners *out)
{
    struct sl_listeners found = {.loopback = loopback};
    const uint32_t any = htonl(INADDR_ANY);
    struct sl_address v6 = sl_address_make(loopback ? &in6addr_loopback : &in6addr_any, 16, port);
    struct sl_address v4 = loopback ? sl_address_loopback(port) : sl_address_make(&any, 4, port);

    /* One socket takes both kinds of address, except on loopback, where IPv4 alone is enough. */
    int err = loopback ? listen_on(&v4, false, &found.fd[0]) : listen_on(&v6, true, &found.fd[0]);
    if (err != 0 && err != -EADDRINUSE && err != -EACCES)
        err = loopback ? listen_on(&v6, false, &found.fd[0]) : listen_on(&v4, false, &found.fd[0]);
    if (err != 0)
        return err;
    found.count = 1;
    found.port = port_of(found.fd[0]);
    *out = found;
    return 0;
}

/* Every loopback address of "localhost", since other ranks may try either first. */
static int listen_each(struct sl_address *address, unsigned count, uint16_t port,
                       struct sl_listeners *out)
{
    struct sl_listeners found = {.loopback = true, .port = port};
    int err = 0;

    for (unsigned i = 0; i < count && found.count < SL_LISTENERS_MAX; i++) {
        sl_sockaddr_set_port(&address[i].any, port);
        err = listen_on(&address[i], false, &found.fd[found.count]);
        if (err == -EADDRINUSE)
            break;
        if (err == 0) {
            found.count++;
            found.loopback = found.loopback && sl_sockaddr_loopback(&address[i].any);
        }
    }
    if (found.count == 0 || err == -EADDRINUSE) {
        sl_listeners_close(&found);
        return err;
    }
    *out = found;
    return 0;
}

static bool is_written_out(const char *host)
{
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST}, *list;

    if (strcmp(host, "localhost") == 0)
        return true;
    if (getaddrinfo(host, NULL, &hints, &list) != 0)
        return false;
    freeaddrinfo(list);
    return true;
}

/* Loopback reaches exactly whom the unix socket reaches: TCP is for those who prove themselves by a
 * secret (of another user, or through a tunnel), and for sandboxes without unix sockets. */
static int listen_on_host(struct sl_address *address, unsigned count, uint16_t port, bool secret,
                          struct sl_listeners *out)
{
    struct sl_listeners found = {.loopback = true, .port = port};
    char name[SL_NEARBY_NAME_MAX];
    int nearby, none, err;

    sl_nearby_name(port, name);
    err = none = sl_nearby_listen(name, &nearby);

    if (none == -EADDRINUSE || (none == -EACCES && !secret))
        return none;
    if (none != 0)
        sl_info("launch", "%s; ranks meet by TCP alone", sluice_last_error());
    if (none != 0 || secret)
        err = listen_each(address, count, port, &found);
    if (err != 0) {
        if (none == 0)
            close(nearby);
        return sl_fail(err, "%s", strerror(-err));
    }
    found.has_nearby = none == 0;
    found.nearby = none == 0 ? nearby : -1;
    *out = found;
    return 0;
}

/* Beside TCP: without it, ranks of this host meet as all others do. */
static void add_nearby(struct sl_listeners *listeners)
{
    char name[SL_NEARBY_NAME_MAX];

    sl_nearby_name(listeners->port, name);
    listeners->has_nearby = sl_nearby_listen(name, &listeners->nearby) == 0;
    if (!listeners->has_nearby)
        sl_debug("launch", "%s", sluice_last_error());
}

static int listen_on_network(const struct sl_root *root, struct sl_address *address, unsigned count,
                             uint16_t port, struct sl_listeners *out)
{
    int err = count > 0 ? listen_each(address, count, port, out) : listen_wide(port, false, out);

    if (err == -EADDRNOTAVAIL) {
        /* Behind address translation, the address others know us by is not ours. */
        sl_info("launch", "%s is no address of this host; listening on all of them at port %u",
                root->host, port);
        err = listen_wide(port, false, out);
    }
    if (err != 0)
        return sl_fail(err, "%s", strerror(-err));
    add_nearby(out);
    return 0;
}

int sl_listen_root(const struct sl_root *root, bool secret, struct sl_listeners *out)
{
    struct sl_root first = *root;
    struct sl_address address[SL_LISTENERS_MAX];
    char why[SL_ERROR_TEXT_MAX] = "";
    unsigned count = 0, loopback = 0;
    int err = 0;

    first.more = 0;
    if (is_written_out(root->host)) {
        err = sl_root_resolve(&first, address, SL_LISTENERS_MAX, &count);
        if (err != 0)
            return err;
    }
    for (unsigned i = 0; i < count; i++)
        loopback += sl_sockaddr_loopback(&address[i].any);
    for (unsigned i = 0; i <= root->more; i++) {
        uint16_t port = (uint16_t)(root->port + i);

        err = count > 0 && loopback == count ? listen_on_host(address, count, port, secret, out)
                                             : listen_on_network(root, address, count, port, out);
        if (err == 0)
            return 0;
        if (i == 0)
            snprintf(why, sizeof(why), "%s", sluice_last_error());
    }
    return sl_fail(err,
                   "rank 0 cannot listen on %s port %u%s: %s; choose another port or end the "
                   "program that holds it",
                   root->host, root->port, root->more > 0 ? " nor on those after it" : "", why);
}

/* One more of those that have a port in common; 0: any, and found->port tells which. */
static int listen_also(const struct sl_address *at, struct sl_listeners *found)
{
    struct sl_address address = *at;
    int err;

    sl_sockaddr_set_port(&address.any, found->port);
    err = listen_on(&address, false, &found->fd[found->count]);
    if (err == 0 && found->port == 0)
        found->port = port_of(found->fd[found->count]);
    found->count += err == 0;
    return err;
}

/* At card's places, but those that are not usable yet: IPv6 takes a moment to find out whether an
 * address is alone. And on loopback, by which ranks of this host may come. */
static int listen_at_card(struct sl_card *card, uint16_t port, struct sl_listeners *out)
{
    struct sl_listeners found = {.port = port};
    struct sl_address loopback = sl_address_loopback(0);
    struct sl_card told = *card;
    int err = 0;

    told.count = 0;
    for (unsigned i = 0; i < card->count && (err == 0 || err == -EADDRNOTAVAIL); i++) {
        err = listen_also(&card->place[i], &found);
        if (err == 0)
            told.place[told.count++] = card->place[i];
    }
    if (found.count > 0 && (err == 0 || err == -EADDRNOTAVAIL))
        err = listen_also(&loopback, &found) == -EADDRINUSE ? -EADDRINUSE : 0;
    if (err != 0) {
        sl_listeners_close(&found);
        return err;
    }
    *card = told;
    *out = found;
    return 0;
}

/* 0: a free port. */
static int listen_at_port(struct sl_card *card, uint16_t port, struct sl_listeners *out)
{
    bool loopback = card == NULL || (card->count == 1 && sl_sockaddr_loopback(&card->place[0].any));
    int err = loopback ? listen_wide(port, true, out) : listen_at_card(card, port, out);

    if (err != 0)
        return err;
    add_nearby(out);
    if (card != NULL)
        card->port = out->port;
    for (unsigned i = 0; card != NULL && i < card->count; i++)
        sl_sockaddr_set_port(&card->place[i].any, card->port);
    return 0;
}

int sl_listen_any(const char *text, struct sl_card *card, struct sl_listeners *out)
{
    struct sl_port_range range;
    uint32_t start = 0;
    int err = sl_port_range_parse(text, &range);

    if (err != 0)
        return err;
    err = -EADDRINUSE;
    if (range.low == 0) {
        /* What is free at the first address may be taken at another. */
        for (unsigned i = 0; i < PORT_TRIES && err == -EADDRINUSE; i++)
            err = listen_at_port(card, 0, out);
        return err == 0 ? 0 : sl_fail(err, "cannot listen on any port: %s", strerror(-err));
    }
    /* Start anywhere, so that jobs that share a host seldom meet. */
    err = sl_random(&start, sizeof(start));
    if (err != 0)
        return err;
    for (uint32_t i = 0, n = sl_port_range_count(&range); i < n; i++) {
        err = listen_at_port(card, (uint16_t)(range.low + (start % n + i) % n), out);
        if (err == 0)
            return 0;
    }
    return sl_fail(err, "cannot listen on any port of SLUICE_PORT_RANGE %s: %s; widen it", text,
                   strerror(-err));
}

void sl_listeners_close(struct sl_listeners *listeners)
{
    while (listeners->count > 0)
        close(listeners->fd[--listeners->count]);
    if (listeners->has_nearby)
        close(listeners->nearby);
    listeners->has_nearby = false;
}

int sl_random(void *out, size_t len)
{
    ssize_t got;

    do
        got = getrandom(out, len, 0);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return sl_fail(-errno, "the kernel gives no random bytes: %s", strerror(errno));
    sl_assert((size_t)got == len); /* so few are never cut */
    return 0;
}

void sl_hex(const uint8_t *bytes, size_t len, char *out)
{
    for (size_t i = 0; i < len; i++)
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int sl_unhex(const char *text, uint8_t *out, size_t len)
{
    if (strlen(text) != 2 * len)
        return -EINVAL;
    for (size_t i = 0; i < len; i++) {
        int high = hex_digit(text[2 * i]), low = hex_digit(text[2 * i + 1]);

        if (high < 0 || low < 0)
            return -EINVAL;
        out[i] = (uint8_t)(high << 4 | low);
    }
    return 0;
}
