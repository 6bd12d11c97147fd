/* SPDX-License-Identifier: Apache-2.0 */
/* Words over a socket that never blocks, and endpoints that come about or do not. */
#include "tools/nccl/link.h"

#include "core/log.h"
#include "core/netif.h"

#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void sl_nccl_link_init(struct sl_nccl_link *link, struct sl_nccl_engine *engine, bool is_send)
{
    memset(link, 0, offsetof(struct sl_nccl_link, in));
    link->engine = engine;
    link->fd = -1;
    link->is_send = is_send;
}

void sl_nccl_link_fini(struct sl_nccl_link *link)
{
    sl_nccl_link_drop(link);
    if (link->fd >= 0)
        close(link->fd);
    link->fd = -1;
    link->in_len = link->out_len = 0;
    link->sealed = false;
    explicit_bzero(link->key_in, sizeof(link->key_in));
    explicit_bzero(link->key_out, sizeof(link->key_out));
    explicit_bzero(link->link_key, sizeof(link->link_key));
}

/* ---- words ---- */

int sl_nccl_link_flush(struct sl_nccl_link *link)
{
    while (link->out_len > 0) {
        ssize_t n = send(link->fd, link->out, link->out_len, MSG_DONTWAIT | MSG_NOSIGNAL);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return 0;
        if (n < 0)
            return sl_fail(-ECONNRESET, "the other end of the handshake is gone: %s",
                           sluice_strerror(-errno));
        link->out_len -= (size_t)n;
        memmove(link->out, link->out + n, link->out_len);
    }
    return 1;
}

int sl_nccl_link_say(struct sl_nccl_link *link, const struct sl_nccl_word *word)
{
    uint8_t *out = link->out + link->out_len;
    int sent, len;

    if (SL_NCCL_SAY_MAX - link->out_len < SL_NCCL_WORD_MAX + SL_SEAL_BYTES)
        return sl_fail(-ECONNRESET, "the other end of the handshake does not listen");
    len = (int)sl_nccl_word_encode(word, out);
    if (link->sealed)
        len = sl_nccl_word_seal(out, (size_t)len, link->key_out, link->number_out++);
    if (len < 0)
        return len;
    link->out_len += (size_t)len;
    sent = sl_nccl_link_flush(link);
    return sent < 0 ? sent : 0;
}

int sl_nccl_link_failed(struct sl_nccl_link *link, uint8_t way)
{
    struct sl_nccl_word word = {.kind = SL_NCCL_FAILED, .way = way};

    snprintf(word.text, sizeof(word.text), "%s", link->why);
    return sl_nccl_link_say(link, &word);
}

/* As sl_nccl_word_decode(), of what has come; sealed words are opened first. */
static int decode(struct sl_nccl_link *link, struct sl_nccl_word *out)
{
    int took, err;

    if (!link->sealed)
        return sl_nccl_word_decode(link->in, link->in_len, out);
    took = sl_nccl_word_unseal(link->in, link->in_len, link->key_in, link->number_in);
    if (took <= 0)
        return took;
    link->number_in++;
    err = sl_nccl_word_decode(link->in, (size_t)took - SL_SEAL_BYTES, out);
    return err < 0 ? err : took;
}

int sl_nccl_link_know(struct sl_nccl_link *link, const uint8_t secret[SL_NCCL_SECRET_BYTES])
{
    const struct sl_worker *worker = &link->engine->worker;

    return sl_nccl_link_key(worker->has_session ? worker->session : NULL, secret, link->link_key);
}

int sl_nccl_link_check(struct sl_nccl_link *link, bool by_listener,
                       const uint8_t proof[SL_DIGEST_BYTES])
{
    uint8_t want[SL_DIGEST_BYTES];
    int err = sl_nccl_proof_make(link->link_key, by_listener, &link->hello, link->nonce, want);

    if (err == 0 && !sl_digest_equal(want, proof, sizeof(want)))
        err = sl_fail(-EPROTO,
                      "it cannot prove that it knows the handle and the job's secret: set the same "
                      "SLUICE_SECRET on all ranks, or none");
    return err;
}

int sl_nccl_handle_proof(const struct sl_nccl_link *link, bool by_listener,
                         const uint8_t secret[SL_NCCL_SECRET_BYTES], uint8_t out[SL_DIGEST_BYTES])
{
    uint8_t key[SL_DIGEST_BYTES];

    return sl_nccl_link_key(NULL, secret, key)
               ?: sl_nccl_proof_make(key, by_listener, &link->hello, link->nonce, out);
}

bool sl_nccl_handle_known(const struct sl_nccl_link *link, bool by_listener,
                          const uint8_t secret[SL_NCCL_SECRET_BYTES],
                          const uint8_t proof[SL_DIGEST_BYTES])
{
    uint8_t want[SL_DIGEST_BYTES];

    return sl_nccl_handle_proof(link, by_listener, secret, want) == 0 &&
           sl_digest_equal(want, proof, sizeof(want));
}

int sl_nccl_link_seal(struct sl_nccl_link *link)
{
    uint8_t *up = link->is_send ? link->key_out : link->key_in;
    uint8_t *down = link->is_send ? link->key_in : link->key_out;
    int err = sl_nccl_word_keys(link->link_key, &link->hello, link->nonce, up, down);

    link->sealed = err == 0;
    link->number_in = link->number_out = 0;
    return err;
}

int sl_nccl_link_hear(struct sl_nccl_link *link, struct sl_nccl_word *out)
{
    ssize_t n = 0;
    int took = decode(link, out);

    if (took == 0) {
        n = recv(link->fd, link->in + link->in_len, sizeof(link->in) - link->in_len, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return 0;
        if (n <= 0)
            return sl_fail(-ECONNRESET, "the other end of the handshake hung up%s%s",
                           n < 0 ? ": " : "", n < 0 ? sluice_strerror(-errno) : "");
        link->in_len += (size_t)n;
        took = decode(link, out);
    }
    if (took <= 0)
        return took;
    link->in_len -= (size_t)took;
    memmove(link->in, link->in + took, link->in_len);
    return 1;
}

/* ---- endpoint ---- */

/* The transport has just said why. */
static void connect_over(struct sl_req *req)
{
    struct sl_nccl_link *link = sl_container_of(req, struct sl_nccl_link, connecting);

    if (req->status != 0)
        snprintf(link->why, sizeof(link->why), "%s", sluice_last_error());
}

static int note(struct sl_nccl_link *link, int err)
{
    snprintf(link->why, sizeof(link->why), "%s", sluice_last_error());
    return err;
}

/* By the address it has in the handshake. */
static void name_peer(struct sl_nccl_link *link)
{
    struct sockaddr_storage addr;
    socklen_t len = sizeof(addr);
    char host[INET6_ADDRSTRLEN] = "an unknown address";

    if (getpeername(link->fd, (struct sockaddr *)&addr, &len) == 0)
        sl_sockaddr_host(&addr, host, sizeof(host));
    snprintf(link->comm->peer_name, sizeof(link->comm->peer_name), "the peer at %s", host);
}

int sl_nccl_link_ep(struct sl_nccl_link *link, uint8_t way, struct sl_addr *out)
{
    struct sl_nccl_engine *engine = link->engine;
    struct sl_nccl_way *candidate;
    int err = sl_nccl_way_open(engine, way, &candidate);

    link->ways_left &= ~(UINT64_C(1) << way);
    if (err == 0 && link->comm == NULL)
        err = sl_nccl_comm_new(engine, link->is_send, &link->comm);
    if (err == 0)
        err = candidate->ops->ep_create(candidate->iface, &link->comm->ep);
    if (err != 0)
        return note(link, err);
    link->comm->ep->owner = link->comm;
    link->comm->ep->peer_name = link->comm->peer_name;
    name_peer(link);
    link->way = way;
    link->connecting = (struct sl_req){.status = SL_PENDING, .done = connect_over};
    err = candidate->ops->ep_addr(link->comm->ep, out);
    if (err == 0)
        return 0;
    note(link, err);
    sl_nccl_link_drop(link);
    return err;
}

int sl_nccl_link_connect(struct sl_nccl_link *link, const struct sl_addr *peer)
{
    struct sl_ep *ep = link->comm->ep;
    int err = ep->iface->ops->ep_connect(ep, peer, &link->connecting);

    if (err >= 0)
        return 0;
    note(link, err);
    sl_nccl_link_drop(link);
    return err;
}

int sl_nccl_link_state(const struct sl_nccl_link *link)
{
    if (link->connecting.status == SL_PENDING)
        return 0;
    if (link->connecting.status != 0)
        return link->connecting.status;
    return link->comm->lost != 0 ? link->comm->lost : 1;
}

void sl_nccl_link_drop(struct sl_nccl_link *link)
{
    char why[SL_NCCL_WHY];

    if (link->comm == NULL)
        return;
    /* Cutting ends the request, whose text is not the reason. */
    memcpy(why, link->why, sizeof(why));
    if (link->comm->lost != 0 && why[0] == '\0')
        memcpy(why, link->comm->why, sizeof(why));
    sl_nccl_comm_free(link->comm);
    link->comm = NULL;
    memcpy(link->why, why, sizeof(why));
}

int sl_nccl_link_take(struct sl_nccl_link *link, struct sl_nccl_comm **out)
{
    const struct sl_ep *ep = link->comm->ep;
    int err = sl_nccl_comm_start(link->comm);
    char how[256];

    if (err != 0)
        return note(link, err);
    ep->iface->ops->ep_describe(ep, how, sizeof(how));
    sl_info("nccl", "device %u %s %s by %s", link->engine->dev,
            link->is_send ? "sends to" : "receives from", link->comm->peer_name, how);
    *out = link->comm;
    link->comm = NULL;
    return 0;
}
