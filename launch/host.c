/* SPDX-License-Identifier: Apache-2.0 */
/* Rank 0 of a meeting: one poll loop lets proven ranks in, turns strangers away, and swaps bytes.
 *
 * A stranger costs one of GUESTS_MAX slots for at most HELLO_MS, and less when others wait: then
 * the oldest one older than GRACE_MS goes. Those that find no slot wait in the kernel's backlog. So
 * strangers can delay a rank but never keep it out, since a rank's hello takes two round trips and is
 * tried again. Once all ranks are in, the listening sockets are closed. */
#include "launch/rendezvous.h"

#include "core/clock.h"
#include "core/err.h"
#include "core/log.h"
#include "launch/wire.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define GUESTS_MAX 128
#define HELLO_MS 5000
#define GRACE_MS 1000
#define LOG_LINES_MAX 10 /* refusals that the log names in each LOG_PERIOD_MS; the rest are counted */
#define LOG_PERIOD_MS 10000
#define FAREWELL_MS 1000 /* how long an error may take to reach the other ranks */

/* A connection that has proved nothing yet. */
struct guest {
    int fd; /* -1: free slot */
    int rank;
    bool challenged;
    uint64_t born_ns;
    size_t got;
    struct sl_hello hello;
    uint8_t nonce[SL_NONCE_BYTES];
    uint8_t proof[SL_FRAME_BYTES + SL_MAC_BYTES];
    char name[SL_ADDRESS_TEXT_MAX];
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
    struct guest guest[GUESTS_MAX];
    unsigned guests, joined;
    struct member *member; /* [size], [0] unused */
    bool *missing;         /* [size], room for sentences that name ranks */
    struct pollfd *poll;   /* [size + GUESTS_MAX + SL_LISTENERS_MAX] */
    uint64_t log_start_ns;
    unsigned log_lines;
    int broken; /* the code that ended this exchange */
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

/* A refusal in the log, unless there were many lately: strangers must not fill disks. */
static void log_refusal(struct sl_host *host, const struct guest *guest, const char *why)
{
    uint64_t at = now();

    if (at - host->log_start_ns > LOG_PERIOD_MS * SL_NS_PER_MS) {
        if (host->log_lines > LOG_LINES_MAX)
            sl_warn("launch", "%u more connections were refused", host->log_lines - LOG_LINES_MAX);
        host->log_start_ns = at;
        host->log_lines = 0;
    }
    if (host->log_lines++ < LOG_LINES_MAX)
        sl_warn("launch", "refused a connection from %s: %s", guest->name, why);
}

static void guest_drop(struct sl_host *host, struct guest *guest)
{
    close(guest->fd);
    guest->fd = -1;
    host->guests--;
}

/* Says why in the log and to the peer, as far as its socket takes it at once. */
static void guest_refuse(struct sl_host *host, struct guest *guest, int code)
{
    uint8_t bytes[SL_FRAME_BYTES + 4 + SL_SENTENCE_MAX], rest[256];
    size_t len = sl_sentence_make(code, sluice_last_error(), bytes + SL_FRAME_BYTES);

    log_refusal(host, guest, sluice_last_error());
    if (code != -EBADMSG) { /* who speaks another protocol would not understand */
        sl_frame_make(SL_FRAME_REFUSE, len, bytes);
        (void)!send(guest->fd, bytes, SL_FRAME_BYTES + len, MSG_NOSIGNAL | MSG_DONTWAIT);
        shutdown(guest->fd, SHUT_WR);
        /* Closing with bytes unread would reset the connection and take the sentence with it. */
        for (int i = 0; i < 16 && recv(guest->fd, rest, sizeof(rest), MSG_DONTWAIT) > 0; i++)
            ;
    }
    guest_drop(host, guest);
}

static struct guest *oldest_guest(struct sl_host *host)
{
    struct guest *oldest = NULL;

    for (unsigned i = 0; i < GUESTS_MAX; i++)
        if (host->guest[i].fd >= 0 && (oldest == NULL || host->guest[i].born_ns < oldest->born_ns))
            oldest = &host->guest[i];
    return oldest;
}

static struct guest *free_slot(struct sl_host *host)
{
    if (host->guests == GUESTS_MAX) {
        struct guest *oldest = oldest_guest(host);

        if (now() - oldest->born_ns < GRACE_MS * SL_NS_PER_MS)
            return NULL;
        log_refusal(host, oldest, "it said nothing useful while others waited");
        guest_drop(host, oldest);
    }
    for (unsigned i = 0; i < GUESTS_MAX; i++)
        if (host->guest[i].fd < 0)
            return &host->guest[i];
    return NULL;
}

static void accept_guests(struct sl_host *host, int listener)
{
    struct guest *guest;

    while ((guest = free_slot(host)) != NULL) {
        struct sl_address peer = {.len = sizeof(peer.any)};
        int on = 1;
        int fd = accept4(listener, (struct sockaddr *)&peer.any, &peer.len,
                         SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd < 0 && (errno == EMFILE || errno == ENFILE) && host->guests > 0) {
            guest = oldest_guest(host);
            log_refusal(host, guest, "no file descriptor is left (raise ulimit -n)");
            guest_drop(host, guest);
            continue;
        }
        if (fd < 0)
            return;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        memset(guest, 0, sizeof(*guest));
        guest->fd = fd;
        guest->born_ns = now();
        sl_address_text(&peer, guest->name);
        host->guests++;
    }
}

/* A whole hello has come: answers with a challenge. */
static int guest_challenge(struct sl_host *host, struct guest *guest)
{
    uint8_t bytes[SL_FRAME_BYTES + SL_NONCE_BYTES];
    int err;

    if (host->member[guest->rank].fd >= 0)
        return sl_fail(-EPROTO, "there is a rank %d already (two processes with the same rank?)",
                       guest->rank);
    err = sl_random(guest->nonce, sizeof(guest->nonce));
    if (err != 0)
        return err;
    sl_frame_make(SL_FRAME_CHALLENGE, SL_NONCE_BYTES, bytes);
    memcpy(bytes + SL_FRAME_BYTES, guest->nonce, SL_NONCE_BYTES);
    if (send(guest->fd, bytes, sizeof(bytes), MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof(bytes))
        return sl_fail(-EBADMSG, "it does not take an answer");
    guest->challenged = true;
    guest->got = 0;
    return 0;
}

/* A whole proof has come: a good one makes its sender a member. */
static int guest_welcome(struct sl_host *host, struct guest *guest)
{
    uint8_t bytes[SL_FRAME_BYTES + SL_WELCOME_MAX], mac[SL_MAC_BYTES];
    struct sl_meeting_keys keys;
    struct sl_frame frame;
    int len, err = sl_frame_parse(guest->proof, &frame);

    if (err == 0 && (frame.kind != SL_FRAME_PROOF || frame.len != SL_MAC_BYTES))
        err = sl_fail(-EBADMSG, "it sent something else than its proof");
    err = err ?: sl_proof_make(&host->terms, false, &guest->hello, guest->nonce, mac);
    if (err != 0)
        return err;
    if (!sl_digest_equal(mac, guest->proof + SL_FRAME_BYTES, SL_MAC_BYTES))
        return sl_fail(-EPROTO, "rank %d has another secret (compare SLUICE_SECRET on both sides)",
                       guest->rank);
    if (host->member[guest->rank].fd >= 0) /* two were challenged at once */
        return sl_fail(-EPROTO, "there is a rank %d already (two processes with the same rank?)",
                       guest->rank);
    err = sl_proof_make(&host->terms, true, &guest->hello, guest->nonce, mac);
    err = err ?: sl_meeting_keys_make(&host->terms, &guest->hello, guest->nonce, &keys);
    if (err != 0)
        return err;
    len = sl_welcome_make(&keys, mac, &host->job, bytes + SL_FRAME_BYTES);
    if (len < 0)
        return len;
    sl_frame_make(SL_FRAME_WELCOME, (uint64_t)len, bytes);
    len += SL_FRAME_BYTES;
    if (send(guest->fd, bytes, (size_t)len, MSG_NOSIGNAL | MSG_DONTWAIT) != len)
        return sl_fail(-EBADMSG, "it does not take an answer");
    host->member[guest->rank].fd = guest->fd;
    host->member[guest->rank].keys = keys;
    host->joined++;
    sl_debug("launch", "rank %d joined from %s", guest->rank, guest->name);
    guest->fd = -1;
    host->guests--;
    return 0;
}

/* Reads what a stranger has to say, no more than fits its next message. */
static void guest_read(struct sl_host *host, struct guest *guest)
{
    while (guest->fd >= 0) {
        uint8_t *into = guest->challenged ? guest->proof : guest->hello.bytes;
        size_t want = guest->challenged ? sizeof(guest->proof) : SL_HELLO_BYTES;
        ssize_t got = recv(guest->fd, into + guest->got, want - guest->got, MSG_DONTWAIT);
        int err = 0;

        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (got <= 0) {
            if (guest->challenged) /* one of ours that lost patience and tries again */
                sl_debug("launch", "rank %d hung up at %s", guest->rank, guest->name);
            else
                log_refusal(host, guest, "it closed the connection before it said who it is");
            guest_drop(host, guest);
            return;
        }
        guest->got += (size_t)got;
        if (!guest->challenged) {
            err = sl_hello_check(&host->terms, guest->hello.bytes, guest->got, &guest->rank);
            if (err > 0)
                err = guest_challenge(host, guest);
        } else if (guest->got == want) {
            err = guest_welcome(host, guest);
        }
        if (err < 0)
            guest_refuse(host, guest, err);
    }
}

static void drop_late_guests(struct sl_host *host)
{
    for (unsigned i = 0; i < GUESTS_MAX; i++) {
        struct guest *guest = &host->guest[i];

        if (guest->fd >= 0 && now() - guest->born_ns >= HELLO_MS * SL_NS_PER_MS) {
            log_refusal(host, guest, "it did not say who it is in time");
            guest_drop(host, guest);
        }
    }
}

/* A FAILED frame as this member can open it. Returns its length. */
static size_t make_failed(const struct member *member, const uint8_t *body, size_t len,
                          uint8_t out[SL_FRAME_BYTES + 4 + SL_SENTENCE_MAX + SL_SEAL_BYTES])
{
    size_t all = len + sl_seal_len(member->keys.sealed);

    sl_frame_make(SL_FRAME_FAILED, all, out);
    if (member->keys.sealed && sl_seal(member->keys.down, SL_NUMBER_FAILED, NULL, 0, body, len,
                                       out + SL_FRAME_BYTES) != 0)
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
    sl_fail(-ETIMEDOUT, "rank%s %s of %d did not reach rank 0 at port %u within %.3g s; see their "
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

/* One round of the loop that waits for ranks. */
static int join_round(struct sl_host *host, uint64_t deadline_ns)
{
    unsigned n = 0, listeners = host->listeners.count;
    struct guest *oldest = oldest_guest(host);
    uint64_t until_ns = deadline_ns;
    bool full = host->guests == GUESTS_MAX;

    if (oldest != NULL) {
        uint64_t end_ns = oldest->born_ns + (full ? GRACE_MS : HELLO_MS) * SL_NS_PER_MS;

        until_ns = end_ns < until_ns ? end_ns : until_ns;
    }
    full = full && now() - oldest->born_ns < GRACE_MS * SL_NS_PER_MS;
    for (unsigned i = 0; i < listeners; i++)
        host->poll[n++] = (struct pollfd){full ? -1 : host->listeners.fd[i], POLLIN, 0};
    for (unsigned i = 0; i < GUESTS_MAX; i++)
        host->poll[n++] = (struct pollfd){host->guest[i].fd, POLLIN, 0};
    for (int i = 1; i < host->base.size; i++) /* POLLRDHUP alone: an early GATHER waits */
        host->poll[n++] = (struct pollfd){host->member[i].fd, POLLRDHUP, 0};
    if (poll(host->poll, n, poll_ms(until_ns)) < 0 && errno != EINTR)
        return poll_failed(errno);
    for (unsigned i = 0; i < GUESTS_MAX; i++)
        if (host->guest[i].fd >= 0 && host->poll[listeners + i].revents != 0)
            guest_read(host, &host->guest[i]);
    for (int i = 1; i < host->base.size; i++) {
        const struct pollfd *poll = &host->poll[listeners + GUESTS_MAX + (unsigned)i - 1];

        if (poll->fd >= 0 && poll->revents != 0) {
            int err = check_waiting_member(host, i);

            if (err != 0)
                return err;
        }
    }
    drop_late_guests(host);
    for (unsigned i = 0; i < listeners; i++)
        if (host->poll[i].revents != 0)
            accept_guests(host, host->listeners.fd[i]);
    return 0;
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
    /* Who still knocks finds the door closed and, if it belongs to the next job here, knocks again. */
    sl_listeners_close(&host->listeners);
    for (unsigned i = 0; i < GUESTS_MAX; i++)
        if (host->guest[i].fd >= 0)
            guest_drop(host, &host->guest[i]);
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
        err = sl_fail(-EPROTO, "rank %d gives %llu bytes to exchange %llu, rank 0 gives %zu; all "
                               "ranks must run the same program", rank,
                      (unsigned long long)(frame.len - around),
                      (unsigned long long)host->seq, len);
    return err == 0 ? 0 : host_break(host, err);
}

static int open_share(struct sl_host *host, int rank, uint8_t *share, size_t len)
{
    struct member *member = &host->member[rank];

    if (!member->keys.sealed || sl_unseal(member->keys.up, host->seq, member->head, sizeof(member->head),
                                          share, len, member->seal, share) == 0)
        return 1;
    return host_break(host, sl_fail(-EBADMSG, "what came from rank %d in exchange %llu was changed on the "
                                    "way: somebody between it and rank 0 rewrites it", rank,
                                    (unsigned long long)host->seq));
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
            (double)host->timeout_ns / (double)SL_NS_PER_S, (unsigned long long)host->seq);
    return host_break(host, -ETIMEDOUT);
}

/* Polls the members that are not through; step() moves one on and returns 1 once it is. */
static int each_member(struct sl_host *host, uint64_t deadline_ns, bool reading, uint8_t *bytes,
                       size_t len, size_t full,
                       int (*step)(struct sl_host *host, int rank, uint8_t *bytes, size_t len))
{
    int left = host->base.size - 1;

    for (int i = 1; i < host->base.size; i++)
        host->poll[i] = (struct pollfd){host->member[i].fd, reading ? POLLIN : POLLOUT, 0};
    while (left > 0) {
        int n = poll(host->poll + 1, (nfds_t)host->base.size - 1, poll_ms(deadline_ns));

        if (n < 0 && errno != EINTR)
            return poll_failed(errno);
        for (int i = 1; n > 0 && i < host->base.size; i++) {
            if (host->poll[i].fd < 0 || host->poll[i].revents == 0)
                continue;
            int err = step(host, i, bytes, len);

            if (err < 0)
                return err;
            if (err > 0) {
                host->poll[i].fd = -1;
                left--;
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
    uint64_t deadline_ns = now() + host->timeout_ns;
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
    return each_member(host, deadline_ns, false, result, all + seal, head + all + seal, give_result);
}

static void host_close(struct sl_exchange *exchange)
{
    struct sl_host *host = sl_container_of(exchange, struct sl_host, base);

    sl_listeners_close(&host->listeners);
    for (unsigned i = 0; i < GUESTS_MAX; i++)
        if (host->guest[i].fd >= 0)
            close(host->guest[i].fd);
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
    free(host);
}

static int host_make(const struct sl_party *party, struct sl_host **out)
{
    struct sl_host *host = calloc(1, sizeof(*host));
    size_t size = (size_t)party->size;

    if (host == NULL)
        goto err_memory;
    for (unsigned i = 0; i < GUESTS_MAX; i++)
        host->guest[i].fd = -1;
    host->base = (struct sl_exchange){0, party->size, host_allgather, host_close, NULL};
    host->timeout_ns = party->timeout_ms * SL_NS_PER_MS;
    snprintf(host->secret, sizeof(host->secret), "%s", party->secret);
    host->terms = (struct sl_terms){.rank = 0, .size = party->size, .secret = host->secret,
                                    .secret_len = strlen(host->secret)};
    host->log_start_ns = now();
    host->member = calloc(size, sizeof(*host->member));
    host->missing = calloc(size, sizeof(*host->missing));
    host->poll = calloc(size + GUESTS_MAX + SL_LISTENERS_MAX, sizeof(*host->poll));
    if (host->member == NULL || host->missing == NULL || host->poll == NULL)
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
    if (*party->secret == '\0' && !owned.loopback)
        sl_warn("launch", "no secret is set: anyone who can reach port %u can join this job as a rank; "
                          "set the same SLUICE_SECRET on all ranks", owned.port);
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
