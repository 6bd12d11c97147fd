/* SPDX-License-Identifier: Apache-2.0 */
/* Every rank but 0 at a meeting: dials rank 0 until it is let in, then swaps bytes through it. */
#include "launch/rendezvous.h"

#include "core/clock.h"
#include "core/err.h"
#include "core/log.h"
#include "launch/nearby.h"
#include "launch/wire.h"

#include <assert.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define CONNECT_MS 5000  /* for one address, when it may be a host that is down */
#define PATIENCE_MS 3000 /* for the answer to a proof, when another place may be the right one */
#define STAGGER_MS 200   /* before the next place is tried beside those that have not answered */
#define ATTEMPTS_MAX (2 * SL_PLACES_MAX)
#define BACKOFF_FIRST_MS 10
#define BACKOFF_LAST_MS 500
#define LOOKUP_MS 100 /* before a name that is not known is looked up again */

struct sl_joiner {
    struct sl_exchange base;
    int fd;
    uint64_t timeout_ns, seq;
    bool warned;
    struct sl_meeting_keys keys;
    struct sl_job_keys job;
    uint8_t *sealed; /* what of a share goes out */
    size_t sealed_cap;
    int broken;
    char why[SL_SENTENCE_MAX + 1];
    char name[SL_ADDRESS_TEXT_MAX]; /* of rank 0 */
};

static uint64_t now(void)
{
    return sl_now(&sl_clock_monotonic);
}

/* Waits for events of fd. 0: they are there. */
static int await(int fd, short events, uint64_t until_ns)
{
    for (;;) {
        struct pollfd wait = {.fd = fd, .events = events};
        uint64_t at = now();
        uint64_t ms = at < until_ns ? (until_ns - at) / SL_NS_PER_MS + 1 : 0;
        int n = poll(&wait, 1, ms > 60000 ? 60000 : (int)ms);

        if (n > 0)
            return 0;
        if (n < 0 && errno != EINTR)
            return -errno;
        if (at >= until_ns)
            return -ETIMEDOUT;
    }
}

static int send_all(int fd, const void *bytes, size_t len, int flags, uint64_t until_ns)
{
    const char *at = bytes;

    while (len > 0) {
        ssize_t n = send(fd, at, len, MSG_NOSIGNAL | MSG_DONTWAIT | flags);

        if (n >= 0) {
            at += n;
            len -= (size_t)n;
            continue;
        }
        if (errno != EAGAIN && errno != EINTR)
            return -errno;
        int err = await(fd, POLLOUT, until_ns);
        if (err != 0)
            return err;
    }
    return 0;
}

/* -ECONNRESET when the stream ends before len bytes. */
static int recv_all(int fd, void *bytes, size_t len, uint64_t until_ns)
{
    char *at = bytes;

    while (len > 0) {
        ssize_t n = recv(fd, at, len, MSG_DONTWAIT);

        if (n > 0) {
            at += n;
            len -= (size_t)n;
            continue;
        }
        if (n == 0)
            return -ECONNRESET;
        if (errno != EAGAIN && errno != EINTR)
            return -errno;
        int err = await(fd, POLLIN, until_ns);
        if (err != 0)
            return err;
    }
    return 0;
}

/* Keeps our own sentence for codes that await, send_all and recv_all return without one. */
static int fail_io(int err, const char *name, const char *doing)
{
    if (err == -ETIMEDOUT)
        return sl_fail(err, "%s did not answer %s as rank 0 would", name, doing);
    if (err == -ECONNRESET || err == -EPIPE)
        return sl_fail(-ECONNRESET, "%s closed the connection %s", name, doing);
    return sl_fail(err, "%s: %s %s", name, strerror(-err), doing);
}

/* The body of REFUSE or FAILED becomes the last error, and its code is returned. */
static int take_sentence(int fd, const struct sl_frame *frame, const struct sl_meeting_keys *keys,
                         uint64_t until_ns)
{
    uint8_t body[4 + SL_SENTENCE_MAX + SL_SEAL_BYTES];
    size_t seal = sl_seal_len(keys->sealed), len = frame->len - seal;
    char text[SL_SENTENCE_MAX + 1];
    int code, err;

    if (frame->len < seal || frame->len > sizeof(body))
        return sl_fail(-EBADMSG, "rank 0 sent a sentence of %llu bytes",
                       (unsigned long long)frame->len);
    err = recv_all(fd, body, frame->len, until_ns);
    if (err != 0)
        return fail_io(err, "rank 0", "in the middle of a sentence");
    if (keys->sealed &&
        sl_unseal(keys->down, SL_NUMBER_FAILED, NULL, 0, body, len, body + len, body) != 0)
        return sl_fail(-EBADMSG,
                       "it is over, but why was changed on the way or is not from rank 0");
    err = sl_sentence_parse(body, len, &code, text);
    return err != 0 ? err : sl_fail_text(code, text);
}

/* ---- getting in ---- */

/* Asks at one of the places where rank 0 may be. */
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

/* What an attempt came to; the highest of all is told at the end. */
enum outcome { UNREACHED, UNANSWERED, REFUSED };

struct search {
    struct sl_joiner *joiner;
    const struct sl_terms *terms;
    const struct sl_places *places;
    uint64_t deadline_ns;
    struct attempt attempt[ATTEMPTS_MAX];
    unsigned count;
    enum outcome outcome;
    int err;
    char why[SL_SENTENCE_MAX + 1];
};

static bool has_secret(const struct search *search)
{
    return search->terms->secret_len > 0;
}

static uint16_t port_of(const struct sl_address *address)
{
    return ntohs(address->any.ss_family == AF_INET
                     ? ((const struct sockaddr_in *)&address->any)->sin_port
                     : ((const struct sockaddr_in6 *)&address->any)->sin6_port);
}

static void add_attempt(struct search *search, const struct sl_address *address, bool nearby)
{
    struct attempt *attempt = &search->attempt[search->count];

    *attempt = (struct attempt){
        .nearby = nearby, .fd = -1, .wait_ms = BACKOFF_FIRST_MS, .address = *address};
    /* The likeliest place first, the next ones beside it when it is slow to answer. */
    attempt->next_ns = now() + search->count * STAGGER_MS * SL_NS_PER_MS;
    if (nearby)
        sl_nearby_name(port_of(address), attempt->name);
    else
        sl_address_text(address, attempt->name);
    search->count++;
}

static bool has_nearby(const struct search *search, uint16_t port)
{
    for (unsigned i = 0; i < search->count; i++)
        if (search->attempt[i].nearby && port_of(&search->attempt[i].address) == port)
            return true;
    return false;
}

/* On this host rank 0 is met where the kernel tells its user. By TCP it could be anybody: only with
 * a secret, or where there are no unix sockets. */
static int list_places(struct search *search)
{
    const struct sl_places *places = search->places;
    struct sl_address place[SL_PLACES_MAX];
    bool possible = sl_nearby_possible();
    unsigned count = 0;
    int err = 0;

    search->count = 0;
    if (places->root != NULL) {
        err = sl_root_resolve(places->root, place, SL_PLACES_MAX, &count);
    } else {
        memcpy(place, places->card->place, sizeof(place));
        count = places->card->count;
    }
    if (err == 0 && count == 0)
        err = sl_fail(-EHOSTUNREACH, "rank 0 has no address");
    for (unsigned i = 0; i < count && err == 0; i++) {
        bool local = sl_address_is_loopback(&place[i]);

        if (local && possible && !has_nearby(search, port_of(&place[i])))
            add_attempt(search, &place[i], true);
        if (!local || !possible || has_secret(search))
            add_attempt(search, &place[i], false);
    }
    return err;
}

/* Keeps the last error, unless a better one is known. */
static void note(struct search *search, enum outcome outcome, int err)
{
    if (outcome < search->outcome)
        return;
    search->outcome = outcome;
    search->err = err;
    snprintf(search->why, sizeof(search->why), "%s", sluice_last_error());
}

/* Nothing came of it, for the reason in the last error: again later, and the next place at once.
 * Returns 0, so that the search goes on. */
static int fail_attempt(struct search *search, struct attempt *attempt, enum outcome outcome,
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
    attempt->next_ns = now() + (attempt->wait_ms - spread) * SL_NS_PER_MS;
    attempt->wait_ms =
        attempt->wait_ms * 2 > BACKOFF_LAST_MS ? BACKOFF_LAST_MS : attempt->wait_ms * 2;
    for (unsigned i = 0; i < search->count; i++) {
        if (search->attempt[i].tried)
            continue;
        search->attempt[i].next_ns = now();
        break;
    }
    return 0;
}

static int send_hello(struct search *search, struct attempt *attempt)
{
    uint8_t nonce[SL_NONCE_BYTES];
    int err = sl_random(nonce, sizeof(nonce));

    if (err != 0)
        return err;
    sl_hello_make(search->terms, nonce, &attempt->hello);
    attempt->state = ASKED;
    attempt->got = 0;
    /* A fresh socket takes it. Where it fails, a refusal may lie there, which says more. */
    (void)!send(attempt->fd, attempt->hello.bytes, sizeof(attempt->hello.bytes),
                MSG_NOSIGNAL | MSG_DONTWAIT);
    return 0;
}

static int dial(struct search *search, struct attempt *attempt)
{
    int on = 1, err;

    attempt->tried = true;
    if (attempt->nearby) {
        err = sl_nearby_dial(port_of(&attempt->address), &attempt->fd);
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
    attempt->next_ns = now() + CONNECT_MS * SL_NS_PER_MS;
    return 0;
}

static int connected(struct search *search, struct attempt *attempt)
{
    socklen_t len = sizeof(int);
    int err = 0;

    getsockopt(attempt->fd, SOL_SOCKET, SO_ERROR, &err, &len);
    if (err == 0)
        return send_hello(search, attempt);
    return fail_attempt(search, attempt, UNREACHED,
                        sl_fail(-err, "connecting to %s failed: %s", attempt->name, strerror(err)));
}

/* Somebody says no before he has proved to be rank 0. Where ranks have a secret that ends nothing:
 * whoever holds a port could say it. Without one, the word of who answers is all there is. */
static int take_refusal(struct search *search, struct attempt *attempt)
{
    struct sl_joiner *joiner = search->joiner;
    char text[SL_SENTENCE_MAX + 1];
    int code,
        err = sl_sentence_parse(attempt->bytes + SL_FRAME_BYTES, attempt->frame.len, &code, text);

    if (err != 0)
        return fail_attempt(search, attempt, UNANSWERED, err);
    if (has_secret(search))
        sl_fail(code, "%s, which has not proved to be rank 0, refused this rank: %s", attempt->name,
                text);
    else
        sl_fail(code, "rank 0 at %s refused this rank: %s", attempt->name, text);
    if (!has_secret(search) && code != -EBUSY)
        return code;
    if (!joiner->warned)
        sl_warn("launch", "%s; trying on until the deadline", sluice_last_error());
    joiner->warned = true;
    return fail_attempt(search, attempt, REFUSED, code);
}

static bool proof_is_out(const struct search *search)
{
    for (unsigned i = 0; i < search->count; i++)
        if (search->attempt[i].state == PROVING)
            return true;
    return false;
}

/* One proof at a time: rank 0 lets each rank in once, though it may be dialled at several
 * addresses. */
static int send_proof(struct search *search, struct attempt *attempt)
{
    uint8_t proof[SL_FRAME_BYTES + SL_MAC_BYTES];
    int err;

    if (proof_is_out(search)) {
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
    attempt->next_ns = now() + PATIENCE_MS * SL_NS_PER_MS;
    return 0;
}

/* 1: this is rank 0, and it has let us in. */
static int take_welcome(struct search *search, struct attempt *attempt)
{
    struct sl_joiner *joiner = search->joiner;
    const uint8_t *body = attempt->bytes + SL_FRAME_BYTES;
    uint8_t mac[SL_MAC_BYTES];
    int err = sl_proof_make(search->terms, true, &attempt->hello, attempt->nonce, mac);

    if (err != 0)
        return err;
    if (!sl_digest_equal(body, mac, SL_MAC_BYTES))
        return fail_attempt(search, attempt, REFUSED,
                            sl_fail(-EPROTO,
                                    "%s could not prove that it is rank 0 of this job (its secret "
                                    "is another)",
                                    attempt->name));
    err = sl_meeting_keys_make(search->terms, &attempt->hello, attempt->nonce, &joiner->keys);
    err = err ?: sl_welcome_open(&joiner->keys, body, &joiner->job);
    if (err != 0)
        return fail_attempt(search, attempt, REFUSED, err);
    snprintf(joiner->name, sizeof(joiner->name), "%s", attempt->name);
    joiner->fd = attempt->fd;
    joiner->base.nearby = attempt->nearby;
    attempt->fd = -1;
    return 1;
}

/* A whole frame is there. */
static int take_frame(struct search *search, struct attempt *attempt)
{
    attempt->got = 0;
    switch (attempt->frame.kind) {
    case SL_FRAME_REFUSE:
    case SL_FRAME_FAILED: return take_refusal(search, attempt);
    case SL_FRAME_CHALLENGE:
        memcpy(attempt->nonce, attempt->bytes + SL_FRAME_BYTES, SL_NONCE_BYTES);
        return send_proof(search, attempt);
    default: return take_welcome(search, attempt);
    }
}

/* A frame's header is there: is it one that may come now? */
static int check_frame(struct search *search, struct attempt *attempt)
{
    size_t welcome = has_secret(search) ? SL_WELCOME_MAX : SL_MAC_BYTES;
    const struct sl_frame *frame = &attempt->frame;

    if (sl_frame_parse(attempt->bytes, &attempt->frame) != 0)
        return sl_fail(-EBADMSG, "%s is not rank 0 of a Sluice job: it speaks another protocol",
                       attempt->name);
    if (frame->kind == SL_FRAME_REFUSE || frame->kind == SL_FRAME_FAILED)
        return frame->len <= sizeof(attempt->bytes) - SL_FRAME_BYTES
                   ? 0
                   : sl_fail(-EBADMSG, "%s sent a sentence of %llu bytes", attempt->name,
                             (unsigned long long)frame->len);
    if ((attempt->state == ASKED && frame->kind == SL_FRAME_CHALLENGE &&
         frame->len == SL_NONCE_BYTES) ||
        (attempt->state == PROVING && frame->kind == SL_FRAME_WELCOME && frame->len == welcome))
        return 0;
    return sl_fail(-EBADMSG, "%s sent a frame of kind %d and %llu bytes where rank 0 would not",
                   attempt->name, (int)frame->kind, (unsigned long long)frame->len);
}

/* Reads what rank 0 has to say, no more than one frame at a time. 1: we are in; negative: it is
 * over. */
static int listen_to(struct search *search, struct attempt *attempt)
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
                                fail_io(n == 0 ? -ECONNRESET : -errno, attempt->name,
                                        "while this rank asked to join"));
        attempt->got += (size_t)n;
        if (in_head && attempt->got == SL_FRAME_BYTES && check_frame(search, attempt) != 0)
            return fail_attempt(search, attempt, UNANSWERED, -EBADMSG);
        if (attempt->got < SL_FRAME_BYTES || attempt->got < SL_FRAME_BYTES + attempt->frame.len)
            continue;
        int err = take_frame(search, attempt);
        if (err != 0 || attempt->fd < 0)
            return err;
    }
}

/* What is due by the clock. */
static int attend(struct search *search, struct attempt *attempt)
{
    if (attempt->state == CHALLENGED)
        return send_proof(search, attempt);
    if (now() < attempt->next_ns)
        return 0;
    if (attempt->state == IDLE)
        return dial(search, attempt);
    if (attempt->state == CONNECTING)
        return fail_attempt(
            search, attempt, UNREACHED,
            sl_fail(-ETIMEDOUT, "connecting to %s failed: %s", attempt->name, strerror(ETIMEDOUT)));
    /* Another place may be the right one. Rank 0 itself, where it is slow, will be asked again. */
    if (attempt->state == PROVING && search->count > 1)
        return fail_attempt(search, attempt, UNANSWERED,
                            fail_io(-ETIMEDOUT, attempt->name, "while this rank asked to join"));
    return 0;
}

static uint64_t due_ns(const struct search *search, const struct attempt *attempt)
{
    bool timed = attempt->state == IDLE || attempt->state == CONNECTING ||
                 (attempt->state == PROVING && search->count > 1);

    return timed ? attempt->next_ns : SL_NEVER;
}

/* One round of all attempts: waits for the first event. 1: in; negative: over. */
static int search_round(struct search *search)
{
    struct pollfd wait[ATTEMPTS_MAX];
    uint64_t until_ns = search->deadline_ns;
    int result = 0;

    for (unsigned i = 0; i < search->count && result == 0; i++)
        result = attend(search, &search->attempt[i]);
    if (result != 0)
        return result;
    for (unsigned i = 0; i < search->count; i++) {
        struct attempt *attempt = &search->attempt[i];
        uint64_t due = due_ns(search, attempt);

        until_ns = due < until_ns ? due : until_ns;
        wait[i] = (struct pollfd){attempt->fd, attempt->state == CONNECTING ? POLLOUT : POLLIN, 0};
    }
    uint64_t at = now(), ms = at < until_ns ? (until_ns - at) / SL_NS_PER_MS + 1 : 0;
    if (poll(wait, search->count, ms > 60000 ? 60000 : (int)ms) < 0 && errno != EINTR)
        return sl_fail(-errno, "poll of the connections to rank 0 failed: %s", strerror(errno));
    for (unsigned i = 0; i < search->count && result == 0; i++) {
        struct attempt *attempt = &search->attempt[i];

        if (wait[i].revents == 0 || attempt->fd != wait[i].fd)
            continue;
        result =
            attempt->state == CONNECTING ? connected(search, attempt) : listen_to(search, attempt);
    }
    return result;
}

static bool all_idle(const struct search *search)
{
    for (unsigned i = 0; i < search->count; i++)
        if (search->attempt[i].state != IDLE || !search->attempt[i].tried)
            return false;
    return true;
}

/* A name may mean another address by now, and may not have had one at first. */
static int look_up_again(struct search *search)
{
    uint64_t wait_ms = search->count > 0 ? search->attempt[0].wait_ms : BACKOFF_LAST_MS;
    uint64_t next_ns = search->count > 0 ? search->attempt[0].next_ns : now();
    int err = list_places(search);

    if (err == -EINVAL)
        return err;
    if (err != 0) {
        note(search, UNREACHED, err);
        poll(NULL, 0, LOOKUP_MS);
        return 0;
    }
    for (unsigned i = 0; i < search->count && next_ns > now(); i++) {
        search->attempt[i].next_ns += next_ns - now();
        search->attempt[i].wait_ms = wait_ms;
    }
    return 0;
}

static int fail_deadline(struct search *search)
{
    const struct sl_joiner *joiner = search->joiner;
    int err = search->err == -EBUSY || search->err == -EPROTO ? -EPROTO : -ETIMEDOUT;

    for (unsigned i = 0; i < search->count && search->outcome < REFUSED; i++)
        if (search->attempt[i].state >= ASKED)
            note(search, UNANSWERED,
                 fail_io(-ETIMEDOUT, search->attempt[i].name, "while this rank asked to join"));
    return sl_fail(err, "rank %d of %d did not reach rank 0 within %.3g s; the last try: %s",
                   search->terms->rank, search->terms->size,
                   (double)joiner->timeout_ns / (double)SL_NS_PER_S, search->why);
}

/* Who has connected waits in rank 0's queue until its turn comes, be it until the deadline, unless
 * somebody answers wrongly; all other places are tried beside it. */
static int join(struct sl_joiner *joiner, const struct sl_terms *terms,
                const struct sl_places *places)
{
    struct search *search = calloc(1, sizeof(*search));
    int err;

    if (search == NULL)
        return sl_fail(-ENOMEM, "no memory for the meeting of %d ranks", terms->size);
    *search = (struct search){.joiner = joiner,
                              .terms = terms,
                              .places = places,
                              .err = -ETIMEDOUT,
                              .deadline_ns = now() + joiner->timeout_ns};
    do {
        err = all_idle(search) ? look_up_again(search) : 0;
        if (err == 0 && search->count > 0)
            err = search_round(search);
        if (err == 0 && now() >= search->deadline_ns)
            err = fail_deadline(search);
    } while (err == 0);
    for (unsigned i = 0; i < search->count; i++)
        if (search->attempt[i].fd >= 0)
            close(search->attempt[i].fd);
    free(search);
    return err > 0 ? 0 : err;
}

/* ---- exchanges ---- */

static int joiner_break(struct sl_joiner *joiner, int err)
{
    joiner->broken = err;
    snprintf(joiner->why, sizeof(joiner->why), "%s", sluice_last_error());
    return err;
}

static int fail_host(struct sl_joiner *joiner, int err)
{
    if (err == -ETIMEDOUT)
        sl_fail(err, "rank 0 at %s did not finish exchange %llu within %.3g s", joiner->name,
                (unsigned long long)joiner->seq,
                (double)sl_exchange_wait_ns(joiner->timeout_ns, joiner->seq) / (double)SL_NS_PER_S);
    else
        sl_fail(err = -ECONNRESET, "rank 0 at %s went away during exchange %llu; see its output",
                joiner->name, (unsigned long long)joiner->seq);
    return joiner_break(joiner, err);
}

static int take_result(struct sl_joiner *joiner, void *out, size_t len, uint64_t deadline_ns)
{
    uint8_t head[SL_FRAME_BYTES + SL_SEQ_BYTES], *seq = head + SL_FRAME_BYTES, mark[SL_SEAL_BYTES];
    size_t seal = sl_seal_len(joiner->keys.sealed);
    struct sl_frame frame;
    int err = recv_all(joiner->fd, head, SL_FRAME_BYTES, deadline_ns);

    if (err != 0)
        return fail_host(joiner, err);
    err = sl_frame_parse(head, &frame);
    if (err == 0 && frame.kind == SL_FRAME_FAILED)
        err = take_sentence(joiner->fd, &frame, &joiner->keys, deadline_ns);
    else if (err == 0 && (frame.kind != SL_FRAME_RESULT || frame.len != SL_SEQ_BYTES + len + seal))
        err = sl_fail(-EPROTO, "rank 0 gave %llu bytes where exchange %llu needs %zu",
                      (unsigned long long)frame.len, (unsigned long long)joiner->seq,
                      SL_SEQ_BYTES + len + seal);
    if (err != 0)
        return joiner_break(joiner, err);
    err = recv_all(joiner->fd, seq, SL_SEQ_BYTES, deadline_ns);
    if (err == 0 && sl_get64(seq) != joiner->seq)
        return joiner_break(joiner, sl_fail(-EPROTO, "rank 0 is at exchange %llu, rank %d at %llu",
                                            (unsigned long long)sl_get64(seq), joiner->base.rank,
                                            (unsigned long long)joiner->seq));
    err = err ?: recv_all(joiner->fd, out, len, deadline_ns);
    err = err ?: recv_all(joiner->fd, mark, seal, deadline_ns);
    if (err != 0)
        return fail_host(joiner, err);
    if (seal > 0 &&
        sl_unseal(joiner->job.result, joiner->seq, head, sizeof(head), out, len, mark, out) != 0)
        return joiner_break(joiner,
                            sl_fail(-EBADMSG,
                                    "what came from rank 0 at %s in exchange %llu was "
                                    "changed on the way: somebody between the two rewrites it",
                                    joiner->name, (unsigned long long)joiner->seq));
    return 0;
}

/* What goes out for len bytes of in: themselves, or sealed. */
static int seal_share(struct sl_joiner *joiner, const uint8_t head[SL_FRAME_BYTES + SL_SEQ_BYTES],
                      const void *in, size_t len, const void **out)
{
    *out = in;
    if (!joiner->keys.sealed)
        return 0;
    if (joiner->sealed_cap < len + SL_SEAL_BYTES) {
        free(joiner->sealed);
        joiner->sealed_cap = 0;
        joiner->sealed = malloc(len + SL_SEAL_BYTES);
        if (joiner->sealed == NULL)
            return sl_fail(-ENOMEM, "no memory to seal %zu bytes", len);
        joiner->sealed_cap = len + SL_SEAL_BYTES;
    }
    *out = joiner->sealed;
    return sl_seal(joiner->keys.up, joiner->seq, head, SL_FRAME_BYTES + SL_SEQ_BYTES, in, len,
                   joiner->sealed);
}

static int joiner_allgather(struct sl_exchange *exchange, const void *in, size_t len, void *out)
{
    struct sl_joiner *joiner = sl_container_of(exchange, struct sl_joiner, base);
    /* Rank 0's verdict, which names ranks, should arrive before our own deadline; before the first
     * exchange it may wait its whole time for ranks. */
    uint64_t deadline_ns = now() + (joiner->seq == 0 ? joiner->timeout_ns : 0) +
                           sl_exchange_wait_ns(joiner->timeout_ns, joiner->seq + 1) +
                           2 * SL_NS_PER_S;
    uint8_t head[SL_FRAME_BYTES + SL_SEQ_BYTES];
    size_t share = len + sl_seal_len(joiner->keys.sealed);
    const void *bytes;

    if (joiner->broken != 0)
        return sl_fail(joiner->broken, "%s", joiner->why);
    sl_frame_make(SL_FRAME_GATHER, SL_SEQ_BYTES + share, head);
    sl_put(head + SL_FRAME_BYTES, ++joiner->seq, SL_SEQ_BYTES);
    int err = seal_share(joiner, head, in, len, &bytes);
    if (err != 0)
        return joiner_break(joiner, err);
    err = send_all(joiner->fd, head, sizeof(head), share > 0 ? MSG_MORE : 0, deadline_ns);
    err = err ?: send_all(joiner->fd, bytes, share, 0, deadline_ns);
    if (err == -ETIMEDOUT)
        return fail_host(joiner, err);
    /* When the send failed, rank 0 may have said why before. */
    return take_result(joiner, out, len * (size_t)exchange->size, deadline_ns);
}

static void joiner_close(struct sl_exchange *exchange)
{
    struct sl_joiner *joiner = sl_container_of(exchange, struct sl_joiner, base);

    if (joiner->fd >= 0)
        close(joiner->fd);
    free(joiner->sealed);
    explicit_bzero(&joiner->keys, sizeof(joiner->keys));
    explicit_bzero(&joiner->job, sizeof(joiner->job));
    free(joiner);
}

int sl_rendezvous_join(const struct sl_party *party, const struct sl_places *places,
                       struct sl_exchange **out)
{
    struct sl_terms terms = {.rank = party->rank,
                             .size = party->size,
                             .secret = party->secret,
                             .secret_len = strlen(party->secret)};
    struct sl_joiner *joiner = calloc(1, sizeof(*joiner));

    if (joiner == NULL)
        return sl_fail(-ENOMEM, "no memory for the meeting of %d ranks", party->size);
    joiner->base =
        (struct sl_exchange){party->rank, party->size, joiner_allgather, joiner_close, false, NULL};
    joiner->timeout_ns = party->timeout_ms * SL_NS_PER_MS;
    joiner->fd = -1;
    int err = sl_job_hash(party->job, terms.job);
    err = err ?: join(joiner, &terms, places);
    if (err != 0) {
        joiner_close(&joiner->base);
        return err;
    }
    if (joiner->keys.sealed)
        joiner->base.session = joiner->job.session;
    *out = &joiner->base;
    return 0;
}

static int alone_allgather(struct sl_exchange *exchange, const void *in, size_t len, void *out)
{
    (void)exchange;
    if (len > 0)
        memmove(out, in, len);
    return 0;
}

static void alone_close(struct sl_exchange *exchange)
{
    free(exchange);
}

int sl_rendezvous_alone(struct sl_exchange **out)
{
    struct sl_exchange *exchange = malloc(sizeof(*exchange));

    if (exchange == NULL)
        return sl_fail(-ENOMEM, "no memory for a communicator of one rank");
    *exchange = (struct sl_exchange){0, 1, alone_allgather, alone_close, true, NULL};
    *out = exchange;
    return 0;
}
