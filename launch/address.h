/* SPDX-License-Identifier: Apache-2.0 */
/* Network addresses of meeting places: written, resolved, listened on, published. */
#ifndef SL_LAUNCH_ADDRESS_H
#define SL_LAUNCH_ADDRESS_H

#include "core/config.h"

#include <sluice/comm.h>

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#define SL_ADDRESS_TEXT_MAX 80
#define SL_PLACES_MAX 16
#define SL_CARD_PLACES_MAX 11 /* as many IPv6 addresses as a unique id has room for */
#define SL_LISTENERS_MAX (SL_CARD_PLACES_MAX + 1) /* those, and loopback */
#define SL_SECRET_BYTES 32 /* of a secret that we make; twice as long in hex */

struct sl_address {
    struct sockaddr_storage any;
    socklen_t len;
};

/* "10.0.0.1:4711", "[fe80::1%eth0]:4711". */
void sl_address_text(const struct sl_address *address, char out[SL_ADDRESS_TEXT_MAX]);
/* Of 4 or 16 bytes. */
struct sl_address sl_address_make(const void *bytes, unsigned len, uint16_t port);
/* 127.0.0.1 */
struct sl_address sl_address_loopback(uint16_t port);

/* "host:port", "[v6]:port", "[v6%eth0]:port", and with "+N" after it N more ports to try. */
struct sl_root {
    char host[SL_TEXT_MAX];
    uint16_t port;
    uint16_t more; /* ports after port that rank 0 may have had to take instead */
};

/* -EINVAL says what is wrong with text. */
int sl_root_parse(const char *text, struct sl_root *out);

/* Looks root up. *count may be 0..cap; more addresses than cap are left out. -EAGAIN: the name is
 * not known now, but may be later; -EINVAL: never will. */
int sl_root_resolve(const struct sl_root *root, struct sl_address *out, unsigned cap,
                    unsigned *count);

/* Sockets that one rank 0 listens on, all of the same port. */
struct sl_listeners {
    int fd[SL_LISTENERS_MAX]; /* TCP */
    unsigned count;
    uint16_t port;
    bool loopback;   /* nothing outside this host reaches them */
    bool has_nearby; /* nearby is there, for ranks of this host (launch/nearby.h) */
    int nearby;
};

/* Listens where root says: on an address that is written out, or on all of them when it is a name
 * (which may mean something else on other hosts); beside that, or instead where all addresses are
 * loopback and there is no secret, for ranks of this host and user. -EADDRINUSE names the ports
 * tried; -EACCES: another user has the name. */
int sl_listen_root(const struct sl_root *root, bool secret, struct sl_listeners *out);

struct sl_card;

/* Listens on any free port, of range ("low-high") unless that is "", where card says, on loopback,
 * and for ranks of this host and user; card gets the port, and loses places that nobody could
 * connect to yet. NULL: loopback alone. For meetings that have a secret. */
int sl_listen_any(const char *range, struct sl_card *card, struct sl_listeners *out);

void sl_listeners_close(struct sl_listeners *listeners);

/* A meeting place as 256 bytes: what a unique id holds, and what rank 0 publishes. */
struct sl_card {
    struct sl_address place[SL_PLACES_MAX];
    unsigned count;
    uint64_t host; /* sl_host_hash(): who may use loopback */
    char secret[2 * SL_SECRET_BYTES + 1];
    uint16_t port;
};

/* The addresses of this host that config->interface allows, the one of the default route first, or
 * its loopback alone; makes a secret. The port is to come. -ENODEV: no address is left. */
int sl_card_make(const struct sl_config *config, bool loopback, struct sl_card *out);
void sl_card_pack(const struct sl_card *card, struct sluice_unique_id *out);
/* -EINVAL: not a card, of another version, or damaged. */
int sl_card_unpack(const struct sluice_unique_id *id, struct sl_card *out);
/* Puts loopback first when card comes from this host. */
int sl_card_localize(const struct sl_config *config, struct sl_card *card);

/* Fills out with random bytes, at most 256. */
int sl_random(void *out, size_t len);
/* 2 * len digits and a zero. */
void sl_hex(const uint8_t *bytes, size_t len, char *out);
int sl_unhex(const char *text, uint8_t *out, size_t len);

#endif
