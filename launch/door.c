/* SPDX-License-Identifier: Apache-2.0 */
/* Accepts connections, challenges them and admits who proves to be a rank. */
#include "launch/door.h"

#include "core/clock.h"
#include "core/err.h"
#include "core/host.h"
#include "core/log.h"
#include "core/pending.h"
#include "launch/io.h"
#include "launch/nearby.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#define PENDING_MAX 128
#define ACCEPTS_MAX 64 /* at once: a flood must not keep us from members and proofs */
#define EVENTS_MAX 64
#define DOORS_MAX (2 * SL_LISTENERS_MAX + 2)

/* A connection that has proved nothing yet; SL_PENDING_HEARD: its hello was good, and it was
 * challenged. */
struct pending {
    struct sl_pending base;
    int fd; /* -1: free place */
    bool nearby;
    int rank;
    size_t got;
    struct sl_hello hello;
    uint8_t nonce[SL_NONCE_BYTES];
    uint8_t proof[SL_FRAME_BYTES + SL_MAC_BYTES];
};

struct listener {
    int fd;
    bool nearby; /* for processes of this host and user */
};

struct sl_door {
    const struct sl_terms *terms;
    const struct sl_job_keys *job;
    struct sl_door_owner owner;
    struct listener listener[DOORS_MAX];
    unsigned count;
    int epoll;      /* of listeners and pending connections; their index is the data */
    bool listening; /* listeners are watched: not in a full set before somebody's time is over */
    struct pending pending[PENDING_MAX];
    struct sl_pending_set set;
    struct sl_pending_log log;
};

static int watch(struct sl_door *door, int fd, unsigned idx, int op, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.u32 = idx};

    return epoll_ctl(door->epoll, op, fd, &event) == 0 ? 0 : -errno;
}

/* Its descriptor is somebody else's from here on. */
static void pending_leave(struct sl_door *door, struct pending *pending)
{
    watch(door, pending->fd, 0, EPOLL_CTL_DEL, 0);
    pending->fd = -1;
    sl_pending_remove(&door->set, &pending->base);
}

static void pending_drop(struct sl_door *door, struct pending *pending)
{
    int fd = pending->fd;

    pending_leave(door, pending);
    close(fd);
}

/* Says why in the log and to the peer, as far as its socket takes it at once. */
static void pending_refuse(struct sl_door *door, struct pending *pending, int code)
{
    uint8_t bytes[SL_FRAME_BYTES + 4 + SL_SENTENCE_MAX], rest[256];
    size_t len = sl_sentence_make(code, sluice_last_error(), bytes + SL_FRAME_BYTES);

    sl_pending_refused(&door->set, pending->base.from, sluice_last_error(), sl_io_now());
    if (code != -EBADMSG) { /* who speaks another protocol would not understand */
        sl_frame_make(SL_FRAME_REFUSE, len, bytes);
        (void)!send(pending->fd, bytes, SL_FRAME_BYTES + len, MSG_NOSIGNAL | MSG_DONTWAIT);
        shutdown(pending->fd, SHUT_WR);
        /* Closing with bytes unread would reset the connection and take the sentence with it. */
        for (int i = 0; i < 16 && recv(pending->fd, rest, sizeof(rest), MSG_DONTWAIT) > 0; i++)
            ;
    }
    pending_drop(door, pending);
}

static void pending_read(struct sl_door *door, struct pending *pending);

/* One that has been here long enough goes, after one more look at what it has to say. */
static bool make_room(struct sl_door *door, const char *why)
{
    struct sl_pending *victim = sl_pending_victim(&door->set, sl_io_now());
    struct pending *pending = sl_container_of(victim, struct pending, base);

    if (victim == NULL)
        return false;
    pending_read(door, pending);
    if (pending->fd >= 0) {
        sl_pending_refused(&door->set, pending->base.from, why, sl_io_now());
        pending_drop(door, pending);
    }
    return true;
}

/* peer NULL: a process of this host. */
static void take_in(struct sl_door *door, int fd, const struct sl_address *peer,
                    const struct ucred *process)
{
    struct pending *pending = door->pending;
    int on = 1;

    while (pending->fd >= 0)
        pending++;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    memset(pending, 0, sizeof(*pending));
    pending->fd = fd;
    pending->nearby = peer == NULL;
    if (peer != NULL)
        sl_pending_add(&door->set, &pending->base, &peer->any, sl_io_now());
    else
        sl_pending_add_user(&door->set, &pending->base, process->uid, process->pid, sl_io_now());
    if (watch(door, fd, DOORS_MAX + (unsigned)(pending - door->pending), EPOLL_CTL_ADD, EPOLLIN) ==
        0)
        pending_read(door, pending); /* its hello is there already, mostly */
    else
        pending_drop(door, pending);
}

/* The next connection of this host; processes of other users are no ranks. A descriptor or negative
 * errno. */
static int accept_nearby(struct sl_door *door, int listener, struct ucred *peer)
{
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    char from[64], why[96];

    if (fd < 0)
        return -errno;
    if (sl_host_same_user(fd, peer))
        return fd;
    snprintf(from, sizeof(from), "process %d of user %u", (int)peer->pid, (unsigned)peer->uid);
    snprintf(why, sizeof(why), "rank %d belongs to user %u", door->terms->rank,
             (unsigned)geteuid());
    sl_pending_refused(&door->set, from, why, sl_io_now());
    close(fd);
    return -ECONNABORTED;
}

static int accept_network(int listener, struct sl_address *peer)
{
    int fd =
        accept4(listener, (struct sockaddr *)&peer->any, &peer->len, SOCK_CLOEXEC | SOCK_NONBLOCK);

    return fd >= 0 ? fd : -errno;
}

static void accept_waiting(struct sl_door *door, const struct listener *listener)
{
    for (unsigned i = 0; i < ACCEPTS_MAX; i++) {
        struct sl_address peer = {.len = sizeof(peer.any)};
        struct ucred process;
        int fd;

        if (sl_pending_full(&door->set) &&
            !make_room(door, "it said nothing useful while others waited"))
            return;
        fd = listener->nearby ? accept_nearby(door, listener->fd, &process)
                              : accept_network(listener->fd, &peer);
        if (fd >= 0)
            take_in(door, fd, listener->nearby ? NULL : &peer, &process);
        else if (fd != -ECONNABORTED &&
                 ((fd != -EMFILE && fd != -ENFILE) ||
                  !make_room(door, "no file descriptor is left (raise ulimit -n)")))
            return;
    }
}

/* A whole hello has come: answers with a challenge. */
static int pending_challenge(struct sl_door *door, struct pending *pending)
{
    uint8_t bytes[SL_FRAME_BYTES + SL_NONCE_BYTES];
    int err = door->owner.expects(door->owner.owner, pending->rank);

    err = err ?: sl_random(pending->nonce, sizeof(pending->nonce));
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
static int pending_welcome(struct sl_door *door, struct pending *pending)
{
    uint8_t bytes[SL_FRAME_BYTES + SL_WELCOME_MAX], mac[SL_MAC_BYTES];
    struct sl_meeting_keys keys;
    struct sl_frame frame;
    int fd, len, err = sl_frame_parse(pending->proof, &frame);

    if (err == 0 && (frame.kind != SL_FRAME_PROOF || frame.len != SL_MAC_BYTES))
        err = sl_fail(-EBADMSG, "it sent something else than its proof");
    err = err ?: sl_proof_make(door->terms, false, &pending->hello, pending->nonce, mac);
    if (err != 0)
        return err;
    if (!sl_digest_equal(mac, pending->proof + SL_FRAME_BYTES, SL_MAC_BYTES))
        return sl_fail(-EPROTO, "rank %d has another secret (compare SLUICE_SECRET on both sides)",
                       pending->rank);
    err = door->owner.expects(door->owner.owner, pending->rank); /* two were challenged at once */
    err = err ?: sl_proof_make(door->terms, true, &pending->hello, pending->nonce, mac);
    err = err ?: sl_meeting_keys_make(door->terms, &pending->hello, pending->nonce, &keys);
    if (err != 0)
        return err;
    len = sl_welcome_make(&keys, mac, door->job, bytes + SL_FRAME_BYTES);
    if (len < 0)
        return len;
    sl_frame_make(SL_FRAME_WELCOME, (uint64_t)len, bytes);
    len += SL_FRAME_BYTES;
    if (send(pending->fd, bytes, (size_t)len, MSG_NOSIGNAL | MSG_DONTWAIT) != len)
        return sl_fail(-EBADMSG, "it does not take an answer");
    fd = pending->fd;
    pending_leave(door, pending);
    sl_debug("launch", "rank %d joined from %s", pending->rank, pending->base.from);
    door->owner.admit(door->owner.owner, pending->rank, fd, pending->nearby, &keys,
                      pending->base.from);
    return 0;
}

/* Reads what a stranger has to say, no more than fits its next message. */
static void pending_read(struct sl_door *door, struct pending *pending)
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
                sl_pending_refused(&door->set, pending->base.from,
                                   "it closed the connection before it said who it is",
                                   sl_io_now());
            pending_drop(door, pending);
            return;
        }
        pending->got += (size_t)got;
        if (!challenged) {
            err = sl_hello_check(door->terms, pending->hello.bytes, pending->got, &pending->rank);
            if (err > 0)
                err = pending_challenge(door, pending);
        } else if (pending->got == want) {
            err = pending_welcome(door, pending);
        }
        if (err < 0)
            pending_refuse(door, pending, err);
    }
}

static void drop_late(struct sl_door *door)
{
    struct sl_pending *late;

    while ((late = sl_pending_late(&door->set, sl_io_now())) != NULL) {
        sl_pending_refused(&door->set, late->from, "it did not say who it is in time", sl_io_now());
        pending_drop(door, sl_container_of(late, struct pending, base));
    }
}

static void watch_listeners(struct sl_door *door, bool listen)
{
    if (listen == door->listening)
        return;
    for (unsigned i = 0; i < door->count; i++)
        watch(door, door->listener[i].fd, i, EPOLL_CTL_MOD, listen ? EPOLLIN : 0);
    door->listening = listen;
}

void sl_door_round(struct sl_door *door)
{
    struct epoll_event events[EVENTS_MAX];
    int n = epoll_wait(door->epoll, events, EVENTS_MAX, 0);

    for (int i = 0; i < n; i++)
        if (events[i].data.u32 >= DOORS_MAX &&
            door->pending[events[i].data.u32 - DOORS_MAX].fd >= 0)
            pending_read(door, &door->pending[events[i].data.u32 - DOORS_MAX]);
    drop_late(door);
    for (int i = 0; i < n; i++)
        if (events[i].data.u32 < DOORS_MAX)
            accept_waiting(door, &door->listener[events[i].data.u32]);
    watch_listeners(door, !sl_pending_full(&door->set) ||
                              sl_pending_victim(&door->set, sl_io_now()) != NULL);
}

int sl_door_fd(const struct sl_door *door)
{
    return door->epoll;
}

uint64_t sl_door_due_ns(const struct sl_door *door)
{
    return sl_pending_next_ns(&door->set);
}

static int add_listener(struct sl_door *door, int fd, bool nearby)
{
    door->listener[door->count] = (struct listener){fd, nearby};
    return watch(door, fd, door->count++, EPOLL_CTL_ADD, door->listening ? EPOLLIN : 0);
}

int sl_door_listen(struct sl_door *door, const struct sl_listeners *listeners)
{
    int err = 0;

    sl_assert(door->count + listeners->count + listeners->has_nearby <= DOORS_MAX);
    for (unsigned i = 0; i < listeners->count; i++)
        err = add_listener(door, listeners->fd[i], false) ?: err;
    if (listeners->has_nearby)
        err = add_listener(door, listeners->nearby, true) ?: err;
    return err == 0 ? 0 : sl_fail(err, "the kernel watches no more sockets: %s", strerror(-err));
}

int sl_door_open(const struct sl_terms *terms, const struct sl_job_keys *job,
                 const struct sl_listeners *listeners, const struct sl_door_owner *owner,
                 struct sl_door **out)
{
    struct sl_listeners owned = *listeners;
    struct sl_door *door = calloc(1, sizeof(*door));
    int err;

    if (door == NULL) {
        sl_listeners_close(&owned);
        return sl_fail(-ENOMEM, "no memory for the meeting of %d ranks", terms->size);
    }
    for (unsigned i = 0; i < PENDING_MAX; i++)
        door->pending[i].fd = -1;
    door->terms = terms;
    door->job = job;
    door->owner = *owner;
    door->listening = true;
    sl_pending_init(&door->set, "launch", PENDING_MAX, &door->log);
    door->epoll = epoll_create1(EPOLL_CLOEXEC);
    err = door->epoll >= 0 ? 0 : sl_fail(-errno, "no epoll descriptor: %s", strerror(errno));
    if (err != 0)
        sl_listeners_close(&owned);
    err = err ?: sl_door_listen(door, listeners);
    if (err == 0)
        *out = door;
    else
        sl_door_close(door);
    return err;
}

void sl_door_close(struct sl_door *door)
{
    if (door == NULL)
        return;
    for (unsigned i = 0; i < PENDING_MAX; i++)
        if (door->pending[i].fd >= 0)
            pending_drop(door, &door->pending[i]);
    sl_pending_fini(&door->set);
    while (door->count > 0)
        close(door->listener[--door->count].fd);
    if (door->epoll >= 0)
        close(door->epoll);
    free(door);
}
