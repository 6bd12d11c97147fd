/* SPDX-License-Identifier: Apache-2.0 */
/* Conclusions of both ends of a connection from both addresses, alike and without a word, and where
 * to dial. */
#include "tcp/tcp.h"
#include "tcp/config.h"

#include "core/log.h"

#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#define LOCAL_CONNS 1  /* data connections inside a host and between hosts, measured: */
#define REMOTE_CONNS 4 /* docs/perf/tcp.md */
#define PIECE_BYTES (512u << 10)
#define PIECE_BYTES_CRC (256u << 10) /* still in L2 when it is copied after its sum was taken */
/* On a single connection: the most that a channel that is closed meanwhile has to copy. */
#define PIECE_BYTES_SINGLE (16u << 20)

/* A link-local address means something only on a link: with the scope of each of ours in turn. */
static void add_link_local(struct sl_tcp_ep *ep, const struct sockaddr_storage *addr)
{
    const struct sl_netif_list *mine = &ep->iface->netifs;

    for (unsigned i = 0; i < mine->count && ep->target_count < SL_TCP_ADDRS; i++) {
        const struct sl_netif *netif = &mine->items[i];
        struct sl_tcp_target *target = &ep->targets[ep->target_count];

        if (netif->addr.ss_family != AF_INET6 || !sl_sockaddr_link_local(&netif->addr))
            continue;
        target->addr = *addr;
        ((struct sockaddr_in6 *)&target->addr)->sin6_scope_id =
            ((const struct sockaddr_in6 *)&netif->addr)->sin6_scope_id;
        ep->target_count++;
    }
}

static void add_target(struct sl_tcp_ep *ep, const struct sockaddr_storage *addr, bool loopback)
{
    const struct sl_netif *via = NULL;
    char text[64];

    sl_sockaddr_text(addr, text, sizeof(text));
    if (addr->ss_family == AF_INET6 && sl_sockaddr_link_local(addr)) {
        add_link_local(ep, addr);
        return;
    }
    /* Between hosts, an address that our own routes send out by no interface in use (or that is one
     * of our own: both hosts have a docker0) does not lead to the peer. */
    if (!ep->same_host && sl_netif_route(addr, &ep->iface->netifs, &via) != 0) {
        sl_debug("tcp", "%s at %s is left out: %s", sl_ep_peer_name(&ep->base), text,
                 sluice_last_error());
        return;
    }
    if (!ep->same_host && via->loopback)
        return;
    ep->targets[ep->target_count].addr = *addr;
    ep->targets[ep->target_count].loopback = loopback;
    ep->target_count++;
}

/* The peer's addresses in the order to try: loopback first on the same host, never otherwise. */
static int choose_targets(struct sl_tcp_ep *ep, const struct sl_tcp_address *peer)
{
    for (int pass = 0; pass < 2; pass++) {
        for (unsigned i = 0; i < peer->count && ep->target_count < SL_TCP_ADDRS; i++) {
            const struct sl_tcp_target *place = &peer->places[i];

            if (place->loopback == (pass == 0) && (!place->loopback || ep->same_host))
                add_target(ep, &place->addr, place->loopback);
        }
    }
    if (ep->target_count == 0)
        return sl_fail(-EHOSTUNREACH,
                       "%s has no address that this host has a route to; see SLUICE_INTERFACE "
                       "on both",
                       sl_ep_peer_name(&ep->base));
    return 0;
}

uint8_t sl_tcp_wanted_crc(const struct sl_config *config)
{
    return sl_tcp_config(config)->crc == SL_AUTO ? SL_TCP_CRC_AUTO
                                                 : (uint8_t)sl_tcp_config(config)->crc;
}

void sl_tcp_ep_set_crc(struct sl_tcp_ep *ep, bool crc)
{
    int64_t stripe = sl_tcp_config(ep->iface->config)->stripe_bytes;

    ep->crc = crc;
    ep->piece_bytes = (uint32_t)(stripe > 0           ? stripe
                                 : ep->crc            ? PIECE_BYTES_CRC
                                 : ep->data_conns > 1 ? PIECE_BYTES
                                                      : PIECE_BYTES_SINGLE);
    if (ep->piece_bytes < 4096)
        ep->piece_bytes = 4096;
}

/* How many connections there are for messages, where there are messages. */
static unsigned data_conns(unsigned ours, unsigned theirs, bool same_host)
{
    unsigned conns = ours > theirs ? ours : theirs;

    if (conns == 0)
        conns = same_host ? LOCAL_CONNS : REMOTE_CONNS;
    return conns > SL_TCP_DATA_CONNS_MAX ? SL_TCP_DATA_CONNS_MAX : conns;
}

/* The conclusions of both ends from both addresses. */
static void agree(struct sl_tcp_ep *ep, const struct sl_tcp_address *peer)
{
    const struct sl_config *config = ep->iface->config;
    uint8_t mine = sl_tcp_wanted_crc(config), theirs = peer->crc;

    ep->same_host = memcmp(peer->host, ep->iface->host_id, sizeof(peer->host)) == 0;
    /* SLUICE_HOST_ID, or machines cloned with their boot id, may call two hosts one: only a
     * connection that does not leave this host goes without checksums. */
    ep->crc_by_path =
        mine == SL_TCP_CRC_AUTO && theirs == SL_TCP_CRC_AUTO && ep->same_host && !ep->tls;
    ep->data_conns =
        ep->iface->base.handler.ctrl_only || peer->conns == SL_TCP_CONNS_NONE
            ? 0
            : data_conns((unsigned)sl_tcp_config(config)->connections, peer->conns, ep->same_host);
    if (mine == SL_ON || theirs == SL_ON)
        sl_tcp_ep_set_crc(ep, true);
    else
        sl_tcp_ep_set_crc(ep, mine != SL_OFF && theirs != SL_OFF && !ep->tls);
    ep->iface->striped |= ep->data_conns > 1;
    ep->dials = memcmp(ep->token, peer->token, sizeof(peer->token)) < 0;
}

/* "rank 3 at 10.0.0.3:41234" */
static void peer_at(const struct sl_tcp_ep *ep, const struct sl_tcp_address *peer, char *out,
                    size_t cap)
{
    char addr[64] = "an unknown address";

    if (peer->count > 0)
        sl_sockaddr_text(&peer->places[0].addr, addr, sizeof(addr));
    snprintf(out, cap, "%s at %s", sl_ep_peer_name(&ep->base), addr);
}

static const char *cipher_word(uint8_t cipher)
{
    static const char *const words[] = {[SL_TLS_CIPHER_AUTO] = "auto",
                                        [SL_TLS_CIPHER_AES_128] = "aes128",
                                        [SL_TLS_CIPHER_AES_256] = "aes256",
                                        [SL_TLS_CIPHER_CHACHA20] = "chacha20"};

    return words[cipher];
}

/* One cipher for both; where a kernel keeps its first keys, the one that can. */
static int agree_on_cipher(struct sl_tcp_ep *ep, const struct sl_tls_terms *mine,
                           const struct sl_tls_terms *theirs, const char *who)
{
    uint8_t cipher = mine->cipher != SL_TLS_CIPHER_AUTO ? mine->cipher : theirs->cipher;
    bool aes = cipher == SL_TLS_CIPHER_AES_128 || cipher == SL_TLS_CIPHER_AES_256;

    if (theirs->cipher != SL_TLS_CIPHER_AUTO && theirs->cipher != cipher)
        return sl_fail(
            -EPROTO,
            "%s has SLUICE_TCP_TLS_CIPHER=%s, and here it is %s: set the same on every rank", who,
            cipher_word(theirs->cipher), cipher_word(mine->cipher));
    ep->tls_terms =
        (struct sl_tls_terms){.cipher = cipher, .keys_stay = mine->keys_stay || theirs->keys_stay};
    if (!aes || !ep->tls_terms.keys_stay)
        return 0;
    return sl_fail(-EPROTO,
                   "SLUICE_TCP_TLS_CIPHER=%s needs keys that change, and the kernel %s%s takes no "
                   "new ones: set SLUICE_TCP_TLS_RECORDS=user there",
                   cipher_word(cipher), mine->keys_stay ? "" : "of ",
                   mine->keys_stay ? "here" : who);
}

/* Both ends see from both addresses whether they agree on TLS; neither then says a word. */
static int agree_on_tls(struct sl_tcp_ep *ep, const struct sl_tcp_address *peer)
{
    char who[160];

    ep->tls = ep->iface->tls != NULL;
    if (!ep->tls && !peer->tls)
        return 0;
    peer_at(ep, peer, who, sizeof(who));
    if (ep->tls && peer->tls)
        return agree_on_cipher(ep, sl_tls_offer(ep->iface->tls), &peer->tls_terms, who);
    if (ep->tls)
        return sl_fail(-EPROTO, "%s speaks no TLS: set SLUICE_TCP_TLS=on on every rank", who);
    return sl_fail(-EPROTO,
                   "%s speaks TLS alone, and here it is off: set SLUICE_TCP_TLS=on on every rank",
                   who);
}

/* Names and keys of this pair. */
static int know_peer(struct sl_tcp_ep *ep, const uint8_t token[SL_TCP_TOKEN_BYTES])
{
    int err = sl_tcp_name_make(token, ep->peer_name);

    return err
               ?: sl_tcp_link_key(ep->iface->base.worker, ep->dials ? ep->token : token,
                                  ep->dials ? token : ep->token, ep->link_key);
}

int sl_tcp_agree(struct sl_tcp_ep *ep, const struct sl_tcp_address *peer)
{
    int err = agree_on_tls(ep, peer);

    if (err != 0)
        return err;
    agree(ep, peer);
    err = know_peer(ep, peer->token);
    ep->target_count = 0;
    ep->late = NULL;
    if (err != 0)
        return err;
    /* The end that does not dial knocks there, should the connection be lost. */
    err = choose_targets(ep, peer);
    return ep->dials ? err : 0;
}
