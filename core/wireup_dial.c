/* SPDX-License-Identifier: Apache-2.0 */
/* The dialing end of a connection under way. */
#include "core/wireup_link.h"

#include "core/err.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RETRY_NS (20 * SL_NS_PER_MS)
#define PLACE_NS (3 * SL_NS_PER_S) /* for one place to take a HELLO, at most */

void sl_wireup_dial_rest(struct sl_wireup_link *link, int err)
{
    if (link->why == NULL && link->reason == NULL)
        sl_text_set(&link->reason, "%s", sluice_strerror(err));
    sl_wireup_link_hang_up(link);
    link->err = link->err == 0 ? err : link->err;
    link->place++;
    link->refused += err == -ECONNREFUSED;
    link->next_ns = link->wireup->now_ns + RETRY_NS;
}

/* All have a turn before the whole time is over. */
static uint64_t place_ns(const struct sl_wireup *w, const struct sl_wireup_addr *to)
{
    uint64_t share_ns = w->patience_ns / (to->place_count + 1u);

    return share_ns < PLACE_NS ? share_ns : PLACE_NS;
}

/* No place is left: it begins with the first again, unless that is of no use. */
static int end_round(struct sl_wireup_link *link)
{
    if (link->place == 0) {
        sl_text_set(&link->why, "; it has no address that this rank can reach");
        return sl_wireup_fail(link, -EHOSTUNREACH);
    }
    if (link->alien) {
        sl_text_set(&link->why,
                    "; who answers there cannot prove that it is of this job: set the same "
                    "SLUICE_SECRET on all ranks, or none");
        return sl_wireup_fail(link, -EACCES);
    }
    if (link->refused == link->place) /* it listened before anybody knew its address */
        return sl_wireup_fail(link, -ECONNREFUSED);
    link->place = link->refused = 0;
    return 0;
}

int sl_wireup_dial(struct sl_wireup_link *link)
{
    struct sl_wireup *w = link->wireup;
    const struct sl_wireup_owner *owner = &w->owner;
    const struct sl_wireup_addr *to = owner->addr(owner->arg, link->peer);
    struct sl_wireup_word word = {.kind = SL_WIREUP_HELLO};
    int err = w->ops->dial(w->wire, to, link->place, &link->pipe);

    if (err == -ENODEV)
        return end_round(link);
    if (err != 0) {
        sl_text_set(&link->reason, "%s", sluice_last_error());
        link->pipe = NULL;
        sl_wireup_dial_rest(link, err);
        return 0;
    }
    link->left = owner->candidates(owner->arg, link->peer);
    free(link->why);
    link->why = NULL;
    link->hello = (struct sl_wireup_hello){.version = SL_WIREUP_VERSION,
                                           .from = owner->rank,
                                           .to = link->peer,
                                           .transports = link->left,
                                           .group = owner->group};
    if (owner->greet != NULL)
        owner->greet(owner->arg, link->peer, &link->hello);
    memcpy(link->hello.from_id, w->addr.id, sizeof(link->hello.from_id));
    memcpy(link->hello.to_id, to->id, sizeof(link->hello.to_id));
    err = w->ops->random(w->wire, link->hello.nonce, sizeof(link->hello.nonce));
    if (err != 0)
        return err;
    word.hello = link->hello;
    link->next_ns = w->now_ns + place_ns(w, to);
    return sl_wireup_say(link, &word);
}

/* Another secret, or another process: another place may be right. It hears no proof of ours, at
 * which it could try guesses. */
static int meet_stranger(struct sl_wireup_link *link)
{
    struct sl_wireup_word word = {.kind = SL_WIREUP_REFUSE, .code = -EACCES};

    link->alien = true;
    snprintf(word.text, sizeof(word.text), "another secret");
    sl_wireup_say(link, &word);
    return -ECONNREFUSED;
}

static int take_challenge(struct sl_wireup_link *link, const struct sl_wireup_word *word)
{
    struct sl_wireup_word proof = {.kind = SL_WIREUP_PROOF};
    int err;

    memcpy(link->nonce, word->nonce, sizeof(link->nonce));
    err = sl_wireup_know_key(link) ?: sl_wireup_check_proof(link, true, word->proof);
    if (err == -EACCES)
        return meet_stranger(link);
    err = err ?: sl_wireup_proof(link->key, false, &link->hello, link->nonce, proof.proof);
    err = err ?: sl_wireup_say(link, &proof);
    return err ?: sl_wireup_seal(link);
}

static int take_offer(struct sl_wireup_link *link, const struct sl_wireup_word *word)
{
    struct sl_wireup_word answer = {.kind = SL_WIREUP_ANSWER, .transport = word->transport};
    int err;

    sl_wireup_ep_drop(link);
    if (word->transport >= 32 || (link->left & 1u << word->transport) == 0)
        return -EPROTO;
    if (sl_wireup_ep_make(link, word->transport, &answer.addr) != 0)
        return sl_wireup_say_failed(link, word->transport);
    err = sl_wireup_say(link, &answer);
    if (err == 0 && sl_wireup_ep_connect(link, &word->addr) != 0)
        err = sl_wireup_say_failed(link, word->transport);
    return err;
}

static int take_refuse(struct sl_wireup_link *link, const struct sl_wireup_word *word)
{
    if (word->code == -EBUSY)
        return -EBUSY;
    if (word->code == -ECONNREFUSED) {
        sl_text_set(&link->reason, "nobody awaits it at %s", link->wireup->ops->to(link->pipe));
        return -ECONNREFUSED;
    }
    sl_text_set(&link->why, "%s%s", word->text[0] == ';' ? "" : "; it says: ", word->text);
    return sl_wireup_fail(link, word->code == -EPROTO  ? -EPROTO
                                : link->err == -ENOMEM ? -ENOMEM
                                                       : -EHOSTUNREACH);
}

int sl_wireup_dial_word(struct sl_wireup_link *link, const struct sl_wireup_word *word)
{
    bool current = link->ep != NULL && word->transport == link->transport;

    if (!link->sealed && word->kind != SL_WIREUP_CHALLENGE && word->kind != SL_WIREUP_REFUSE)
        return -EPROTO;
    if (word->kind == SL_WIREUP_REFUSE)
        return take_refuse(link, word);
    link->heard = true;
    link->deadline_ns = link->wireup->now_ns + link->wireup->patience_ns;
    switch (word->kind) {
    case SL_WIREUP_CHALLENGE: return link->sealed ? -EPROTO : take_challenge(link, word);
    case SL_WIREUP_OFFER: return take_offer(link, word);
    case SL_WIREUP_FAILED:
        if (!current)
            return 0;
        sl_wireup_peer_failed(link, word);
        return 0;
    case SL_WIREUP_DONE: return current && link->is_up ? sl_wireup_hand_over(link) : -EPROTO;
    default: return -EPROTO;
    }
}

int sl_wireup_dial_settle(struct sl_wireup_link *link)
{
    struct sl_wireup_word up = {.kind = SL_WIREUP_UP, .transport = link->transport};
    int state = sl_wireup_ep_state(link);

    if (state < 0)
        return sl_wireup_say_failed(link, up.transport);
    if (state == 0 || link->is_up)
        return 0;
    link->is_up = true;
    return sl_wireup_say(link, &up);
}
