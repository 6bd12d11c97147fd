/* SPDX-License-Identifier: Apache-2.0 */
/* One connection under way: words over its pipe, and the endpoint that it is for. */
#include "core/wireup_link.h"

#include "core/err.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sl_wireup_link *sl_wireup_link_new(struct sl_wireup *w, bool dials, uint32_t peer)
{
    struct sl_wireup_link *link = w->spare != NULL ? w->spare : malloc(sizeof(*link));

    w->spare = NULL;
    if (link == NULL)
        return NULL;
    memset(link, 0, offsetof(struct sl_wireup_link, in));
    link->wireup = w;
    link->dials = dials;
    link->peer = peer;
    link->deadline_ns = w->now_ns + w->patience_ns;
    return link;
}

void sl_wireup_link_add(struct sl_wireup_link *link)
{
    sl_list_push_back(&link->wireup->links, &link->node);
    link->wireup->count++;
}

struct sl_wireup_link *sl_wireup_link_find(const struct sl_wireup *w, uint32_t peer,
                                           const struct sl_wireup_link *but)
{
    sl_list_foreach(&w->links, node)
    {
        struct sl_wireup_link *link = sl_container_of(node, struct sl_wireup_link, node);

        if (link != but && link->peer == peer)
            return link;
    }
    return NULL;
}

void sl_wireup_ep_drop(struct sl_wireup_link *link)
{
    struct sl_ep *ep = link->ep;

    link->ep = NULL; /* what ends with it has nothing to say any more */
    link->is_up = false;
    link->lost = 0;
    if (ep != NULL)
        ep->iface->ops->ep_destroy(ep);
}

void sl_wireup_link_hang_up(struct sl_wireup_link *link)
{
    sl_wireup_ep_drop(link);
    if (link->pipe != NULL)
        link->wireup->ops->hang_up(link->pipe);
    link->pipe = NULL;
    link->in_len = link->out_len = 0;
    link->sealed = link->heard = link->proved = link->committed = false;
}

void sl_wireup_link_free(struct sl_wireup_link *link)
{
    struct sl_wireup *w = link->wireup;

    if (!link->dials && !link->proved)
        sl_pending_remove(&w->set, &link->pending);
    sl_wireup_link_hang_up(link);
    sl_list_remove(&link->node);
    w->count--;
    if (link->awaited)
        w->owner.left(w->owner.arg, link->peer);
    free(link->reason);
    free(link->why);
    explicit_bzero(link, offsetof(struct sl_wireup_link, in));
    if (w->spare == NULL)
        w->spare = link;
    else
        free(link);
}

/* The endpoint of this transport does not come about, for the reason in link->reason. */
static void note_failed(struct sl_wireup_link *link, uint8_t transport, int err)
{
    const struct sl_wireup_owner *owner = &link->wireup->owner;

    if (err == -ENOMEM || link->err == 0)
        link->err = err;
    sl_text_set(&link->why, "%s; %s: %s", sl_text_of(link->why), owner->name(owner->arg, transport),
                sl_text_of(link->reason));
}

int sl_wireup_fail(struct sl_wireup_link *link, int err)
{
    const struct sl_wireup_owner *owner = &link->wireup->owner;
    uint32_t peer = link->peer;
    char *why;

    if (link->why == NULL && link->reason != NULL)
        sl_text_set(&link->why, "; %s", link->reason);
    why = link->why;
    link->why = NULL;
    link->awaited = false;
    sl_wireup_link_free(link);
    owner->failed(owner->arg, peer, err, sl_text_of(why));
    free(why);
    return SL_WIREUP_GONE;
}

/* ---- words ---- */

int sl_wireup_flush(struct sl_wireup_link *link)
{
    while (link->out_len > 0) {
        ssize_t n = link->wireup->ops->send(link->pipe, link->out, link->out_len);

        if (n == -EAGAIN)
            return 0;
        if (n < 0)
            return (int)n;
        link->out_len -= (size_t)n;
        memmove(link->out, link->out + n, link->out_len);
    }
    return 0;
}

int sl_wireup_say(struct sl_wireup_link *link, const struct sl_wireup_word *word)
{
    uint8_t bytes[SL_WIREUP_WORD_MAX + SL_SEAL_BYTES];
    int len = (int)sl_wireup_word_encode(word, bytes);

    sl_assert(link->sealed || len <= SL_WIREUP_PLAIN_MAX);
    if (link->sealed)
        len = sl_wireup_word_seal(bytes, (size_t)len, link->key_out, link->number_out++);
    if (len < 0)
        return len;
    if (sizeof(link->out) - link->out_len < (size_t)len)
        return -ECONNRESET; /* it does not listen */
    memcpy(link->out + link->out_len, bytes, (size_t)len);
    link->out_len += (size_t)len;
    return sl_wireup_flush(link);
}

int sl_wireup_say_failed(struct sl_wireup_link *link, uint8_t transport)
{
    struct sl_wireup_word word = {.kind = SL_WIREUP_FAILED, .transport = transport};

    snprintf(word.text, sizeof(word.text), "%s", sl_text_of(link->reason));
    return sl_wireup_say(link, &word);
}

int sl_wireup_hear(struct sl_wireup_link *link, struct sl_wireup_word *out)
{
    const struct sl_wire_ops *ops = link->wireup->ops;

    for (;;) {
        int len = sl_wireup_word_length(link->in, link->in_len, link->sealed), plain = len, err;
        ssize_t n;

        if (len < 0)
            return len;
        if (len > 0 && link->in_len >= (size_t)len) {
            if (link->sealed)
                plain = sl_wireup_word_open(link->in, (size_t)len, link->key_in, link->number_in++);
            err = plain < 0 ? plain : sl_wireup_word_decode(link->in, (size_t)plain, out);
            link->in_len -= (size_t)len;
            memmove(link->in, link->in + len, link->in_len);
            return err < 0 ? err : 1;
        }
        n = ops->recv(link->pipe, link->in + link->in_len, sizeof(link->in) - link->in_len);
        if (n == -EAGAIN)
            return 0;
        if (n <= 0)
            return n == 0 ? -ECONNRESET : (int)n;
        link->in_len += (size_t)n;
    }
}

int sl_wireup_seal(struct sl_wireup_link *link)
{
    uint8_t *up = link->dials ? link->key_out : link->key_in;
    uint8_t *down = link->dials ? link->key_in : link->key_out;
    int err = sl_wireup_seal_keys(link->key, &link->hello, link->nonce, up, down);

    link->sealed = err == 0;
    link->number_in = link->number_out = 0;
    return err;
}

int sl_wireup_know_key(struct sl_wireup_link *link)
{
    const struct sl_worker *worker = link->wireup->worker;

    return sl_wireup_key(worker->has_session ? worker->session : NULL, &link->hello, link->key);
}

int sl_wireup_check_proof(const struct sl_wireup_link *link, bool by_acceptor,
                          const uint8_t proof[SL_DIGEST_BYTES])
{
    uint8_t want[SL_DIGEST_BYTES];
    int err = sl_wireup_proof(link->key, by_acceptor, &link->hello, link->nonce, want);

    return err ?: sl_digest_equal(want, proof, sizeof(want)) ? 0 : -EACCES;
}

/* ---- endpoints ---- */

/* The transport has just said why. */
static void connect_over(struct sl_req *req)
{
    struct sl_wireup_link *link = sl_container_of(req, struct sl_wireup_link, connecting);

    if (req->status != 0 && link->ep != NULL)
        sl_text_set(&link->reason, "%s", sluice_last_error());
}

int sl_wireup_ep_make(struct sl_wireup_link *link, uint8_t transport, struct sl_addr *out)
{
    const struct sl_wireup_owner *owner = &link->wireup->owner;
    struct sl_ep *ep;
    int err = owner->ep_create(owner->arg, transport, link->peer, &ep);

    link->left &= ~(1u << transport);
    link->transport = transport;
    free(link->reason);
    link->reason = NULL;
    if (err == 0) {
        link->ep = ep;
        link->lost = 0;
        link->connecting = (struct sl_req){.status = SL_PENDING, .done = connect_over};
        memset(out, 0, sizeof(*out));
        err = ep->iface->ops->ep_addr(ep, out);
    }
    if (err == 0)
        return 0;
    sl_text_set(&link->reason, "%s", sluice_last_error());
    sl_wireup_ep_drop(link);
    note_failed(link, transport, err);
    return err;
}

int sl_wireup_ep_connect(struct sl_wireup_link *link, const struct sl_addr *addr)
{
    int err = link->ep->iface->ops->ep_connect(link->ep, addr, &link->connecting);

    if (err >= 0)
        return 0;
    sl_text_set(&link->reason, "%s", sluice_last_error());
    sl_wireup_ep_drop(link);
    note_failed(link, link->transport, err);
    return err;
}

int sl_wireup_ep_state(struct sl_wireup_link *link)
{
    int status = link->connecting.status;

    if (link->ep == NULL)
        return 0;
    if (link->lost == 0 && status == SL_PENDING)
        return 0;
    if (link->lost == 0 && status == 0)
        return 1;
    if (link->lost != 0)
        status = link->lost;
    if (link->ep->iface->lacked_memory)
        status = -ENOMEM;
    if (link->reason == NULL)
        sl_text_set(&link->reason, "%s", sluice_strerror(status));
    sl_wireup_ep_drop(link);
    note_failed(link, link->transport, status);
    return status;
}

int sl_wireup_hand_over(struct sl_wireup_link *link)
{
    const struct sl_wireup_owner *owner = &link->wireup->owner;
    struct sl_ep *ep = link->ep;
    uint32_t peer = link->peer;

    link->ep = NULL;
    link->awaited = false;
    sl_wireup_link_free(link);
    owner->up(owner->arg, peer, ep);
    return SL_WIREUP_GONE;
}

void sl_wireup_peer_failed(struct sl_wireup_link *link, const struct sl_wireup_word *word)
{
    int err = link->ep->iface->lacked_memory ? -ENOMEM : -EHOSTUNREACH;

    sl_wireup_ep_drop(link);
    sl_text_set(&link->reason, "%s", word->text);
    note_failed(link, word->transport, err);
}

void sl_wireup_lost(struct sl_wireup *w, uint32_t peer, const char *why)
{
    struct sl_wireup_link *link = sl_wireup_link_find(w, peer, NULL);

    if (link == NULL || link->ep == NULL)
        return;
    link->lost = -ECONNRESET;
    sl_text_set(&link->reason, "%s", why);
}

void sl_wireup_drop(struct sl_wireup *w, uint32_t peer)
{
    struct sl_wireup_link *link = sl_wireup_link_find(w, peer, NULL);

    if (link == NULL)
        return;
    link->awaited = false;
    sl_wireup_link_free(link);
}

const char *sl_wireup_at(const struct sl_wireup *w, uint32_t peer)
{
    const struct sl_wireup_link *link = sl_wireup_link_find(w, peer, NULL);

    return link != NULL && link->pipe != NULL ? w->ops->to(link->pipe) : "";
}
