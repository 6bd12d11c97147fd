/* SPDX-License-Identifier: Apache-2.0 */
/* Dials, accepts, and swaps endpoint addresses until an endpoint is up; wireup.h draws it. */
#include "core/wireup.h"

#include "core/config.h"
#include "core/err.h"
#include "core/log.h"
#include "core/wireup_word.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PENDING_MAX 128
#define ACCEPTS_MAX 64
#define RETRY_NS (20 * SL_NS_PER_MS)
#define YIELD_NS (20 * SL_NS_PER_MS) /* the lower rank's dial: the other one's is on its way */
#define PLACE_NS (3 * SL_NS_PER_S)   /* for one place to take a HELLO */
#define POLL_IDLE_NS (200 * 1000)    /* between polls for peers that dial */
#define POLL_BUSY_NS (20 * 1000)
#define OUT_MAX (4 * (SL_WIREUP_WORD_MAX + SL_SEAL_BYTES))

struct link {
    struct sl_node node; /* wireup->links */
    struct sl_wireup *wireup;
    struct sl_pending pending; /* in the set until its proof is there */
    bool dials;                /* else it accepts */
    bool wanted;               /* this rank needs the endpoint */
    bool patient, heard, proved;
    uint32_t peer; /* UINT32_MAX: not known yet */
    struct sl_pipe *pipe;
    unsigned place, refused;       /* refused: places of this round where nobody listens */
    uint64_t deadline_ns, next_ns; /* of the whole; of the next dial, or for HELLO to go */
    uint32_t left;                 /* transports to be tried */
    bool is_up, committed;         /* UP was said or heard; DONE is on its way */
    uint8_t transport;
    struct sl_ep *ep;
    struct sl_req connecting;
    int lost; /* of ep: why it is of no use */
    int err;  /* worst of what failed here */
    struct sl_wireup_hello hello;
    uint8_t nonce[SL_WIREUP_NONCE_BYTES], key[SL_DIGEST_BYTES];
    bool sealed;
    uint8_t key_in[SL_DIGEST_BYTES], key_out[SL_DIGEST_BYTES];
    uint64_t number_in, number_out;
    char reason[SL_WIREUP_WHY]; /* of the endpoint under way */
    char why[SL_WIREUP_WHY];    /* "; shm: ...; tcp: ..." of all that failed */
    size_t in_len, out_len;
    uint8_t in[SL_WIREUP_WORD_MAX + SL_SEAL_BYTES], out[OUT_MAX];
};

struct sl_wireup {
    struct sl_worker *worker;
    const struct sl_wire_ops *ops;
    struct sl_wireup_owner owner;
    struct sl_wireup_addr addr;
    struct sl_wire *wire;
    struct sl_node links;
    unsigned count;
    struct link *spare; /* for the next pipe */
    uint64_t now_ns, next_poll_ns, patience_ns;
    struct sl_pending_set set;
    struct sl_pending_log log;
};

/* ---- links ---- */

/* Not listed yet: see link_add(). */
static struct link *link_new(struct sl_wireup *w, bool dials, uint32_t peer)
{
    struct link *link = w->spare != NULL ? w->spare : malloc(sizeof(*link));

    w->spare = NULL;
    if (link == NULL)
        return NULL;
    memset(link, 0, offsetof(struct link, in));
    link->wireup = w;
    link->dials = dials;
    link->peer = peer;
    link->deadline_ns = w->now_ns + w->patience_ns;
    return link;
}

static void link_add(struct link *link)
{
    sl_list_push_back(&link->wireup->links, &link->node);
    link->wireup->count++;
}

static struct link *find(const struct sl_wireup *w, uint32_t peer, const struct link *but)
{
    sl_list_foreach(&w->links, node)
    {
        struct link *link = sl_container_of(node, struct link, node);

        if (link != but && link->peer == peer)
            return link;
    }
    return NULL;
}

static void drop_ep(struct link *link)
{
    struct sl_ep *ep = link->ep;

    link->ep = NULL; /* what ends with it has nothing to say any more */
    link->is_up = false;
    link->lost = 0;
    if (ep != NULL)
        ep->iface->ops->ep_destroy(ep);
}

static void hang_up(struct link *link)
{
    drop_ep(link);
    if (link->pipe != NULL)
        link->wireup->ops->hang_up(link->pipe);
    link->pipe = NULL;
    link->in_len = link->out_len = 0;
    link->sealed = link->heard = link->proved = link->committed = false;
}

static void link_free(struct link *link)
{
    if (!link->dials && !link->proved)
        sl_pending_remove(&link->wireup->set, &link->pending);
    hang_up(link);
    sl_list_remove(&link->node);
    link->wireup->count--;
    explicit_bzero(link, offsetof(struct link, in));
    free(link);
}

/* The endpoint of this transport does not come about, for the reason in link->reason. */
static void note_failed(struct link *link, uint8_t transport, int err)
{
    const struct sl_wireup_owner *owner = &link->wireup->owner;
    size_t len = strlen(link->why);

    if (err == -ENOMEM || link->err == 0)
        link->err = err;
    snprintf(link->why + len, sizeof(link->why) - len, "; %s: %s",
             owner->name(owner->arg, transport), link->reason);
}

/* Tells the owner, and is gone. */
static int fail(struct link *link, int err)
{
    const struct sl_wireup_owner *owner = &link->wireup->owner;
    char why[SL_WIREUP_WHY];
    uint32_t peer = link->peer;

    snprintf(why, sizeof(why), "%s", link->why);
    link_free(link);
    owner->failed(owner->arg, peer, err, why);
    return -ECONNRESET;
}

/* ---- words ---- */

static int flush(struct link *link)
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

static int say(struct link *link, const struct sl_wireup_word *word)
{
    uint8_t *out = link->out + link->out_len;
    int len;

    if (sizeof(link->out) - link->out_len < SL_WIREUP_WORD_MAX + SL_SEAL_BYTES)
        return -ECONNRESET; /* it does not listen */
    len = (int)sl_wireup_word_encode(word, out);
    if (link->sealed)
        len = sl_wireup_word_seal(out, (size_t)len, link->key_out, link->number_out++);
    if (len < 0)
        return len;
    link->out_len += (size_t)len;
    return flush(link);
}

static int say_failed(struct link *link, uint8_t transport)
{
    struct sl_wireup_word word = {.kind = SL_WIREUP_FAILED, .transport = transport};

    snprintf(word.text, sizeof(word.text), "%s", link->reason);
    return say(link, &word);
}

static int say_refuse(struct link *link, int code, const char *text)
{
    struct sl_wireup_word word = {.kind = SL_WIREUP_REFUSE, .code = code};

    snprintf(word.text, sizeof(word.text), "%s", text);
    return say(link, &word);
}

/* 1: a word; 0: none yet; else the pipe is of no use. */
static int hear(struct link *link, struct sl_wireup_word *out)
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

static int seal(struct link *link)
{
    uint8_t *up = link->dials ? link->key_out : link->key_in;
    uint8_t *down = link->dials ? link->key_in : link->key_out;
    int err = sl_wireup_seal_keys(link->key, &link->hello, link->nonce, up, down);

    link->sealed = err == 0;
    link->number_in = link->number_out = 0;
    return err;
}

static int know_key(struct link *link)
{
    const struct sl_worker *worker = link->wireup->worker;

    return sl_wireup_key(worker->has_session ? worker->session : NULL, &link->hello, link->key);
}

/* -EACCES: it is wrong. -ENOMEM says nothing of the peer. */
static int check_proof(const struct link *link, bool by_acceptor,
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
    struct link *link = sl_container_of(req, struct link, connecting);

    if (req->status != 0 && link->ep != NULL)
        snprintf(link->reason, sizeof(link->reason), "%s", sluice_last_error());
}

/* An endpoint of that transport and its address, or the reason why there is none. */
static int make_ep(struct link *link, uint8_t transport, struct sl_addr *out)
{
    const struct sl_wireup_owner *owner = &link->wireup->owner;
    struct sl_ep *ep;
    int err = owner->ep_create(owner->arg, transport, link->peer, &ep);

    link->left &= ~(1u << transport);
    link->transport = transport;
    link->reason[0] = '\0';
    if (err == 0) {
        link->ep = ep;
        link->lost = 0;
        link->connecting = (struct sl_req){.status = SL_PENDING, .done = connect_over};
        memset(out, 0, sizeof(*out));
        err = ep->iface->ops->ep_addr(ep, out);
    }
    if (err == 0)
        return 0;
    snprintf(link->reason, sizeof(link->reason), "%s", sluice_last_error());
    drop_ep(link);
    note_failed(link, transport, err);
    return err;
}

static int connect_ep(struct link *link, const struct sl_addr *addr)
{
    int err = link->ep->iface->ops->ep_connect(link->ep, addr, &link->connecting);

    if (err >= 0)
        return 0;
    snprintf(link->reason, sizeof(link->reason), "%s", sluice_last_error());
    drop_ep(link);
    note_failed(link, link->transport, err);
    return err;
}

/* 1: it is up here; 0: not yet; else it is gone, and why is noted. */
static int ep_state(struct link *link)
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
    if (link->reason[0] == '\0')
        snprintf(link->reason, sizeof(link->reason), "%s", sluice_strerror(status));
    drop_ep(link);
    note_failed(link, link->transport, status);
    return status;
}

/* It is the owner's; the pipe has done its work. */
static int hand_over(struct link *link)
{
    const struct sl_wireup_owner *owner = &link->wireup->owner;
    struct sl_ep *ep = link->ep;
    uint32_t peer = link->peer;

    link->ep = NULL;
    link_free(link);
    owner->up(owner->arg, peer, ep);
    return -ECONNRESET; /* the link is no more */
}

void sl_wireup_lost(struct sl_wireup *w, uint32_t peer, const char *why)
{
    struct link *link = find(w, peer, NULL);

    if (link == NULL || link->ep == NULL)
        return;
    link->lost = -ECONNRESET;
    snprintf(link->reason, sizeof(link->reason), "%s", why);
}

/* The other end's endpoint did not come about; it may be this one that lacked memory for it. */
static void peer_failed(struct link *link, const struct sl_wireup_word *word)
{
    int err = link->ep->iface->lacked_memory ? -ENOMEM : -EHOSTUNREACH;

    drop_ep(link);
    snprintf(link->reason, sizeof(link->reason), "%s", word->text);
    note_failed(link, word->transport, err);
}

/* ---- the accepting end ---- */

/* The next transport, or the end of it. */
static int offer(struct link *link)
{
    struct sl_wireup_word word = {.kind = SL_WIREUP_OFFER};
    int err;

    while (link->left != 0) {
        word.transport = (uint8_t)__builtin_ctz(link->left);
        if (make_ep(link, word.transport, &word.addr) == 0)
            return say(link, &word);
    }
    err = link->err == -ENOMEM ? -ENOMEM : -EHOSTUNREACH;
    say_refuse(link, -EHOSTUNREACH, link->why);
    return fail(link, err);
}

/* Who says this is not a peer of ours, or cannot be one. */
static int refuse(struct link *link, int code, const char *why)
{
    struct sl_wireup *w = link->wireup;

    say_refuse(link, code, why);
    sl_pending_refused(&w->set, link->pending.from, why, w->now_ns);
    link_free(link);
    return -ECONNRESET;
}

static int greet(struct link *link, const struct sl_wireup_hello *hello)
{
    struct sl_wireup *w = link->wireup;
    const struct sl_wireup_owner *owner = &w->owner;
    struct sl_wireup_word word = {.kind = SL_WIREUP_CHALLENGE};
    int err;

    if (hello->version != SL_WIREUP_VERSION)
        return refuse(link, -EPROTO,
                      "it speaks another version: install the same Sluice everywhere");
    if (memcmp(hello->to_id, w->addr.id, sizeof(w->addr.id)) != 0 || hello->to != owner->rank ||
        hello->from >= owner->size || hello->group != owner->group ||
        memcmp(hello->from_id, owner->addr(owner->arg, hello->from)->id, sizeof(hello->from_id)))
        return refuse(link, -EPROTO, "it looks for somebody else");
    link->hello = *hello;
    link->pending.standing = SL_PENDING_HEARD;
    err = w->ops->random(w->wire, link->nonce, sizeof(link->nonce))
              ?: know_key(link)
              ?: sl_wireup_proof(link->key, true, hello, link->nonce, word.proof);
    if (err != 0)
        return err;
    memcpy(word.nonce, link->nonce, sizeof(word.nonce));
    return say(link, &word);
}

/* Of two ranks that dial each other the higher one's dial counts. */
static int take_proof(struct link *link, const struct sl_wireup_word *word)
{
    struct sl_wireup *w = link->wireup;
    const struct sl_wireup_owner *owner = &w->owner;
    uint32_t peer = link->hello.from;
    struct link *other = find(w, peer, link);
    int err = check_proof(link, false, word->proof);

    if (err == -EACCES)
        return refuse(link, -EPROTO,
                      "it cannot prove that it is of this job: set the same SLUICE_SECRET on all "
                      "ranks, or none");
    err = err ?: seal(link);
    if (err != 0)
        return err;
    sl_pending_remove(&w->set, &link->pending);
    link->proved = true;
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
        link_free(other);
    }
    link->peer = peer;
    link->deadline_ns = w->now_ns + w->patience_ns;
    link->left = owner->candidates(owner->arg, peer) & link->hello.transports;
    return offer(link);
}

static int accept_word(struct link *link, const struct sl_wireup_word *word)
{
    bool current = link->ep != NULL && word->transport == link->transport;
    int err;

    if (link->pending.standing == SL_PENDING_SILENT)
        return word->kind == SL_WIREUP_HELLO
                   ? greet(link, &word->hello)
                   : refuse(link, -EPROTO, "it does not begin with a hello");
    if (!link->proved)
        return word->kind == SL_WIREUP_PROOF ? take_proof(link, word)
                                             : refuse(link, -EPROTO, "it goes on without a proof");
    link->deadline_ns = link->wireup->now_ns + link->wireup->patience_ns;
    switch (word->kind) {
    case SL_WIREUP_ANSWER:
        if (!current)
            return 0; /* to an offer that has failed here meanwhile */
        if (connect_ep(link, &word->addr) == 0)
            return 0;
        err = say_failed(link, word->transport);
        return err != 0 ? err : offer(link);
    case SL_WIREUP_UP: link->is_up |= current; return 0;
    case SL_WIREUP_FAILED:
        if (!current)
            return 0;
        peer_failed(link, word);
        return offer(link);
    case SL_WIREUP_REFUSE:
        snprintf(link->why, sizeof(link->why), "%s", word->text);
        return fail(link, -EHOSTUNREACH);
    default: return -EPROTO;
    }
}

static int accept_settle(struct link *link)
{
    struct sl_wireup_word done = {.kind = SL_WIREUP_DONE, .transport = link->transport};
    int state, err;

    if (!link->committed) {
        state = ep_state(link);
        if (state < 0) {
            err = say_failed(link, done.transport);
            return err != 0 ? err : offer(link);
        }
        if (state == 0 || !link->is_up)
            return 0;
        link->committed = true;
        err = say(link, &done);
        if (err != 0)
            return err;
    }
    return link->out_len == 0 ? hand_over(link) : 0;
}

/* ---- the dialing end ---- */

static void rest(struct link *link, int err)
{
    if (link->why[0] == '\0' && link->reason[0] == '\0')
        snprintf(link->reason, sizeof(link->reason), "%s", sluice_strerror(err));
    hang_up(link);
    link->err = link->err == 0 ? err : link->err;
    link->place++;
    link->refused += err == -ECONNREFUSED;
    link->next_ns = link->wireup->now_ns + RETRY_NS;
}

static int dial(struct link *link)
{
    struct sl_wireup *w = link->wireup;
    const struct sl_wireup_owner *owner = &w->owner;
    const struct sl_wireup_addr *to = owner->addr(owner->arg, link->peer);
    struct sl_wireup_word word = {.kind = SL_WIREUP_HELLO};
    int err = w->ops->dial(w->wire, to, link->place, &link->pipe);

    if (err == -ENODEV) { /* from the first place again */
        if (link->place == 0) {
            snprintf(link->why, sizeof(link->why), "; it has no address that this rank can reach");
            return fail(link, -EHOSTUNREACH);
        }
        if (link->refused == link->place) /* it listened before anybody knew its address */
            return fail(link, -ECONNREFUSED);
        link->place = link->refused = 0;
        return 0;
    }
    if (err != 0) {
        snprintf(link->reason, sizeof(link->reason), "%s", sluice_last_error());
        link->pipe = NULL;
        rest(link, err);
        return 0;
    }
    link->left = owner->candidates(owner->arg, link->peer);
    link->why[0] = '\0';
    link->hello = (struct sl_wireup_hello){.version = SL_WIREUP_VERSION,
                                           .from = owner->rank,
                                           .to = link->peer,
                                           .transports = link->left,
                                           .group = owner->group};
    memcpy(link->hello.from_id, w->addr.id, sizeof(link->hello.from_id));
    memcpy(link->hello.to_id, to->id, sizeof(link->hello.to_id));
    err = w->ops->random(w->wire, link->hello.nonce, sizeof(link->hello.nonce));
    if (err != 0)
        return err;
    word.hello = link->hello;
    link->next_ns = w->now_ns + PLACE_NS;
    return say(link, &word);
}

static int take_challenge(struct link *link, const struct sl_wireup_word *word)
{
    struct sl_wireup_word proof = {.kind = SL_WIREUP_PROOF};
    int err;

    memcpy(link->nonce, word->nonce, sizeof(link->nonce));
    err = know_key(link) ?: check_proof(link, true, word->proof);
    if (err == -EACCES) {
        snprintf(link->reason, sizeof(link->reason), "who answers there is not that rank");
        return -ECONNREFUSED;
    }
    err = err ?: sl_wireup_proof(link->key, false, &link->hello, link->nonce, proof.proof);
    err = err ?: say(link, &proof);
    return err ?: seal(link);
}

static int take_offer(struct link *link, const struct sl_wireup_word *word)
{
    struct sl_wireup_word answer = {.kind = SL_WIREUP_ANSWER, .transport = word->transport};
    int err;

    drop_ep(link);
    if (word->transport >= 32 || (link->left & 1u << word->transport) == 0)
        return -EPROTO;
    if (make_ep(link, word->transport, &answer.addr) != 0)
        return say_failed(link, word->transport);
    err = say(link, &answer);
    if (err == 0 && connect_ep(link, &word->addr) != 0)
        err = say_failed(link, word->transport);
    return err;
}

static int take_refuse(struct link *link, const struct sl_wireup_word *word)
{
    if (word->code == -EBUSY)
        return -EBUSY;
    snprintf(link->why, sizeof(link->why), "%s%s",
             word->text[0] == ';' ? "" : "; it says: ", word->text);
    return fail(link, word->code == -EPROTO ? -EPROTO : -EHOSTUNREACH);
}

static int dial_word(struct link *link, const struct sl_wireup_word *word)
{
    bool current = link->ep != NULL && word->transport == link->transport;

    if (!link->sealed && word->kind != SL_WIREUP_CHALLENGE && word->kind != SL_WIREUP_REFUSE)
        return -EPROTO;
    link->heard = true;
    link->deadline_ns = link->wireup->now_ns + link->wireup->patience_ns;
    switch (word->kind) {
    case SL_WIREUP_CHALLENGE: return link->sealed ? -EPROTO : take_challenge(link, word);
    case SL_WIREUP_OFFER: return take_offer(link, word);
    case SL_WIREUP_FAILED:
        if (!current)
            return 0;
        peer_failed(link, word);
        return 0;
    case SL_WIREUP_DONE: return current && link->is_up ? hand_over(link) : -EPROTO;
    case SL_WIREUP_REFUSE: return take_refuse(link, word);
    default: return -EPROTO;
    }
}

static int dial_settle(struct link *link)
{
    struct sl_wireup_word up = {.kind = SL_WIREUP_UP, .transport = link->transport};
    int state = ep_state(link);

    if (state < 0)
        return say_failed(link, up.transport);
    if (state == 0 || link->is_up)
        return 0;
    link->is_up = true;
    return say(link, &up);
}

/* ---- progress ---- */

/* 0, or why the pipe is of no use; -ECONNRESET also when the link is gone: see *gone. */
static int talk(struct link *link, unsigned *moved)
{
    struct sl_wireup *w = link->wireup;
    struct sl_wireup_word word;
    unsigned before = w->count;
    int heard, err = flush(link);

    while (err == 0 && !link->committed && (heard = hear(link, &word)) != 0) {
        ++*moved;
        err = heard < 0 ? heard : link->dials ? dial_word(link, &word) : accept_word(link, &word);
        if (w->count < before)
            return err;
    }
    if (err == 0 && (link->dials || link->proved))
        err = link->dials ? dial_settle(link) : accept_settle(link);
    return err;
}

static bool is_linked(const struct sl_wireup *w, const struct link *link)
{
    sl_list_foreach(&w->links,
                    node) if (sl_container_of(node, struct link, node) == link) return true;
    return false;
}

/* This rank still needs what the pipe was for: it dials. */
static void end_accepted(struct link *link)
{
    struct sl_wireup *w = link->wireup;
    uint32_t peer = link->peer;
    bool wanted = link->wanted, patient = link->patient;

    link_free(link);
    if (wanted)
        sl_wireup_connect(w, peer, patient);
}

static void expire(struct link *link)
{
    struct sl_wireup *w = link->wireup;

    if (w->now_ns < link->deadline_ns)
        return;
    if (!link->dials) {
        if (link->proved)
            end_accepted(link);
        return; /* of others the set knows */
    }
    if (link->patient && link->pipe != NULL && link->out_len == 0 && !link->heard) {
        link->deadline_ns = w->now_ns + w->patience_ns;
        return;
    }
    if (link->why[0] == '\0')
        snprintf(link->why, sizeof(link->why), "; %s",
                 link->reason[0] != '\0' ? link->reason
                 : link->heard           ? "it stopped in the middle of connecting"
                                         : "it does not answer");
    fail(link, link->err == -ECONNREFUSED || link->err == -ENOMEM ? link->err : -ETIMEDOUT);
}

static void step(struct link *link, unsigned *moved)
{
    struct sl_wireup *w = link->wireup;
    unsigned before = w->count;
    int err = 0;

    if (link->dials && link->pipe == NULL) {
        if (w->now_ns >= link->next_ns)
            err = dial(link);
        if (w->count < before)
            return;
    }
    if (err == 0 && link->pipe != NULL)
        err = talk(link, moved);
    if (w->count < before || !is_linked(w, link))
        return;
    if (err == 0 && link->dials && link->pipe != NULL && link->out_len > 0 && !link->heard &&
        w->now_ns >= link->next_ns)
        err = -ETIMEDOUT;
    if (err != 0 && link->dials) {
        rest(link, err);
    } else if (err != 0) {
        if (!link->proved && err != -ECONNRESET && err != -ENOMEM)
            sl_pending_refused(&w->set, link->pending.from, "it says nothing that a peer says",
                               w->now_ns);
        end_accepted(link);
        return;
    }
    expire(link);
}

static bool make_room(struct sl_wireup *w)
{
    struct sl_pending *victim = sl_pending_victim(&w->set, w->now_ns);

    if (victim == NULL)
        return false;
    sl_pending_refused(&w->set, victim->from, "it said nothing useful while others waited",
                       w->now_ns);
    link_free(sl_container_of(victim, struct link, pending));
    return true;
}

static unsigned let_in(struct sl_wireup *w)
{
    unsigned moved = 0;

    while (moved < ACCEPTS_MAX) {
        struct link *link;
        int err;

        if (sl_pending_full(&w->set) && !make_room(w))
            break;
        link = link_new(w, false, UINT32_MAX);
        if (link == NULL)
            break;
        err = w->ops->accept(w->wire, &w->set, &link->pending, w->now_ns, &link->pipe);
        if (err != 0) {
            w->spare = link; /* polls are many, and mostly nobody is there */
            if ((err == -EMFILE || err == -ENFILE) && make_room(w))
                continue;
            break;
        }
        link_add(link);
        moved++;
    }
    return moved;
}

static void show_late_out(struct sl_wireup *w)
{
    struct sl_pending *late;

    while ((late = sl_pending_late(&w->set, w->now_ns)) != NULL) {
        sl_pending_refused(&w->set, late->from, "it did not say who it is in time", w->now_ns);
        link_free(sl_container_of(late, struct link, pending));
    }
}

unsigned sl_wireup_progress(struct sl_wireup *w, uint64_t now_ns)
{
    unsigned moved = 0, links;

    if (now_ns < w->next_poll_ns)
        return 0;
    w->now_ns = now_ns;
    moved = let_in(w);
    links = w->count;
    /* Those that are here now, once each: a step may end its link, and begin another. */
    for (unsigned i = 0; i < links && !sl_list_empty(&w->links); i++) {
        struct sl_node *node = w->links.next;

        sl_list_remove(node);
        sl_list_push_back(&w->links, node);
        step(sl_container_of(node, struct link, node), &moved);
    }
    show_late_out(w);
    w->next_poll_ns = now_ns + (w->count != 0 ? POLL_BUSY_NS : POLL_IDLE_NS);
    return moved;
}

int sl_wireup_connect(struct sl_wireup *w, uint32_t peer, bool patient)
{
    struct link *link = find(w, peer, NULL);

    w->now_ns = sl_now(w->worker->clock);
    if (link != NULL) {
        link->wanted = true;
        link->patient |= patient;
        return 0;
    }
    link = link_new(w, true, peer);
    if (link == NULL)
        return sl_fail(-ENOMEM, "no memory to connect to rank %u", peer);
    link_add(link);
    link->wanted = true;
    link->patient = patient;
    link->next_ns = w->now_ns + (peer > w->owner.rank ? YIELD_NS : 0);
    w->next_poll_ns = 0;
    return 0;
}

unsigned sl_wireup_busy(const struct sl_wireup *w)
{
    return w->count;
}

unsigned sl_wireup_fds(const struct sl_wireup *w, struct pollfd *out, unsigned cap)
{
    unsigned count = w->ops->listeners(w->wire, out, cap);

    sl_list_foreach(&w->links, node)
    {
        const struct link *link = sl_container_of(node, const struct link, node);
        int fd = link->pipe != NULL ? w->ops->fd(link->pipe) : -1;

        if (count < cap && fd >= 0)
            out[count] = (struct pollfd){fd, link->out_len != 0 ? POLLIN | POLLOUT : POLLIN, 0};
        count++;
    }
    return count;
}

int sl_wireup_open(struct sl_worker *worker, const struct sl_wire_ops *ops, bool one_host,
                   const struct sl_wireup_owner *owner, struct sl_wireup_addr *addr,
                   struct sl_wireup **out)
{
    struct sl_wireup *w = calloc(1, sizeof(*w));
    int err;

    if (w == NULL)
        return sl_fail(-ENOMEM, "no memory to be connected to");
    *w = (struct sl_wireup){.worker = worker, .ops = ops, .owner = *owner};
    w->patience_ns = (uint64_t)worker->config->connect_timeout_ms * SL_NS_PER_MS;
    sl_list_init(&w->links);
    sl_pending_init(&w->set, "wireup", PENDING_MAX, &w->log);
    memset(addr, 0, sizeof(*addr));
    err = ops->open(worker, one_host, addr, &w->wire);
    if (err != 0) {
        free(w);
        return err;
    }
    w->addr = *addr;
    *out = w;
    return 0;
}

void sl_wireup_close(struct sl_wireup *w)
{
    struct sl_node *node;

    if (w == NULL)
        return;
    while (!sl_list_empty(&w->links)) {
        node = w->links.next;
        link_free(sl_container_of(node, struct link, node));
    }
    sl_pending_fini(&w->set);
    free(w->spare);
    w->ops->close(w->wire);
    free(w);
}
