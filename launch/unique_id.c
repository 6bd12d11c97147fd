/* SPDX-License-Identifier: Apache-2.0 */
/* Meeting places as 256 bytes: rank 0's addresses, port and secret, published through a launcher's
 * store, or handed over by the program.
 *
 *   0 "SLID"   4 version   5 addresses   6 port   8 host (8)   16 secret (32)
 *   48 addresses, each a byte 4 or 6 and then 4 or 16 bytes   248 check (8)
 *
 * Link-local IPv6 addresses stay out: which link they mean is known on this host alone. */
#include "launch/address.h"

#include "core/err.h"
#include "core/host.h"
#include "core/netif.h"
#include "launch/wire.h"

#include <assert.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define CARD_VERSION 1
#define CHECK_AT 248
#define SECRET_AT 16
#define ADDRESSES_AT 48

static_assert(SLUICE_UNIQUE_ID_BYTES == CHECK_AT + 8, "the check ends the card");

static int add_interfaces(const struct sl_config *config, struct sl_card *card)
{
    struct sl_netif_list chosen;
    char why[SL_TEXT_MAX];
    int err = sl_netif_find(config->interface, &chosen, why, sizeof(why));

    if (err != 0)
        return err;
    for (unsigned i = 0; i < chosen.count && card->count < SL_CARD_PLACES_MAX; i++) {
        struct sl_address *address = &card->place[card->count];

        if (chosen.items[i].loopback || sl_sockaddr_link_local(&chosen.items[i].addr))
            continue;
        address->any = chosen.items[i].addr;
        address->len = sl_sockaddr_len(&address->any);
        card->count++;
    }
    return 0;
}

int sl_card_make(const struct sl_config *config, bool loopback, struct sl_card *out)
{
    struct sl_card card = {.host = sl_host_hash(config)};
    uint8_t secret[SL_SECRET_BYTES];
    int err = sl_random(secret, sizeof(secret));

    if (err == 0 && !loopback)
        err = add_interfaces(config, &card);
    if (err != 0)
        return err;
    if (card.count == 0)
        card.place[card.count++] = sl_address_loopback(0);
    sl_hex(secret, sizeof(secret), card.secret);
    *out = card;
    return 0;
}

/* Finds ids that were cut, mixed up or mistyped; who makes them on purpose can make this too. */
static uint64_t check_of(const uint8_t *bytes)
{
    return sl_hash(SL_HASH_START, bytes, CHECK_AT);
}

void sl_card_pack(const struct sl_card *card, struct sluice_unique_id *out)
{
    uint8_t *bytes = out->bytes, *at = bytes + ADDRESSES_AT;

    memset(bytes, 0, SLUICE_UNIQUE_ID_BYTES);
    memcpy(bytes, "SLID", 4);
    bytes[4] = CARD_VERSION;
    bytes[5] = (uint8_t)card->count;
    sl_put(bytes + 6, card->port, 2);
    sl_put(bytes + 8, card->host, 8);
    sl_assert(sl_unhex(card->secret, bytes + SECRET_AT, SL_SECRET_BYTES) == 0);
    for (unsigned i = 0; i < card->count; i++) {
        unsigned len;
        const uint8_t *raw = sl_sockaddr_bytes(&card->place[i].any, &len);

        *at++ = len == 4 ? 4 : 6;
        memcpy(at, raw, len);
        at += len;
    }
    sl_put(bytes + CHECK_AT, check_of(bytes), 8);
}

int sl_card_unpack(const struct sluice_unique_id *id, struct sl_card *out)
{
    const uint8_t *bytes = id->bytes, *at = bytes + ADDRESSES_AT;
    struct sl_card card = {.count = 0};

    if (memcmp(bytes, "SLID", 4) != 0)
        return sl_fail(-EINVAL, "these bytes are no unique id of Sluice; rank 0 makes one by "
                                "sluice_unique_id_create()");
    if (bytes[4] != CARD_VERSION)
        return sl_fail(-EINVAL,
                       "the unique id has version %u, this library reads %d; load the same "
                       "Sluice on all ranks",
                       bytes[4], CARD_VERSION);
    if (sl_get64(bytes + CHECK_AT) != check_of(bytes) || bytes[5] == 0 ||
        bytes[5] > SL_CARD_PLACES_MAX)
        return sl_fail(-EINVAL, "the unique id is damaged: hand all %d bytes to every rank",
                       SLUICE_UNIQUE_ID_BYTES);
    card.port = sl_get16(bytes + 6);
    card.host = sl_get64(bytes + 8);
    sl_hex(bytes + SECRET_AT, SL_SECRET_BYTES, card.secret);
    for (; card.count < bytes[5]; card.count++) {
        if ((*at != 4 && *at != 6) || card.port == 0)
            return sl_fail(-EINVAL, "the unique id is damaged: an address is of kind %u", *at);
        unsigned len = *at == 4 ? 4 : 16;

        card.place[card.count] = sl_address_make(at + 1, len, card.port);
        at += 1 + len;
    }
    *out = card;
    return 0;
}

static bool descriptor_is_left(void)
{
    int fd = open("/", O_PATH | O_CLOEXEC);

    if (fd >= 0)
        close(fd);
    return fd >= 0 || (errno != EMFILE && errno != ENFILE);
}

int sl_card_localize(const struct sl_config *config, struct sl_card *card)
{
    bool only_loopback = card->count == 1 && sl_sockaddr_loopback(&card->place[0].any);

    if (sl_host_hash(config) != card->host) {
        if (only_loopback && !descriptor_is_left())
            return sl_fail(-EMFILE,
                           "no file descriptor is left to find out which host this is; raise "
                           "'ulimit -n'");
        if (only_loopback)
            return sl_fail(-EHOSTUNREACH, "rank 0 runs on another host and has no address but "
                                          "loopback; set SLUICE_INTERFACE there");
        return 0;
    }
    if (!only_loopback) {
        memmove(&card->place[1], &card->place[0], card->count * sizeof(card->place[0]));
        card->place[0] = sl_address_loopback(card->port);
        card->count++;
    }
    return 0;
}
