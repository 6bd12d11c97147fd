/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the host's interfaces and orders addresses; the choice itself touches nothing. */
#include "core/netif.h"

#include "core/err.h"
#include "core/host.h"

#include <arpa/inet.h>
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const uint8_t *sl_sockaddr_bytes(const struct sockaddr_storage *addr, unsigned *len)
{
    if (addr->ss_family == AF_INET) {
        *len = 4;
        return (const uint8_t *)&((const struct sockaddr_in *)addr)->sin_addr;
    }
    *len = 16;
    return (const uint8_t *)&((const struct sockaddr_in6 *)addr)->sin6_addr;
}

bool sl_sockaddr_loopback(const struct sockaddr_storage *addr)
{
    unsigned len;
    const uint8_t *bytes = sl_sockaddr_bytes(addr, &len);

    if (len == 4)
        return bytes[0] == 127;
    return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)addr)->sin6_addr);
}

bool sl_sockaddr_link_local(const struct sockaddr_storage *addr)
{
    unsigned len;
    const uint8_t *bytes = sl_sockaddr_bytes(addr, &len);

    if (len == 4)
        return bytes[0] == 169 && bytes[1] == 254;
    return bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80;
}

void sl_sockaddr_host(const struct sockaddr_storage *addr, char *out, size_t cap)
{
    const struct in6_addr *v6 = &((const struct sockaddr_in6 *)addr)->sin6_addr;
    char host[INET6_ADDRSTRLEN] = "?";

    if (addr->ss_family == AF_INET)
        inet_ntop(AF_INET, &((const struct sockaddr_in *)addr)->sin_addr, host, sizeof(host));
    else if (IN6_IS_ADDR_V4MAPPED(v6))
        inet_ntop(AF_INET, v6->s6_addr + 12, host, sizeof(host));
    else
        inet_ntop(AF_INET6, v6, host, sizeof(host));
    snprintf(out, cap, "%s", host);
}

void sl_sockaddr_text(const struct sockaddr_storage *addr, char *out, size_t cap)
{
    char host[INET6_ADDRSTRLEN];

    sl_sockaddr_host(addr, host, sizeof(host));
    snprintf(out, cap, strchr(host, ':') != NULL ? "[%s]:%u" : "%s:%u", host,
             sl_sockaddr_port(addr));
}

socklen_t sl_sockaddr_len(const struct sockaddr_storage *addr)
{
    return addr->ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
}

static_assert(offsetof(struct sockaddr_in, sin_port) == offsetof(struct sockaddr_in6, sin6_port),
              "the port of both kinds lies in one place");

uint16_t sl_sockaddr_port(const struct sockaddr_storage *addr)
{
    return ntohs(((const struct sockaddr_in *)addr)->sin_port);
}

void sl_sockaddr_set_port(struct sockaddr_storage *addr, uint16_t port)
{
    ((struct sockaddr_in *)addr)->sin_port = htons(port);
}

struct sockaddr_storage sl_sockaddr_make(const void *bytes, unsigned len, uint16_t port)
{
    struct sockaddr_storage addr = {.ss_family = len == 4 ? AF_INET : AF_INET6};
    void *place = len == 4 ? (void *)&((struct sockaddr_in *)&addr)->sin_addr
                           : (void *)&((struct sockaddr_in6 *)&addr)->sin6_addr;

    memcpy(place, bytes, len);
    sl_sockaddr_set_port(&addr, port);
    return addr;
}

int sl_sockaddr_listen(int fd, const struct sockaddr_storage *addr, uint16_t *port, int backlog,
                       int hello_ms)
{
    struct sockaddr_storage own = *addr;
    socklen_t len = sl_sockaddr_len(addr);
    int on = 1, hello_s = hello_ms / 1000;

    if (addr->ss_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &hello_s, sizeof(hello_s));
    sl_sockaddr_set_port(&own, *port);
    if (bind(fd, (struct sockaddr *)&own, len) != 0 || listen(fd, backlog) != 0 ||
        getsockname(fd, (struct sockaddr *)&own, &len) != 0)
        return sl_fail(-errno, "%s", sluice_strerror(-errno));
    *port = sl_sockaddr_port(&own);
    return 0;
}

static bool path_exists(const char *name, const char *leaf)
{
    char path[128];

    snprintf(path, sizeof(path), "/sys/class/net/%s/%s", name, leaf);
    return access(path, F_OK) == 0;
}

/* True when a port of the bridge has hardware behind it: such a bridge is the host's way out. */
static bool bridge_has_uplink(const char *name)
{
    char path[64];
    bool found = false;
    struct dirent *entry;
    DIR *dir;

    snprintf(path, sizeof(path), "/sys/class/net/%s/brif", name);
    dir = opendir(path);
    if (dir == NULL)
        return false;
    while (!found && (entry = readdir(dir)) != NULL)
        found = entry->d_name[0] != '.' && strlen(entry->d_name) < IF_NAMESIZE &&
                path_exists(entry->d_name, "device");
    closedir(dir);
    return found;
}

static uint32_t read_speed(const char *name)
{
    char path[64], line[32];
    long speed = 0;

    snprintf(path, sizeof(path), "/sys/class/net/%s/speed", name);
    if (sl_host_line(path, line, sizeof(line)))
        speed = strtol(line, NULL, 10);
    return speed > 0 ? (uint32_t)speed : 0;
}

static bool has_default_route(const char *name)
{
    char line[256], device[32];
    unsigned long destination, mask;
    bool found = false;
    FILE *file = fopen("/proc/net/route", "re");

    if (file == NULL)
        return false;
    while (!found && fgets(line, sizeof(line), file) != NULL)
        found =
            sscanf(line, "%31s %lx %*x %*x %*d %*d %*d %lx", device, &destination, &mask) == 3 &&
            destination == 0 && mask == 0 && strcmp(device, name) == 0;
    fclose(file);
    return found;
}

static uint8_t prefix_of(const struct sockaddr *mask)
{
    struct sockaddr_storage copy = {0};
    const uint8_t *bytes;
    unsigned len, bits = 0;

    if (mask == NULL)
        return 0;
    memcpy(&copy, mask,
           mask->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6));
    bytes = sl_sockaddr_bytes(&copy, &len);
    for (unsigned i = 0; i < len; i++)
        bits += (unsigned)__builtin_popcount(bytes[i]);
    return (uint8_t)bits;
}

int sl_netif_scan(struct sl_netif_list *out)
{
    struct ifaddrs *all, *item;

    out->count = 0;
    if (getifaddrs(&all) != 0)
        return sl_fail(-errno, "getifaddrs failed: %s", sluice_strerror(-errno));
    for (item = all; item != NULL && out->count < SL_NETIF_MAX; item = item->ifa_next) {
        struct sl_netif *netif = &out->items[out->count];

        if (item->ifa_addr == NULL ||
            (item->ifa_addr->sa_family != AF_INET && item->ifa_addr->sa_family != AF_INET6))
            continue;
        memset(netif, 0, sizeof(*netif));
        snprintf(netif->name, sizeof(netif->name), "%s", item->ifa_name);
        memcpy(&netif->addr, item->ifa_addr,
               item->ifa_addr->sa_family == AF_INET ? sizeof(struct sockaddr_in)
                                                    : sizeof(struct sockaddr_in6));
        netif->prefix_len = prefix_of(item->ifa_netmask);
        netif->up = (item->ifa_flags & (IFF_UP | IFF_RUNNING)) == (IFF_UP | IFF_RUNNING);
        netif->loopback = (item->ifa_flags & IFF_LOOPBACK) != 0;
        netif->bridge = path_exists(netif->name, "bridge");
        netif->bridge_uplink = netif->bridge && bridge_has_uplink(netif->name);
        netif->default_route = has_default_route(netif->name);
        netif->speed_mbit = read_speed(netif->name);
        out->count++;
    }
    freeifaddrs(all);
    return 0;
}

static bool in_range(const struct sockaddr_storage *addr, const char *range, unsigned bits)
{
    struct sockaddr_storage net = {.ss_family = addr->ss_family};
    const uint8_t *a, *b;
    unsigned len, n;

    b = sl_sockaddr_bytes(&net, &len);
    if (inet_pton(addr->ss_family, range, (void *)(uintptr_t)b) != 1 || bits > len * 8)
        return false;
    a = sl_sockaddr_bytes(addr, &len);
    n = bits / 8;
    if (memcmp(a, b, n) != 0)
        return false;
    return bits % 8 == 0 || (a[n] ^ b[n]) >> (8 - bits % 8) == 0;
}

/* One item of SLUICE_INTERFACE, without its '!'. 1: matches, 0: not, -EINVAL: not understood. */
static int item_matches(const char *item, const struct sl_netif *netif)
{
    const char *slash = strchr(item, '/');
    size_t len = strlen(item);
    char range[64];
    uint8_t scratch[16];
    unsigned long bits;
    char *end;

    if (len == 0 || len >= sizeof(range))
        return -EINVAL;
    if (slash == NULL) {
        if (item[len - 1] == '*')
            return strncmp(netif->name, item, len - 1) == 0;
        if (inet_pton(AF_INET, item, scratch) == 1)
            return in_range(&netif->addr, item, 32);
        if (inet_pton(AF_INET6, item, scratch) == 1)
            return in_range(&netif->addr, item, 128);
        return strcmp(netif->name, item) == 0;
    }
    memcpy(range, item, len + 1);
    range[slash - item] = '\0';
    bits = strtoul(slash + 1, &end, 10);
    if (slash[1] == '\0' || *end != '\0' ||
        !((inet_pton(AF_INET, range, scratch) == 1 && bits <= 32) ||
          (inet_pton(AF_INET6, range, scratch) == 1 && bits <= 128)))
        return -EINVAL;
    return in_range(&netif->addr, range, (unsigned)bits);
}

/* 1: wanted, 0: not, -EINVAL. An exclusion wins; without any inclusion all others are in. */
static int spec_wants(const char *spec, const struct sl_netif *netif, bool *named)
{
    char copy[256], *save = NULL;
    bool any_inclusion = false, included = false, excluded = false;

    *named = false;
    snprintf(copy, sizeof(copy), "%s", spec);
    for (char *item = strtok_r(copy, ", ", &save); item != NULL;
         item = strtok_r(NULL, ", ", &save)) {
        bool exclude = *item == '!';
        int match = item_matches(item + exclude, netif);

        if (match < 0)
            return sl_fail(
                -EINVAL,
                "SLUICE_INTERFACE has '%s', but must list names, prefixes ending in * or "
                "ranges such as 10.0.0.0/8, each with ! to exclude",
                item);
        any_inclusion |= !exclude;
        if (match == 1 && exclude)
            excluded = true;
        else if (match == 1)
            included = true;
    }
    *named = included;
    return !excluded && (included || !any_inclusion);
}

static const char *unfit(const struct sl_netif *netif, bool named)
{
    static const char *const virtual[] = {"docker", "virbr", "lxcbr",   "lxdbr", "cni",
                                          "podman", "br-",   "flannel", "cali",  "kube-"};

    if (!netif->up)
        return "is down";
    if (named)
        return NULL;
    if (netif->bridge && !netif->bridge_uplink)
        return "is a bridge of containers or virtual machines";
    for (size_t i = 0; i < SL_ARRAY_LEN(virtual); i++)
        if (strncmp(netif->name, virtual[i], strlen(virtual[i])) == 0 && !netif->bridge_uplink)
            return "has the name of a bridge of containers or virtual machines";
    return NULL;
}

/* Lower is better. */
static uint64_t order_of(const struct sl_netif *netif)
{
    uint64_t order = UINT32_MAX - netif->speed_mbit;

    if (!netif->default_route)
        order |= UINT64_C(1) << 33;
    if (sl_sockaddr_link_local(&netif->addr))
        order |= UINT64_C(1) << 34;
    if (netif->loopback)
        order |= UINT64_C(1) << 35;
    return order << 1 | (netif->addr.ss_family == AF_INET6);
}

static void insert(struct sl_netif_list *list, const struct sl_netif *netif)
{
    unsigned at = list->count++;

    while (at > 0 && order_of(&list->items[at - 1]) > order_of(netif)) {
        list->items[at] = list->items[at - 1];
        at--;
    }
    list->items[at] = *netif;
}

int sl_netif_choose(const struct sl_netif_list *all, const char *spec, struct sl_netif_list *out,
                    char *why, size_t why_cap)
{
    out->count = 0;
    why[0] = '\0';
    for (unsigned i = 0; i < all->count; i++) {
        const struct sl_netif *netif = &all->items[i];
        bool named;
        int wanted = spec_wants(spec, netif, &named);
        const char *reason = wanted == 1 ? unfit(netif, named) : "SLUICE_INTERFACE leaves it out";

        if (wanted < 0)
            return wanted;
        if (reason == NULL)
            insert(out, netif);
        else if (strstr(why, netif->name) == NULL)
            sl_text_add(why, why_cap, "%s%s %s", why[0] != '\0' ? ", " : "", netif->name, reason);
    }
    if (out->count == 0)
        return sl_fail(-ENODEV, "no network interface can be used%s%s; see SLUICE_INTERFACE",
                       why[0] != '\0' ? ": " : "", why);
    return 0;
}

int sl_netif_find(const char *spec, struct sl_netif_list *out, char *why, size_t why_cap)
{
    struct sl_netif_list *all = malloc(sizeof(*all));
    int err;

    if (all == NULL)
        return sl_fail(-ENOMEM, "no memory to list network interfaces");
    err = sl_netif_scan(all);
    err = err ?: sl_netif_choose(all, spec, out, why, why_cap);
    free(all);
    return err;
}

int sl_netif_route(const struct sockaddr_storage *addr, const struct sl_netif_list *all,
                   const struct sl_netif **out)
{
    struct sockaddr_storage source = {0};
    socklen_t len = sizeof(source);
    int err = 0, fd = socket(addr->ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return sl_fail(-errno, "socket failed: %s", sluice_strerror(-errno));
    /* Connecting a datagram socket only asks the routing table. */
    if (connect(fd, (const struct sockaddr *)addr, sl_sockaddr_len(addr)) != 0 ||
        getsockname(fd, (struct sockaddr *)&source, &len) != 0)
        err = -errno;
    close(fd);
    if (err != 0)
        return sl_fail(err, "there is no route: %s", sluice_strerror(err));
    for (unsigned i = 0; i < all->count; i++) {
        unsigned bytes;
        const uint8_t *mine = sl_sockaddr_bytes(&all->items[i].addr, &bytes);

        if (all->items[i].addr.ss_family == source.ss_family &&
            memcmp(mine, sl_sockaddr_bytes(&source, &bytes), bytes) == 0) {
            *out = &all->items[i];
            return 0;
        }
    }
    return sl_fail(-ENETUNREACH, "its route leaves by an interface that is not in use");
}
