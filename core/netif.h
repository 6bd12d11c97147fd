/* SPDX-License-Identifier: Apache-2.0 */
/* Network interfaces of this host: which addresses to publish, and in which order to try a
 * peer's. */
#ifndef SL_CORE_NETIF_H
#define SL_CORE_NETIF_H

#include <net/if.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#define SL_NETIF_MAX 64

/* One address of one interface. */
struct sl_netif {
    char name[IF_NAMESIZE];
    struct sockaddr_storage addr; /* port 0; IPv6 link-local ones with their scope */
    uint8_t prefix_len;
    bool up, loopback;
    bool bridge;        /* a software bridge ... */
    bool bridge_uplink; /* ... that a real device is a port of */
    bool default_route;
    uint32_t speed_mbit; /* 0: unknown */
};

struct sl_netif_list {
    unsigned count;
    struct sl_netif items[SL_NETIF_MAX];
};

/* The addresses of this host. */
int sl_netif_scan(struct sl_netif_list *out);

/*
 * The addresses that may be published, best first; pure. spec is SLUICE_INTERFACE: names, prefixes
 * ending in *, CIDR ranges, each with ! to exclude, separated by commas. Empty: all that are up but
 * container and virtual machine bridges; loopback addresses too (only ranks of the same host use
 * them). why gets a sentence part per interface left out. -EINVAL: spec is not understood; -ENODEV:
 * nothing matches.
 */
int sl_netif_choose(const struct sl_netif_list *all, const char *spec, struct sl_netif_list *out,
                    char *why, size_t why_cap);

/* Both: the addresses of this host that may be published. */
int sl_netif_find(const char *spec, struct sl_netif_list *out, char *why, size_t why_cap);

bool sl_sockaddr_loopback(const struct sockaddr_storage *addr);
bool sl_sockaddr_link_local(const struct sockaddr_storage *addr);
socklen_t sl_sockaddr_len(const struct sockaddr_storage *addr);
/* The 4 or 16 bytes of its address; *len tells which. */
const uint8_t *sl_sockaddr_bytes(const struct sockaddr_storage *addr, unsigned *len);
uint16_t sl_sockaddr_port(const struct sockaddr_storage *addr);
void sl_sockaddr_set_port(struct sockaddr_storage *addr, uint16_t port);
/* Of those bytes, 4 or 16. */
struct sockaddr_storage sl_sockaddr_make(const void *bytes, unsigned len, uint16_t port);
/* "192.0.2.7", "fd00::2"; an IPv4 address in IPv6's form as IPv4. Cut at cap. */
void sl_sockaddr_host(const struct sockaddr_storage *addr, char *out, size_t cap);
/* "192.0.2.7:4711", "[fd00::2]:4711" */
void sl_sockaddr_text(const struct sockaddr_storage *addr, char *out, size_t cap);

/*
 * Binds fd, a new TCP socket, to addr at *port and listens there; 0: any port, and *port tells
 * which. An IPv6 socket takes IPv6 alone. A connection shows when its first bytes are there, or
 * after hello_ms. A negative errno; fd stays the caller's.
 */
int sl_sockaddr_listen(int fd, const struct sockaddr_storage *addr, uint16_t *port, int backlog,
                       int hello_ms);

/* The interface that this host's routes would use for addr, or a negative errno: -ENETUNREACH. */
int sl_netif_route(const struct sockaddr_storage *addr, const struct sl_netif_list *all,
                   const struct sl_netif **out);

#endif
