/* SPDX-License-Identifier: Apache-2.0 */
/* Dials a rank at all its places until it lets this one in. */
#include "launch/search.h"

#include "core/clock.h"
#include "core/err.h"
#include "core/log.h"
#include "core/netif.h"
#include "launch/io.h"
#include "launch/nearby.h"

#include <assert.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define CONNECT_MS 5000  /* for one address, when it may be a host that is down */
#define PATIENCE_MS 3000 /* for the answer to a proof, when another place may be the right one */
#define STAGGER_MS 200   /* before the next place is tried beside those that have not answered */
#define ATTEMPTS_MAX SL_SEARCH_POLLS
#define BACKOFF_FIRST_MS 10
#define BACKOFF_LAST_MS 500
#define LOOKUP_MS 100 /* before a name that is not known is looked up again */

/* Asks at one of the places where the rank may be. */
enum attempt_state {
    IDLE,       /* to be dialled at next_ns */
    CONNECTING, /* until next_ns */
    ASKED,      /* the hello is out */
    CHALLENGED, /* the proof waits for that of another attempt to be answered */
    PROVING,    /* the proof is out */
};

struct attempt {
    enum attempt_state state;
    bool nearby; /* by a unix socket, else by address */
    bool tried;
    int fd; /* -1 while idle */
    uint64_t next_ns, wait_ms;
    struct sl_address address;
    char name[SL_ADDRESS_TEXT_MAX];
    struct sl_hello hello;
    uint8_t nonce[SL_NONCE_BYTES]; /* of who answers */
    size_t got;
    struct sl_frame frame;
    uint8_t bytes[SL_FRAME_BYTES + 4 + SL_SENTENCE_MAX];
};

static_assert(SL_WELCOME_MAX <= 4 + SL_SENTENCE_MAX, "a welcome fits, too");

/* The result of an attempt; the highest of all is reported at the end. */
enum outcome { UNREACHED, UNANSWERED, REFUSED };

struct sl_search {
    const struct sl_terms *terms;
    int target; /* the rank to find */
    struct sl_places places;
    uint64_t timeout_ns, deadline_ns;
    struct attempt attempt[ATTEMPTS_MAX];
    unsigned count;
    bool warned;
    enum outcome outcome;
    int err;
    char why[SL_SENTENCE_MAX + 1];
};

/* Keeps our own sentence for codes that come without one. */
static int fail_io(int err, int target, const char *name, const char *doing)
{
    if (err == -ETIMEDOUT)
        return sl_fail(err, "%s did not answer %s as rank %d would", name, doing, target);
    if (err == -ECONNRESET || err == -EPIPE)
        return sl_fail(-ECONNRESET, "%s closed the connection %s", name, doing);
    return sl_fail(err, "%s: %s %s", name, strerror(-err), doing);
}

static bool has_secret(const struct sl_search *search)
{
    return search->terms->secret_len > 0;
}

/* The likeliest place first, the next ones beside it when it is slow to answer. */
static struct attempt *add_attempt(struct sl_search *search)
{
    struct attempt *attempt = &search->attempt[search->count];

    *attempt = (struct attempt){.fd = -1, .wait_ms = BACKOFF_FIRST_MS};
    attempt->next_ns = sl_io_now() + search->count * STAGGER_MS * SL_NS_PER_MS;
    search->count++;
    return attempt;
}

static void add_network(struct sl_search *search, const struct sl_address *address)
{
    struct attempt *attempt = add_attempt(search);

    attempt->address = *address;
    sl_address_text(address, attempt->name);
}

/* Once for all addresses of a port. */
static void add_nearby(struct sl_search *search, const char *name)
{
    for (unsigned i = 0; i < search->count; i++)
        if (search->attempt[i].nearby && strcmp(search->attempt[i].name, name) == 0)
            return;
    struct attempt *attempt = add_attempt(search);

    attempt->nearby = true;
    snprintf(attempt->name, sizeof(attempt->name), "%s", name);
}

/* On this host a rank is met where the kernel tells its user. By TCP it could be anybody: only with
 * a secret, or where there are no unix sockets. */
static int list_places(struct sl_search *search)
{
    const struct sl_places *places = &search->places;
    struct sl_address place[SL_PLACES_MAX];
    bool possible = sl_nearby_possible();
    unsigned count = 0;
    int err = 0;

    search->count = 0;
    if (places->root != NULL) {
        err = sl_root_resolve(places->root, place, SL_PLACES_MAX, &count);
    } else if (places->card != NULL) {
        memcpy(place, places->card->place, sizeof(place));
        count = places->card->count;
    }
    if (places->nearby != NULL && possible)
        add_nearby(search, places->nearby);
    if (err == 0 && count == 0 && search->count == 0)
        err = sl_fail(-EHOSTUNREACH, "rank %d has no address", search->target);
    for (unsigned i = 0; i < count && err == 0; i++) {
        bool local = sl_sockaddr_loopback(&place[i].any);
        char name[SL_NEARBY_NAME_MAX];

        sl_nearby_name(sl_sockaddr_port(&place[i].any), name);
        if (local && possible && places->nearby == NULL)
            add_nearby(search, name);
        if (!local || !possible || has_secret(search))
            add_network(search, &place[i]);
    }
    return err;
}

/* Keeps the last error, unless a better one is known. */
static void note(struct sl_search *search, enum outcome outcome, int err)
{
    if (outcome < search->outcome)
        return;
    search->outcome = outcome;
    search->err = err;
    snprintf(search->why, sizeof(search->why), "%s", sluice_last_error());
}

/* Nothing came of it, for the reason in the last error: again later, and the next place at once.
 * Returns 0, so that the search goes on. */
static int fail_attempt(struct sl_search *search, struct attempt *attempt, enum outcome outcome,
                        int err)
{
    uint64_t spread = attempt->wait_ms * (uint64_t)(search->terms->rank % 16) / 32;

    sl_debug("launch", "%s", sluice_last_error());
    note(search, outcome, err);
    if (attempt->fd >= 0)
        close(attempt->fd);
    attempt->fd = -1;
    attempt->state = IDLE;
    /* Ranks spread out, so that a thousand of them do not knock in step. */
    attempt->next_ns = sl_io_now() + (attempt->wait_ms - spread) * SL_NS_PER_MS;
    attempt->wait_ms =
        attempt->wait_ms * 2 > BACKOFF_LAST_MS ? BACKOFF_LAST_MS : attempt->wait_ms * 2;
    for (unsigned i = 0; i < search->count; i++) {
        if (search->attempt[i].tried)
            continue;
        search->attempt[i].next_ns = sl_io_now();
        break;
    }
    return 0;
}

static int send_hello(struct sl_search *search, struct attempt *attempt)
{
    uint8_t nonce[SL_NONCE_BYTES];
    int err = sl_random(nonce, sizeof(nonce));

    if (err != 0)
        return err;
    sl_hello_make(search->terms, nonce, &attempt->hello);
    attempt->state = ASKED;
    attempt->next_ns = sl_io_now() + PATIENCE_MS * SL_NS_PER_MS;
    attempt->got = 0;
    /* A fresh socket takes it. Where it fails, a refusal may lie there, which says more. */
    (void)!send(attempt->fd, attempt->hello.bytes, sizeof(attempt->hello.bytes),
                MSG_NOSIGNAL | MSG_DONTWAIT);
    return 0;
}

static int dial(struct sl_search *search, struct attempt *attempt)
{
    int on = 1, err;

    attempt->tried = true;
    if (attempt->nearby) {
        err = sl_nearby_dial(attempt->name, &attempt->fd);
        if (err != 0)
            return fail_attempt(search, attempt, err == -EACCES ? REFUSED : UNREACHED, err);
        return send_hello(search, attempt);
    }
    attempt->fd =
        socket(attempt->address.any.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (attempt->fd < 0)
        return fail_attempt(
            search, attempt, UNREACHED,
            sl_fail(-errno, "no socket for %s: %s", attempt->name, strerror(errno)));
    setsockopt(attempt->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (connect(attempt->fd, (const struct sockaddr *)&attempt->address.any,
                attempt->address.len) == 0)
        return send_hello(search, attempt);
    if (errno != EINPROGRESS)
        return fail_attempt(
            search, attempt, UNREACHED,
            sl_fail(-errno, "connecting to %s failed: %s", attempt->name, strerror(errno)));
    attempt->state = CONNECTING;
    attempt->next_ns = sl_io_now() + CONNECT_MS * SL_NS_PER_MS;
    return 0;
}

static int connected(struct sl_search *search, struct attempt *attempt)
{
    socklen_t len = sizeof(int);
    int err = 0;

    getsockopt(attempt->fd, SOL_SOCKET, SO_ERROR, &err, &len);
    if (err == 0)
        return send_hello(search, attempt);
    return fail_attempt(search, attempt, UNREACHED,
                        sl_fail(-err, "connecting to %s failed: %s", attempt->name, strerror(err)));
}

/* Somebody says no before he has proved to be the rank that is meant. Where ranks have a secret
 * that ends nothing: anybody who holds a port could say it. Without one, there is no other word to
 * go by. */
static int take_refusal(struct sl_search *search, struct attempt *attempt)
{
    char text[SL_SENTENCE_MAX + 1];
    int code, err = sl_sentence_parse(search->target, attempt->bytes + SL_FRAME_BYTES,
                                      attempt->frame.len, &code, text);

    if (err != 0)
        return fail_attempt(search, attempt, UNANSWERED, err);
    if (has_secret(search))
        sl_fail(code, "%s, which has not proved to be rank %d, refused this rank: %s",
                attempt->name, search->target, text);
    else
        sl_fail(code, "rank %d at %s refused this rank: %s", search->target, attempt->name, text);
    if (!has_secret(search) && code != -EBUSY)
        return code;
    if (!search->warned)
        sl_warn("launch", "%s; trying on until the deadline", sluice_last_error());
    search->warned = true;
    return fail_attempt(search, attempt, REFUSED, code);
}

bool sl_search_proving(const struct sl_search *search)
{
    for (unsigned i = 0; i < search->count; i++)
        if (search->attempt[i].state == PROVING)
            return true;
    return false;
}

/* One proof at a time: a rank is let in once, though it may be dialled at several addresses. */
static int send_proof(struct sl_search *search, struct attempt *attempt)
{
    uint8_t proof[SL_FRAME_BYTES + SL_MAC_BYTES];
    int err;

    if (sl_search_proving(search)) {
        attempt->state = CHALLENGED;
        return 0;
    }
    err = sl_proof_make(search->terms, false, &attempt->hello, attempt->nonce,
                        proof + SL_FRAME_BYTES);
    if (err != 0)
        return err;
    sl_frame_make(SL_FRAME_PROOF, SL_MAC_BYTES, proof);
    (void)!send(attempt->fd, proof, sizeof(proof), MSG_NOSIGNAL | MSG_DONTWAIT);
    attempt->state = PROVING;
    attempt->next_ns = sl_io_now() + PATIENCE_MS * SL_NS_PER_MS;
    return 0;
}

/* 1: this is the rank that is meant, and it has let us in. */
static int take_welcome(struct sl_search *search, struct attempt *attempt, struct sl_found *out)
{
    const uint8_t *body = attempt->bytes + SL_FRAME_BYTES;
    uint8_t mac[SL_MAC_BYTES];
    int err = sl_proof_make(search->terms, true, &attempt->hello, attempt->nonce, mac);

    if (err != 0)
        return err;
    if (!sl_digest_equal(body, mac, SL_MAC_BYTES))
        return fail_attempt(search, attempt, REFUSED,
                            sl_fail(-EPROTO,
                                    "%s could not prove that it is rank %d of this job (its secret "
                                    "is another)",
                                    attempt->name, search->target));
    err = sl_meeting_keys_make(search->terms, &attempt->hello, attempt->nonce, &out->keys);
    err = err ?: sl_welcome_open(&out->keys, body, &out->job);
    if (err != 0)
        return fail_attempt(search, attempt, REFUSED, err);
    snprintf(out->name, sizeof(out->name), "%s", attempt->name);
    out->fd = attempt->fd;
    out->nearby = attempt->nearby;
    attempt->fd = -1;
    return 1;
}

/* A whole frame is there. */
static int take_frame(struct sl_search *search, struct attempt *attempt, struct sl_found *out)
{
    attempt->got = 0;
    switch (attempt->frame.kind) {
    case SL_FRAME_REFUSE:
    case SL_FRAME_FAILED: return take_refusal(search, attempt);
    case SL_FRAME_CHALLENGE:
        memcpy(attempt->nonce, attempt->bytes + SL_FRAME_BYTES, SL_NONCE_BYTES);
        return send_proof(search, attempt);
    default: return take_welcome(search, attempt, out);
    }
}

/* A frame's header is there: is it one that may come now? */
static int check_frame(struct sl_search *search, struct attempt *attempt)
{
    size_t welcome = SL_WELCOME_BYTES + sl_seal_len(search->terms->sealed);
    const struct sl_frame *frame = &attempt->frame;

    if (sl_frame_parse(attempt->bytes, &attempt->frame) != 0)
        return sl_fail(-EBADMSG, "%s is not rank %d of a Sluice job: it speaks another protocol",
                       attempt->name, search->target);
    if (frame->kind == SL_FRAME_REFUSE || frame->kind == SL_FRAME_FAILED)
        return frame->len <= sizeof(attempt->bytes) - SL_FRAME_BYTES
                   ? 0
                   : sl_fail(-EBADMSG, "%s sent a sentence of %llu bytes", attempt->name,
                             (unsigned long long)frame->len);
    if ((attempt->state == ASKED && frame->kind == SL_FRAME_CHALLENGE &&
         frame->len == SL_NONCE_BYTES) ||
        (attempt->state == PROVING && frame->kind == SL_FRAME_WELCOME && frame->len == welcome))
        return 0;
    return sl_fail(-EBADMSG, "%s sent a frame of kind %d and %llu bytes where rank %d would not",
                   attempt->name, (int)frame->kind, (unsigned long long)frame->len, search->target);
}

/* Reads what the other rank has to say, no more than one frame at a time. 1: we are in; negative:
 * it is over. */
static int listen_to(struct sl_search *search, struct attempt *attempt, struct sl_found *out)
{
    for (;;) {
        bool in_head = attempt->got < SL_FRAME_BYTES;
        size_t want = SL_FRAME_BYTES + (in_head ? 0 : attempt->frame.len);
        ssize_t n =
            recv(attempt->fd, attempt->bytes + attempt->got, want - attempt->got, MSG_DONTWAIT);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return 0;
        if (n <= 0)
            return fail_attempt(search, attempt, UNANSWERED,
                                fail_io(n == 0 ? -ECONNRESET : -errno, search->target,
                                        attempt->name, "while this rank asked to join"));
        attempt->got += (size_t)n;
        if (in_head && attempt->got == SL_FRAME_BYTES && check_frame(search, attempt) != 0)
            return fail_attempt(search, attempt, UNANSWERED, -EBADMSG);
        if (attempt->got < SL_FRAME_BYTES || attempt->got < SL_FRAME_BYTES + attempt->frame.len)
            continue;
        int err = take_frame(search, attempt, out);
        if (err != 0 || attempt->fd < 0)
            return err;
    }
}

/* A process of this host and user has our hello: it is most likely the rank that is meant, with
 * many before us. Asked by TCP, too, it would have twice the work. Returns until when to wait. */
static uint64_t nearby_ns(const struct sl_search *search)
{
    for (unsigned i = 0; i < search->count; i++)
        if (search->attempt[i].nearby && search->attempt[i].state >= ASKED)
            return search->attempt[i].next_ns;
    return 0;
}

/* What is due by the clock. */
static int attend(struct sl_search *search, struct attempt *attempt)
{
    if (attempt->state == CHALLENGED)
        return send_proof(search, attempt);
    if (sl_io_now() < attempt->next_ns)
        return 0;
    if (attempt->state == IDLE && !attempt->nearby && sl_sockaddr_loopback(&attempt->address.any) &&
        nearby_ns(search) > sl_io_now()) {
        attempt->next_ns = nearby_ns(search);
        return 0;
    }
    if (attempt->state == IDLE)
        return dial(search, attempt);
    if (attempt->state == CONNECTING)
        return fail_attempt(
            search, attempt, UNREACHED,
            sl_fail(-ETIMEDOUT, "connecting to %s failed: %s", attempt->name, strerror(ETIMEDOUT)));
    /* Another place may be the right one. Rank 0 itself, where it is slow, will be asked again. */
    if (attempt->state == PROVING && search->count > 1)
        return fail_attempt(
            search, attempt, UNANSWERED,
            fail_io(-ETIMEDOUT, search->target, attempt->name, "while this rank asked to join"));
    return 0;
}

static uint64_t due_ns(const struct sl_search *search, const struct attempt *attempt)
{
    bool timed = attempt->state == IDLE || attempt->state == CONNECTING ||
                 (attempt->state == PROVING && search->count > 1);

    return timed ? attempt->next_ns : SL_NEVER;
}

static bool all_idle(const struct sl_search *search)
{
    for (unsigned i = 0; i < search->count; i++)
        if (search->attempt[i].state != IDLE || !search->attempt[i].tried)
            return false;
    return true;
}

/* A name may mean another address by now, and may not have had one at first. */
static int look_up_again(struct sl_search *search)
{
    uint64_t wait_ms = search->count > 0 ? search->attempt[0].wait_ms : BACKOFF_LAST_MS;
    uint64_t next_ns = search->count > 0 ? search->attempt[0].next_ns : sl_io_now();
    int err = list_places(search);

    if (err == -EINVAL)
        return err;
    if (err != 0) {
        note(search, UNREACHED, err);
        poll(NULL, 0, LOOKUP_MS);
        return 0;
    }
    for (unsigned i = 0; i < search->count && next_ns > sl_io_now(); i++) {
        search->attempt[i].next_ns += next_ns - sl_io_now();
        search->attempt[i].wait_ms = wait_ms;
    }
    return 0;
}

static int fail_deadline(struct sl_search *search)
{
    int err = search->err == -EBUSY || search->err == -EPROTO ? -EPROTO : -ETIMEDOUT;

    for (unsigned i = 0; i < search->count && search->outcome < REFUSED; i++)
        if (search->attempt[i].state >= ASKED)
            note(search, UNANSWERED,
                 fail_io(-ETIMEDOUT, search->target, search->attempt[i].name,
                         "while this rank asked to join"));
    return sl_fail(err, "rank %d of %d did not reach rank %d within %.3g s; the last try: %s",
                   search->terms->rank, search->terms->size, search->target,
                   (double)search->timeout_ns / (double)SL_NS_PER_S, search->why);
}

int sl_search_prepare(struct sl_search *search, struct pollfd *polls, unsigned *count,
                      uint64_t *until_ns)
{
    int err = all_idle(search) ? look_up_again(search) : 0;

    for (unsigned i = 0; i < search->count && err == 0; i++)
        err = attend(search, &search->attempt[i]);
    if (err == 0 && sl_io_now() >= search->deadline_ns)
        err = fail_deadline(search);
    *until_ns = search->deadline_ns;
    *count = search->count;
    for (unsigned i = 0; i < search->count; i++) {
        struct attempt *attempt = &search->attempt[i];
        uint64_t due = due_ns(search, attempt);

        *until_ns = due < *until_ns ? due : *until_ns;
        polls[i] = (struct pollfd){attempt->fd, attempt->state == CONNECTING ? POLLOUT : POLLIN, 0};
    }
    return err;
}

int sl_search_take(struct sl_search *search, const struct pollfd *polls, struct sl_found *out)
{
    int result = 0;

    for (unsigned i = 0; i < search->count && result == 0; i++) {
        struct attempt *attempt = &search->attempt[i];

        if (polls[i].revents == 0 || attempt->fd != polls[i].fd)
            continue;
        result = attempt->state == CONNECTING ? connected(search, attempt)
                                              : listen_to(search, attempt, out);
    }
    return result;
}

int sl_search_start(const struct sl_terms *terms, int target, const struct sl_places *places,
                    uint64_t timeout_ns, struct sl_search **out)
{
    struct sl_search *search = calloc(1, sizeof(*search));

    if (search == NULL)
        return sl_fail(-ENOMEM, "no memory for the meeting of %d ranks", terms->size);
    *search = (struct sl_search){.terms = terms,
                                 .target = target,
                                 .places = *places,
                                 .err = -ETIMEDOUT,
                                 .timeout_ns = timeout_ns,
                                 .deadline_ns = sl_io_now() + timeout_ns};
    *out = search;
    return 0;
}

void sl_search_end(struct sl_search *search)
{
    if (search == NULL)
        return;
    for (unsigned i = 0; i < search->count; i++)
        if (search->attempt[i].fd >= 0)
            close(search->attempt[i].fd);
    free(search);
}
