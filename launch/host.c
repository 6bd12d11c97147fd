/* SPDX-License-Identifier: Apache-2.0 */
/* Rank 0 of a meeting: one poll loop lets proven ranks in, turns strangers away, and swaps bytes.
 *
 * Who has proved nothing is a pending connection by the rules of core/pending.h: those that find no
 * place wait in the kernel. So strangers can delay a rank but never keep it out, since a rank's
 * hello is there as it is accepted, its proof a round trip later, and it stays in the queue or
 * comes again until it is let in. Once all ranks are in, the listening sockets are closed. */
#include "launch/rendezvous.h"

#include "core/clock.h"
#include "core/err.h"
#include "core/host.h"
#include "core/log.h"
#include "core/pending.h"
#include "launch/nearby.h"
#include "launch/wire.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PENDING_MAX 128
#define ACCEPTS_MAX 64   /* at once: a flood must not keep us from members and proofs */
#define FAREWELL_MS 1000 /* how long an error may take to reach the other ranks */

/* A connection that has proved nothing yet; SL_PENDING_HEARD: its hello was good, and it was
 * challenged. */
struct pending {
    struct sl_pending base;
    int fd; /* -1: free place */
    int rank;
    size_t got;
    struct sl_hello hello;
    uint8_t nonce[SL_NONCE_BYTES];
    uint8_t proof[SL_FRAME_BYTES + SL_MAC_BYTES];
};

/* A rank that has proved itself. */
struct member {
    int fd; /* -1: not here yet */
    size_t got, sent;
    bool partial; /* a result is under way: no other frame may be sent */
    struct sl_meeting_keys keys;
    uint8_t head[SL_FRAME_BYTES + SL_SEQ_BYTES];
    uint8_t seal[SL_SEAL_BYTES];
};

struct sl_host {
    struct sl_exchange base;
    struct sl_terms terms;
    struct sl_job_keys job;
    struct sl_listeners listeners;
    uint64_t timeout_ns, seq;
    uint8_t *sealed; /* a result as it goes out, the same for all */
    size_t sealed_cap;
    struct pending pending[PENDING_MAX];
    struct sl_pending_set set;
    struct sl_pending_log log;
    unsigned joined;
    struct member *member; /* [size], [0] unused */
    bool *missing;         /* [size], room for sentences that name ranks */
    struct pollfd *poll;   /* [size + PENDING_MAX + SL_LISTENERS_MAX + 1], as many as there are */
    int *polled;           /* [the same]: which one each is */
    int broken;            /* the code that ended this exchange */
    char why[SL_SENTENCE_MAX + 1];
    char secret[SL_TEXT_MAX];
};

static uint64_t now(void)
{
    return sl_now(&sl_clock_monotonic);
}

static int poll_ms(uint64_t until_ns)
{
    uint64_t at = now();

    if (at >= until_ns)
        return 0;
    uint64_t ms = (until_ns - at) / SL_NS_PER_MS + 1;
    return ms > 60000 ? 60000 : (int)ms;
}

static void pending_drop(struct sl_host *host, struct pending *pending)
{
    close(pending->fd);
    pending->fd = -1;
    sl_pending_remove(&host->set, &pending->base);
}

/* Says why in the log and to the peer, as far as its socket takes it at once. */
static void pending_refuse(struct sl_host *host, struct pending *pending, int code)
{
    uint8_t bytes[SL_FRAME_BYTES + 4 + SL_SENTENCE_MAX], rest[256];
    size_t len = sl_sentence_make(code, sluice_last_error(), bytes + SL_FRAME_BYTES);

    sl_pending_refused(&host->set, pending->base.from, sluice_last_error(), now());
    if (code != -EBADMSG) { /* who speaks another protocol would not understand */
        sl_frame_make(SL_FRAME_REFUSE, len, bytes);
        (void)!send(pending->fd, bytes, SL_FRAME_BYTES + len, MSG_NOSIGNAL | MSG_DONTWAIT);
        shutdown(pending->fd, SHUT_WR);
        /* Closing with bytes unread would reset the connection and take the sentence with it. */
        for (int i = 0; i < 16 && recv(pending->fd, rest, sizeof(rest), MSG_DONTWAIT) > 0; i++)
            ;
    }
    pending_drop(host, pending);
}

static void pending_read(struct sl_host *host, struct pending *pending);

/* One that has been here long enough goes, after one more look at what it has to say. */
static bool make_room(struct sl_host *host, const char *why)
{
    struct sl_pending *victim = sl_pending_victim(&host->set, now());
    struct pending *pending = sl_container_of(victim, struct pending, base);

    if (victim == NULL)
        return false;
    pending_read(host, pending);
    if (pending->fd >= 0) {
        sl_pending_refused(&host->set, pending->base.from, why, now());
        pending_drop(host, pending);
    }
    return true;
}

/* peer NULL: a process of this host. */
static void take_in(struct sl_host *host, int fd, const struct sl_address *peer,
                    const struct ucred *process)
{
    struct pending *pending = host->pending;
    int on = 1;

    while (pending->fd >= 0)
        pending++;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    memset(pending, 0, sizeof(*pending));
    pending->fd = fd;
    if (peer != NULL)
        sl_pending_add(&host->set, &pending->base, &peer->any, now());
    else
        sl_pending_add_user(&host->set, &pending->base, process->uid, process->pid, now());
    pending_read(host, pending); /* its hello is there already, mostly */
}

/* The next connection of this host; processes of other users are no ranks. A descriptor or negative
 * errno. */
static int accept_nearby(struct sl_host *host, struct ucred *peer)
{
    int fd = accept4(host->listeners.nearby, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    char from[64], why[96];

    if (fd < 0)
        return -errno;
    if (sl_host_same_user(fd, peer))
        return fd;
    snprintf(from, sizeof(from), "process %d of user %u", (int)peer->pid, (unsigned)peer->uid);
    snprintf(why, sizeof(why), "rank 0 belongs to user %u", (unsigned)geteuid());
    sl_pending_refused(&host->set, from, why, now());
    close(fd);
    return -ECONNABORTED;
}

static int accept_network(int listener, struct sl_address *peer)
{
    int fd =
        accept4(listener, (struct sockaddr *)&peer->any, &peer->len, SOCK_CLOEXEC | SOCK_NONBLOCK);

    return fd >= 0 ? fd : -errno;
}

/* listener: -1 is the one for this host. */
static void accept_waiting(struct sl_host *host, int listener)
{
    for (unsigned i = 0; i < ACCEPTS_MAX; i++) {
        struct sl_address peer = {.len = sizeof(peer.any)};
        struct ucred process;
        int fd;

        if (sl_pending_full(&host->set) &&
            !make_room(host, "it said nothing useful while others waited"))
            return;
        fd = listener < 0 ? accept_nearby(host, &process) : accept_network(listener, &peer);
        if (fd >= 0)
            take_in(host, fd, listener < 0 ? NULL : &peer, &process);
        else if (fd != -ECONNABORTED &&
                 ((fd != -EMFILE && fd != -ENFILE) ||
                  !make_room(host, "no file descriptor is left (raise ulimit -n)")))
            return;
    }
}

/* A whole hello has come: answers with a challenge. */
static int pending_challenge(struct sl_host *host, struct pending *pending)
{
    uint8_t bytes[SL_FRAME_BYTES + SL_NONCE_BYTES];
    int err;

    if (host->member[pending->rank].fd >= 0)
        return sl_fail(-EPROTO, "there is a rank %d already (two processes with the same rank?)",
                       pending->rank);
    err = sl_random(pending->nonce, sizeof(pending->nonce));
    if (err != 0)
        return err;
    sl_frame_make(SL_FRAME_CHALLENGE, SL_NONCE_BYTES, bytes);
    memcpy(bytes + SL_FRAME_BYTES, pending->nonce, SL_NONCE_BYTES);
    if (send(pending->fd, bytes, sizeof(bytes), MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof(bytes))
        return sl_fail(-EBADMSG, "it does not take an answer");
    pending->base.standing = SL_PENDING_HEARD;
    pending->got = 0;
    return 0;
}

/* A whole proof has come: a good one makes its sender a member. */
static int pending_welcome(struct sl_host *host, struct pending *pending)
{
    uint8_t bytes[SL_FRAME_BYTES + SL_WELCOME_MAX], mac[SL_MAC_BYTES];
    struct sl_meeting_keys keys;
    struct sl_frame frame;
    int len, err = sl_frame_parse(pending->proof, &frame);

    if (err == 0 && (frame.kind != SL_FRAME_PROOF || frame.len != SL_MAC_BYTES))
        err = sl_fail(-EBADMSG, "it sent something else than its proof");
    err = err ?: sl_proof_make(&host->terms, false, &pending->hello, pending->nonce, mac);
    if (err != 0)
        return err;
    if (!sl_digest_equal(mac, pending->proof + SL_FRAME_BYTES, SL_MAC_BYTES))
        return sl_fail(-EPROTO, "rank %d has another secret (compare SLUICE_SECRET on both sides)",
                       pending->rank);
    if (host->member[pending->rank].fd >= 0) /* two were challenged at once */
        return sl_fail(-EPROTO, "there is a rank %d already (two processes with the same rank?)",
                       pending->rank);
    err = sl_proof_make(&host->terms, true, &pending->hello, pending->nonce, mac);
    err = err ?: sl_meeting_keys_make(&host->terms, &pending->hello, pending->nonce, &keys);
    if (err != 0)
        return err;
    len = sl_welcome_make(&keys, mac, &host->job, bytes + SL_FRAME_BYTES);
    if (len < 0)
        return len;
    sl_frame_make(SL_FRAME_WELCOME, (uint64_t)len, bytes);
    len += SL_FRAME_BYTES;
    if (send(pending->fd, bytes, (size_t)len, MSG_NOSIGNAL | MSG_DONTWAIT) != len)
        return sl_fail(-EBADMSG, "it does not take an answer");
    host->member[pending->rank].fd = pending->fd;
    host->member[pending->rank].keys = keys;
    host->joined++;
    sl_debug("launch", "rank %d joined from %s", pending->rank, pending->base.from);
    pending->fd = -1;
    sl_pending_remove(&host->set, &pending->base);
    return 0;
}

/* Reads what a stranger has to say, no more than fits its next message. */
static void pending_read(struct sl_host *host, struct pending *pending)
{
    while (pending->fd >= 0) {
        bool challenged = pending->base.standing == SL_PENDING_HEARD;
        uint8_t *into = challenged ? pending->proof : pending->hello.bytes;
        size_t want = challenged ? sizeof(pending->proof) : SL_HELLO_BYTES;
        ssize_t got = recv(pending->fd, into + pending->got, want - pending->got, MSG_DONTWAIT);
        int err = 0;

        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (got <= 0) {
            if (challenged) /* one of ours that lost patience and tries again */
                sl_debug("launch", "rank %d hung up at %s", pending->rank, pending->base.from);
            else
                sl_pending_refused(&host->set, pending->base.from,
                                   "it closed the connection before it said who it is", now());
            pending_drop(host, pending);
            return;
        }
        pending->got += (size_t)got;
        if (!challenged) {
            err = sl_hello_check(&host->terms, pending->hello.bytes, pending->got, &pending->rank);
            if (err > 0)
                err = pending_challenge(host, pending);
        } else if (pending->got == want) {
            err = pending_welcome(host, pending);
        }
        if (err < 0)
            pending_refuse(host, pending, err);
    }
}

static void drop_late(struct sl_host *host)
{
    struct sl_pending *late;

    while ((late = sl_pending_late(&host->set, now())) != NULL) {
        sl_pending_refused(&host->set, late->from, "it did not say who it is in time", now());
        pending_drop(host, sl_container_of(late, struct pending, base));
    }
}

/* A FAILED frame as this member can open it. Returns its length. */
static size_t make_failed(const struct member *member, const uint8_t *body, size_t len,
                          uint8_t out[SL_FRAME_BYTES + 4 + SL_SENTENCE_MAX + SL_SEAL_BYTES])
{
    size_t all = len + sl_seal_len(member->keys.sealed);

    sl_frame_make(SL_FRAME_FAILED, all, out);
    if (member->keys.sealed &&
        sl_seal(member->keys.down, SL_NUMBER_FAILED, NULL, 0, body, len, out + SL_FRAME_BYTES) != 0)
        return 0;
    if (!member->keys.sealed)
        memcpy(out + SL_FRAME_BYTES, body, len);
    return SL_FRAME_BYTES + all;
}

/* Tells every member that it is over, and why; the exchange stays broken. */
static int host_break(struct sl_host *host, int code)
{
    uint8_t bytes[SL_FRAME_BYTES + 4 + SL_SENTENCE_MAX + SL_SEAL_BYTES], body[4 + SL_SENTENCE_MAX];
    size_t len = sl_sentence_make(code, sluice_last_error(), body);
    uint64_t until_ns = now() + FAREWELL_MS * SL_NS_PER_MS;

    host->broken = code;
    snprintf(host->why, sizeof(host->why), "%s", sluice_last_error());
    for (int i = 1; i < host->base.size; i++) {
        struct pollfd wait = {.fd = host->member[i].fd, .events = POLLOUT};
        size_t sent = 0, all = wait.fd >= 0 ? make_failed(&host->member[i], body, len, bytes) : 0;

        /* In the middle of a result, a frame would be taken for its bytes: the end says enough. */
        while (wait.fd >= 0 && !host->member[i].partial && sent < all) {
            ssize_t n = send(wait.fd, bytes + sent, all - sent, MSG_NOSIGNAL | MSG_DONTWAIT);

            if (n > 0)
                sent += (size_t)n;
            else if (errno != EAGAIN || poll(&wait, 1, poll_ms(until_ns)) <= 0)
                break;
        }
        if (wait.fd >= 0)
            shutdown(wait.fd, SHUT_WR);
    }
    return sl_fail(code, "%s", host->why);
}

static int fail_missing(struct sl_host *host)
{
    char list[256];

    for (int i = 0; i < host->base.size; i++)
        host->missing[i] = i > 0 && host->member[i].fd < 0;
    sl_rank_list(host->missing, host->base.size, list, sizeof(list));
    sl_fail(-ETIMEDOUT,
            "rank%s %s of %d did not reach rank 0 at port %u within %.3g s; see their "
            "output, and whether a firewall closes the port",
            host->base.size - 1 - (int)host->joined > 1 ? "s" : "", list, host->base.size,
            host->listeners.port, (double)host->timeout_ns / (double)SL_NS_PER_S);
    return host_break(host, -ETIMEDOUT);
}

/* While ranks are awaited, members are silent: bytes are a mistake, an end is a death. */
static int check_waiting_member(struct sl_host *host, int rank)
{
    char byte;
    ssize_t got = recv(host->member[rank].fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

    if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR)))
        return 0; /* its first GATHER may be early */
    sl_fail(-ECONNRESET, "rank %d went away while ranks were still awaited; see its output", rank);
    return host_break(host, -ECONNRESET);
}

/* The kernel takes no longer list of descriptors than may be open. */
static int poll_failed(int err)
{
    return sl_fail(-err, "poll of the ranks' connections failed: %s%s", strerror(err),
                   err == EINVAL ? "; raise 'ulimit -n'" : "");
}

static unsigned poll_add(struct sl_host *host, unsigned n, int fd, short events, int which)
{
    host->poll[n] = (struct pollfd){fd, events, 0};
    host->polled[n] = which;
    return n + 1;
}

/* The kernel takes no longer list of descriptors than may be open, so only what is there is on it:
 * listeners, pending connections up to *members, members up to the return value. */
static unsigned poll_list(struct sl_host *host, bool listen, unsigned *pending, unsigned *members)
{
    unsigned n = 0;

    for (unsigned i = 0; listen && i < host->listeners.count; i++)
        n = poll_add(host, n, host->listeners.fd[i], POLLIN, host->listeners.fd[i]);
    if (listen && host->listeners.has_nearby)
        n = poll_add(host, n, host->listeners.nearby, POLLIN, -1);
    *pending = n;
    for (int i = 0; i < PENDING_MAX; i++)
        if (host->pending[i].fd >= 0)
            n = poll_add(host, n, host->pending[i].fd, POLLIN, i);
    *members = n;
    for (int i = 1; i < host->base.size; i++)
        if (host->member[i].fd >= 0) /* POLLRDHUP alone: an early GATHER waits */
            n = poll_add(host, n, host->member[i].fd, POLLRDHUP, i);
    return n;
}

/* One round of the loop that waits for ranks. */
static int join_round(struct sl_host *host, uint64_t deadline_ns)
{
    uint64_t due_ns = sl_pending_next_ns(&host->set);
    /* In a full set nobody is accepted before somebody's time is over. */
    bool listen = !sl_pending_full(&host->set) || sl_pending_victim(&host->set, now()) != NULL;
    unsigned pending, members, count = poll_list(host, listen, &pending, &members);

    if (poll(host->poll, count, poll_ms(due_ns < deadline_ns ? due_ns : deadline_ns)) < 0 &&
        errno != EINTR)
        return poll_failed(errno);
    for (unsigned i = pending; i < members; i++)
        if (host->poll[i].revents != 0)
            pending_read(host, &host->pending[host->polled[i]]);
    for (unsigned i = members; i < count; i++) {
        int err = host->poll[i].revents != 0 ? check_waiting_member(host, host->polled[i]) : 0;

        if (err != 0)
            return err;
    }
    drop_late(host);
    for (unsigned i = 0; i < pending; i++)
        if (host->poll[i].revents != 0)
            accept_waiting(host, host->polled[i]);
    return 0;
}

static void drop_all(struct sl_host *host)
{
    for (unsigned i = 0; i < PENDING_MAX; i++)
        if (host->pending[i].fd >= 0)
            pending_drop(host, &host->pending[i]);
    sl_pending_fini(&host->set);
}

static int await_ranks(struct sl_host *host)
{
    uint64_t deadline_ns = now() + host->timeout_ns;

    while ((int)host->joined < host->base.size - 1) {
        int err = join_round(host, deadline_ns);

        if (err != 0)
            return err;
        if ((int)host->joined < host->base.size - 1 && now() >= deadline_ns)
            return fail_missing(host);
    }
    /* Who still knocks finds the door closed and, if it belongs to the next job here, knocks
     * again. */
    sl_listeners_close(&host->listeners);
    drop_all(host);
    return 0;
}

static int fail_gone(struct sl_host *host, int rank, int why)
{
    sl_fail(-ECONNRESET, "rank %d went away during exchange %llu%s%s; see its output", rank,
            (unsigned long long)host->seq, why != 0 ? ": " : "", why != 0 ? strerror(why) : "");
    return host_break(host, -ECONNRESET);
}

static int check_head(struct sl_host *host, int rank, size_t len)
{
    const uint8_t *head = host->member[rank].head;
    size_t around = SL_SEQ_BYTES + sl_seal_len(host->member[rank].keys.sealed);
    unsigned long long seq = sl_get64(head + SL_FRAME_BYTES);
    struct sl_frame frame;
    int err = sl_frame_parse(head, &frame);

    if (err == 0 && (frame.kind != SL_FRAME_GATHER || frame.len < around))
        err = sl_fail(-EBADMSG, "rank %d sent a frame of kind %d of %llu bytes in exchange %llu",
                      rank, (int)frame.kind, (unsigned long long)frame.len,
                      (unsigned long long)host->seq);
    else if (err == 0 && seq != host->seq)
        err = sl_fail(-EPROTO, "rank %d is at exchange %llu, rank 0 at exchange %llu", rank, seq,
                      (unsigned long long)host->seq);
    else if (err == 0 && frame.len - around != len)
        err = sl_fail(-EPROTO,
                      "rank %d gives %llu bytes to exchange %llu, rank 0 gives %zu; all "
                      "ranks must run the same program",
                      rank, (unsigned long long)(frame.len - around), (unsigned long long)host->seq,
                      len);
    return err == 0 ? 0 : host_break(host, err);
}

static int open_share(struct sl_host *host, int rank, uint8_t *share, size_t len)
{
    struct member *member = &host->member[rank];

    if (!member->keys.sealed ||
        sl_unseal(member->keys.up, host->seq, member->head, sizeof(member->head), share, len,
                  member->seal, share) == 0)
        return 1;
    return host_break(host, sl_fail(-EBADMSG,
                                    "what came from rank %d in exchange %llu was changed on the "
                                    "way: somebody between it and rank 0 rewrites it",
                                    rank, (unsigned long long)host->seq));
}

/* Takes what rank sends of its share: head, bytes, seal. 1: all of it is here. */
static int member_read(struct sl_host *host, int rank, uint8_t *share, size_t len)
{
    struct member *member = &host->member[rank];
    size_t head = sizeof(member->head), full = head + len + sl_seal_len(member->keys.sealed);

    while (member->got < full) {
        bool in_head = member->got < head, in_share = !in_head && member->got < head + len;
        uint8_t *into = in_head    ? member->head + member->got
                        : in_share ? share + (member->got - head)
                                   : member->seal + (member->got - head - len);
        size_t want = (in_head ? head : in_share ? head + len : full) - member->got;
        ssize_t got = recv(member->fd, into, want, MSG_DONTWAIT);

        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            return 0;
        if (got <= 0)
            return fail_gone(host, rank, got < 0 ? errno : 0);
        member->got += (size_t)got;
        if (in_head && member->got == head) {
            int err = check_head(host, rank, len);

            if (err != 0)
                return err;
        }
    }
    return open_share(host, rank, share, len);
}

static int fail_silent(struct sl_host *host, bool reading, size_t full)
{
    char list[256];

    for (int i = 0; i < host->base.size; i++)
        host->missing[i] = i > 0 && (reading ? host->member[i].got : host->member[i].sent) < full;
    sl_rank_list(host->missing, host->base.size, list, sizeof(list));
    sl_fail(-ETIMEDOUT, "%s rank %s of %d within %.3g s in exchange %llu; stopped or cut off?",
            reading ? "nothing came from" : "no result could be sent to", list, host->base.size,
            (double)sl_exchange_wait_ns(host->timeout_ns, host->seq) / (double)SL_NS_PER_S,
            (unsigned long long)host->seq);
    return host_break(host, -ETIMEDOUT);
}

/* Polls the members that are not through; step() moves one on and returns 1 once it is. */
static int each_member(struct sl_host *host, uint64_t deadline_ns, bool reading, uint8_t *bytes,
                       size_t len, size_t full,
                       int (*step)(struct sl_host *host, int rank, uint8_t *bytes, size_t len))
{
    unsigned left = 0;

    for (int i = 1; i < host->base.size; i++)
        left = poll_add(host, left, host->member[i].fd, reading ? POLLIN : POLLOUT, i);
    while (left > 0) {
        int n = poll(host->poll, left, poll_ms(deadline_ns));

        if (n < 0 && errno != EINTR)
            return poll_failed(errno);
        for (unsigned i = 0; n > 0 && i < left; i++) {
            int err = host->poll[i].revents != 0 ? step(host, host->polled[i], bytes, len) : 0;

            if (err < 0)
                return err;
            if (err > 0) { /* the last one takes its place, and its turn */
                host->poll[i] = host->poll[--left];
                host->polled[i] = host->polled[left];
                i--;
            }
        }
        if (n <= 0 && left > 0 && now() >= deadline_ns)
            return fail_silent(host, reading, full);
    }
    return 0;
}

static int take_share(struct sl_host *host, int rank, uint8_t *out, size_t len)
{
    return member_read(host, rank, out + (size_t)rank * len, len);
}

static void result_head(const struct sl_host *host, size_t len,
                        uint8_t out[SL_FRAME_BYTES + SL_SEQ_BYTES])
{
    sl_frame_make(SL_FRAME_RESULT, SL_SEQ_BYTES + len, out);
    sl_put(out + SL_FRAME_BYTES, host->seq, SL_SEQ_BYTES);
}

/* What goes out for a result of len bytes: itself, or sealed once for all ranks. */
static int seal_result(struct sl_host *host, uint8_t *result, size_t len, uint8_t **out)
{
    uint8_t head[SL_FRAME_BYTES + SL_SEQ_BYTES];

    *out = result;
    if (host->terms.secret_len == 0)
        return 0;
    if (host->sealed_cap < len + SL_SEAL_BYTES) {
        free(host->sealed);
        host->sealed_cap = 0;
        host->sealed = malloc(len + SL_SEAL_BYTES);
        if (host->sealed == NULL)
            return host_break(host, sl_fail(-ENOMEM, "no memory to seal %zu bytes", len));
        host->sealed_cap = len + SL_SEAL_BYTES;
    }
    *out = host->sealed;
    result_head(host, len + SL_SEAL_BYTES, head);
    int err = sl_seal(host->job.result, host->seq, head, sizeof(head), result, len, host->sealed);
    return err == 0 ? 0 : host_break(host, err);
}

/* Sends what is left of the header and of all len bytes. */
static int give_result(struct sl_host *host, int rank, uint8_t *out, size_t len)
{
    struct member *member = &host->member[rank];
    uint8_t head[SL_FRAME_BYTES + SL_SEQ_BYTES];

    result_head(host, len, head);
    while (member->sent < sizeof(head) + len) {
        bool in_head = member->sent < sizeof(head);
        const uint8_t *from = in_head ? head + member->sent : out + (member->sent - sizeof(head));
        size_t want = (in_head ? sizeof(head) : sizeof(head) + len) - member->sent;
        ssize_t n = send(member->fd, from, want,
                         MSG_NOSIGNAL | MSG_DONTWAIT | (in_head && len > 0 ? MSG_MORE : 0));

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return 0;
        if (n <= 0)
            return fail_gone(host, rank, errno);
        member->sent += (size_t)n;
        member->partial = member->sent < sizeof(head) + len;
    }
    return 1;
}

static int host_allgather(struct sl_exchange *exchange, const void *in, size_t len, void *out)
{
    struct sl_host *host = sl_container_of(exchange, struct sl_host, base);
    uint64_t deadline_ns = now() + sl_exchange_wait_ns(host->timeout_ns, host->seq + 1);
    size_t head = SL_FRAME_BYTES + SL_SEQ_BYTES, all = len * (size_t)exchange->size;
    size_t seal = sl_seal_len(host->terms.secret_len > 0);
    uint8_t *result;
    int err;

    if (host->broken != 0)
        return sl_fail(host->broken, "%s", host->why);
    host->seq++;
    for (int i = 1; i < exchange->size; i++)
        host->member[i].got = host->member[i].sent = 0;
    if (len > 0)
        memmove(out, in, len);
    err = each_member(host, deadline_ns, true, out, len, head + len + seal, take_share);
    err = err ?: seal_result(host, out, all, &result);
    if (err != 0)
        return err;
    return each_member(host, deadline_ns, false, result, all + seal, head + all + seal,
                       give_result);
}

static void host_close(struct sl_exchange *exchange)
{
    struct sl_host *host = sl_container_of(exchange, struct sl_host, base);

    sl_listeners_close(&host->listeners);
    drop_all(host);
    for (int i = 1; host->member != NULL && i < exchange->size; i++)
        if (host->member[i].fd >= 0)
            close(host->member[i].fd);
    explicit_bzero(host->secret, sizeof(host->secret));
    explicit_bzero(&host->job, sizeof(host->job));
    if (host->member != NULL)
        explicit_bzero(host->member, (size_t)exchange->size * sizeof(*host->member));
    free(host->sealed);
    free(host->member);
    free(host->missing);
    free(host->poll);
    free(host->polled);
    free(host);
}

static int host_make(const struct sl_party *party, struct sl_host **out)
{
    struct sl_host *host = calloc(1, sizeof(*host));
    size_t size = (size_t)party->size;

    if (host == NULL)
        goto err_memory;
    for (unsigned i = 0; i < PENDING_MAX; i++)
        host->pending[i].fd = -1;
    sl_pending_init(&host->set, "launch", PENDING_MAX, &host->log);
    host->base = (struct sl_exchange){0, party->size, host_allgather, host_close, true, NULL};
    host->timeout_ns = party->timeout_ms * SL_NS_PER_MS;
    snprintf(host->secret, sizeof(host->secret), "%s", party->secret);
    host->terms = (struct sl_terms){
        .rank = 0, .size = party->size, .secret = host->secret, .secret_len = strlen(host->secret)};
    host->member = calloc(size, sizeof(*host->member));
    host->missing = calloc(size, sizeof(*host->missing));
    host->poll = calloc(size + PENDING_MAX + SL_LISTENERS_MAX + 1, sizeof(*host->poll));
    host->polled = calloc(size + PENDING_MAX + SL_LISTENERS_MAX + 1, sizeof(*host->polled));
    if (host->member == NULL || host->missing == NULL || host->poll == NULL || host->polled == NULL)
        goto err_close;
    for (size_t i = 0; i < size; i++)
        host->member[i].fd = -1;
    *out = host;
    return 0;

err_close:
    host_close(&host->base);
err_memory:
    return sl_fail(-ENOMEM, "no memory for the meeting of %d ranks", party->size);
}

/* New ones for each job, whose members learn nothing of the next by them. */
static int make_job_keys(struct sl_host *host)
{
    int err;

    if (host->terms.secret_len == 0)
        return 0;
    err = sl_random(host->job.job, sizeof(host->job.job));
    err = err ?: sl_job_keys_derive(&host->job);
    host->base.session = host->job.session;
    return err;
}

int sl_rendezvous_host(const struct sl_party *party, const struct sl_listeners *listeners,
                       struct sl_exchange **out)
{
    struct sl_listeners owned = *listeners;
    struct sl_host *host = NULL;
    int err = host_make(party, &host);

    if (err != 0) {
        sl_listeners_close(&owned);
        return err;
    }
    host->listeners = owned;
    if (*party->secret == '\0' && owned.count > 0)
        sl_warn("launch",
                "no secret is set: anyone %s can join this job as a rank at port %u; set the same "
                "SLUICE_SECRET on all ranks",
                owned.loopback ? "on this host" : "who can reach it", owned.port);
    err = sl_job_hash(party->job, host->terms.job);
    err = err ?: make_job_keys(host);
    err = err ?: await_ranks(host);
    if (err != 0) {
        host_close(&host->base);
        return err;
    }
    *out = &host->base;
    return 0;
}
