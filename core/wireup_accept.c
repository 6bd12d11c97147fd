/* SPDX-License-Identifier: Apache-2.0 */
/* The accepting end: lets peers in, checks their proofs, and offers endpoints. */
#include "core/wireup_link.h"

#include "core/err.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ACCEPTS_MAX 64

static bool make_room(struct sl_wireup *w)
{
    struct sl_pending *victim = sl_pending_victim(&w->set, w->now_ns);

    if (victim == NULL)
        return false;
    sl_pending_refused(&w->set, victim->from, "it said nothing useful while others waited",
                       w->now_ns);
    sl_wireup_link_free(sl_container_of(victim, struct sl_wireup_link, pending));
    return true;
}

unsigned sl_wireup_let_in(struct sl_wireup *w)
{
    unsigned moved = 0;

    while (moved < ACCEPTS_MAX) {
        struct sl_wireup_link *link;
        int err;

        if (sl_pending_full(&w->set) && !make_room(w))
            break;
        link = sl_wireup_link_new(w, false, UINT32_MAX);
        if (link == NULL)
            break;
        err = w->ops->accept(w->wire, &w->set, &link->pending, w->now_ns, &link->pipe);
        if (err != 0) {
            w->spare = link; /* polls are many, and mostly nobody is there */
            if ((err == -EMFILE || err == -ENFILE) && make_room(w))
                continue;
            break;
        }
        sl_wireup_link_add(link);
        moved++;
    }
    return moved;
}

void sl_wireup_show_late_out(struct sl_wireup *w)
{
    struct sl_pending *late;

    while ((late = sl_pending_late(&w->set, w->now_ns)) != NULL) {
        sl_pending_refused(&w->set, late->from, "it did not say who it is in time", w->now_ns);
        sl_wireup_link_free(sl_container_of(late, struct sl_wireup_link, pending));
    }
}

/* ---- words ---- */

static int say_refuse(struct sl_wireup_link *link, int code, const char *text)
{
    struct sl_wireup_word word = {.kind = SL_WIREUP_REFUSE, .code = code};

    snprintf(word.text, sizeof(word.text), "%s", text);
    return sl_wireup_say(link, &word);
}

/* The sender of this is not a peer of ours, or cannot be one. */
static int refuse(struct sl_wireup_link *link, int code, const char *why)
{
    struct sl_wireup *w = link->wireup;

    say_refuse(link, code, why);
    sl_pending_refused(&w->set, link->pending.from, why, w->now_ns);
    sl_wireup_link_free(link);
    return SL_WIREUP_GONE;
}

/* The next transport, or the end of it. */
static int offer(struct sl_wireup_link *link)
{
    const struct sl_wireup_owner *owner = &link->wireup->owner;
    struct sl_wireup_word word = {.kind = SL_WIREUP_OFFER};
    int err;

    while (link->left != 0) {
        word.transport = (uint8_t)(owner->prefer != NULL ? owner->prefer(owner->arg, link->left)
                                                         : (unsigned)__builtin_ctz(link->left));
        if (sl_wireup_ep_make(link, word.transport, &word.addr) == 0)
            return sl_wireup_say(link, &word);
    }
    err = link->err == -ENOMEM ? -ENOMEM : -EHOSTUNREACH;
    /* An owner that awaits dials does not fail for one: it may be dialed again. */
    say_refuse(link, err == -ENOMEM && link->awaited ? -EBUSY : -EHOSTUNREACH,
               sl_text_of(link->why));
    return sl_wireup_fail(link, err);
}

/* It is for this address, of the rank that it names. */
static bool is_for_us(const struct sl_wireup *w, const struct sl_wireup_hello *hello)
{
    const struct sl_wireup_owner *owner = &w->owner;

    if (memcmp(hello->to_id, w->addr.id, sizeof(w->addr.id)) != 0)
        return false;
    return owner->awaited != NULL ||
           (hello->to == owner->rank && hello->from < owner->size && hello->group == owner->group &&
            memcmp(hello->from_id, owner->addr(owner->arg, hello->from)->id,
                   sizeof(hello->from_id)) == 0);
}

static int greet(struct sl_wireup_link *link, const struct sl_wireup_hello *hello)
{
    struct sl_wireup *w = link->wireup;
    struct sl_wireup_word word = {.kind = SL_WIREUP_CHALLENGE};
    int err;

    if (hello->version != SL_WIREUP_VERSION)
        return refuse(link, -EPROTO,
                      "it speaks another version: install the same Sluice everywhere");
    if (!is_for_us(w, hello))
        return refuse(link, -ECONNREFUSED, "it looks for somebody else");
    link->hello = *hello;
    link->pending.standing = SL_PENDING_HEARD;
    err = w->ops->random(w->wire, link->nonce, sizeof(link->nonce))
              ?: sl_wireup_know_key(link)
              ?: sl_wireup_proof(link->key, true, hello, link->nonce, word.proof);
    if (err != 0)
        return err;
    memcpy(word.nonce, link->nonce, sizeof(word.nonce));
    return sl_wireup_say(link, &word);
}

/* Of two ranks that dial each other the higher one's dial counts. */
static int take_rank(struct sl_wireup_link *link)
{
    const struct sl_wireup_owner *owner = &link->wireup->owner;
    uint32_t peer = link->hello.from;
    struct sl_wireup_link *other = sl_wireup_link_find(link->wireup, peer, link);

    if (owner->connected(owner->arg, peer)) {
        say_refuse(link, -EPROTO, "it is connected already");
        return -ECONNRESET;
    }
    if (other != NULL &&
        (other->committed || (other->dials && peer < owner->rank && other->heard))) {
        say_refuse(link, -EBUSY, "the other dial counts");
        return -ECONNRESET;
    }
    if (other != NULL) {
        link->wanted = other->wanted;
        link->patient = other->patient;
        sl_wireup_link_free(other);
    }
    link->peer = peer;
    return 0;
}

static int take_awaited(struct sl_wireup_link *link)
{
    const struct sl_wireup_owner *owner = &link->wireup->owner;
    int err = owner->awaited(owner->arg, &link->hello, &link->peer);

    link->awaited = err == 0;
    if (err == 0)
        return 0;
    say_refuse(link, err == -ENOMEM ? -EBUSY : err,
               err == -ECONNREFUSED ? "nobody awaits it" : sluice_last_error());
    return -ECONNRESET;
}

static int take_proof(struct sl_wireup_link *link, const struct sl_wireup_word *word)
{
    struct sl_wireup *w = link->wireup;
    const struct sl_wireup_owner *owner = &w->owner;
    int err = sl_wireup_check_proof(link, false, word->proof);

    if (err == -EACCES)
        return refuse(link, -EPROTO,
                      "it cannot prove that it is of this job: set the same SLUICE_SECRET on all "
                      "ranks, or none");
    err = err ?: sl_wireup_seal(link);
    if (err != 0)
        return err;
    sl_pending_remove(&w->set, &link->pending);
    link->proved = true;
    err = owner->awaited != NULL ? take_awaited(link) : take_rank(link);
    if (err != 0)
        return err;
    link->deadline_ns = w->now_ns + w->patience_ns;
    link->left = owner->candidates(owner->arg, link->peer) & link->hello.transports;
    return offer(link);
}

/* It could have read the hello of a peer: that is for the owner to weigh. */
static int take_stranger(struct sl_wireup_link *link)
{
    struct sl_wireup *w = link->wireup;

    if (w->owner.stranger != NULL)
        w->owner.stranger(w->owner.arg, &link->hello, w->ops->to(link->pipe));
    return refuse(link, -EPROTO,
                  "it has another SLUICE_SECRET, or none, or this rank has none: set the same on "
                  "all ranks");
}

int sl_wireup_accept_word(struct sl_wireup_link *link, const struct sl_wireup_word *word)
{
    bool current = link->ep != NULL && word->transport == link->transport;
    int err;

    if (link->pending.standing == SL_PENDING_SILENT)
        return word->kind == SL_WIREUP_HELLO
                   ? greet(link, &word->hello)
                   : refuse(link, -EPROTO, "it does not begin with a hello");
    if (!link->proved && word->kind == SL_WIREUP_REFUSE && word->code == -EACCES)
        return take_stranger(link);
    if (!link->proved)
        return word->kind == SL_WIREUP_PROOF ? take_proof(link, word)
                                             : refuse(link, -EPROTO, "it goes on without a proof");
    link->deadline_ns = link->wireup->now_ns + link->wireup->patience_ns;
    switch (word->kind) {
    case SL_WIREUP_ANSWER:
        if (!current)
            return 0; /* to an offer that has failed here meanwhile */
        if (sl_wireup_ep_connect(link, &word->addr) == 0)
            return 0;
        err = sl_wireup_say_failed(link, word->transport);
        return err != 0 ? err : offer(link);
    case SL_WIREUP_UP: link->is_up |= current; return 0;
    case SL_WIREUP_FAILED:
        if (!current)
            return 0;
        sl_wireup_peer_failed(link, word);
        return offer(link);
    case SL_WIREUP_REFUSE:
        sl_text_set(&link->why, "%s", word->text);
        return sl_wireup_fail(link, -EHOSTUNREACH);
    default: return -EPROTO;
    }
}

static int commit(struct sl_wireup_link *link)
{
    struct sl_wireup_word done = {.kind = SL_WIREUP_DONE, .transport = link->transport};
    int err = sl_wireup_say(link, &done);

    link->committed = true;
    if (err != 0)
        return err;
    return link->out_len == 0 ? sl_wireup_hand_over(link) : 0;
}

int sl_wireup_accept_settle(struct sl_wireup_link *link)
{
    uint8_t transport = link->transport;
    int state, err;

    if (link->committed)
        return link->out_len == 0 ? sl_wireup_hand_over(link) : 0;
    state = sl_wireup_ep_state(link);
    if (state < 0) {
        err = sl_wireup_say_failed(link, transport);
        return err != 0 ? err : offer(link);
    }
    return state == 1 && link->is_up && !link->awaited ? commit(link) : 0;
}

bool sl_wireup_accept_waits(const struct sl_wireup_link *link)
{
    return link->awaited && !link->committed && link->is_up && link->ep != NULL &&
           link->connecting.status == 0 && link->lost == 0;
}

int sl_wireup_finish(struct sl_wireup *w, uint32_t peer)
{
    struct sl_wireup_link *link = sl_wireup_link_find(w, peer, NULL);

    if (link == NULL || !sl_wireup_accept_waits(link))
        return -EAGAIN;
    if (commit(link) < 0)
        sl_wireup_link_free(link);
    return 0;
}
