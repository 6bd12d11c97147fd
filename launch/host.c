/* SPDX-License-Identifier: Apache-2.0 */
/* Rank 0 of a meeting: lets the others in, tells each where its parent in the tree is, and stays
 * until each has found its place. Its connections then end, but those to its children. */
#include "launch/rendezvous.h"

#include "core/clock.h"
#include "core/err.h"
#include "core/log.h"
#include "launch/descriptors.h"
#include "launch/door.h"
#include "launch/gather.h"
#include "launch/seat.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#define FAREWELL_MS 1000 /* how long an error may take to reach the other ranks */
#define PATIENCE_MS 1000 /* for ranks that could not find their places to say so */
#define EVENTS_MAX 64

enum stage {
    AWAITED,
    IN,     /* has proved itself; one with children has yet to tell its seat */
    READY,  /* so that others can be sent there */
    SEATED, /* parent and children are there */
};

struct member {
    enum stage stage;
    int fd;      /* -1: not here yet, or here no more */
    bool nearby; /* met by the unix socket */
    bool opened; /* was asked to listen by TCP */
    struct sl_meeting_keys keys;
    struct sl_control control;
    uint8_t seat[SL_SEAT_BYTES];
    size_t seat_len;
};

struct host {
    struct sl_gather *gather; /* what all this becomes */
    int size;
    uint64_t timeout_ns;
    struct sl_terms terms;
    struct sl_job_keys job;
    struct sl_door *door;
    uint16_t port;
    int epoll;                         /* of members; their rank is the data; and of the door: 0 */
    struct member *member;             /* [size], [0] unused */
    int count[SEATED + 1];             /* of members, by stage */
    bool *missing;                     /* [size], room for sentences that name ranks */
    struct sl_descriptors descriptors; /* what was the limit before */
};

/* ---- the end ---- */

/* Tells every member that it is over, and why. */
static int host_break(struct host *host, int code)
{
    uint8_t frame[SL_FRAME_BYTES + SL_CONTROL_MAX], body[4 + SL_SENTENCE_MAX];
    uint64_t until_ns = sl_io_now() + FAREWELL_MS * SL_NS_PER_MS;
    char why[SL_SENTENCE_MAX + 1];
    size_t len;

    snprintf(why, sizeof(why), "%s", sluice_last_error());
    len = sl_sentence_make(code, why, body);
    for (int i = 1; i < host->size; i++) {
        struct member *member = &host->member[i];

        if (member->fd < 0)
            continue;
        int all = sl_control_make(&member->keys, false, SL_FRAME_FAILED, SL_NUMBER_FAILED, body,
                                  len, frame);
        if (all > 0)
            (void)sl_io_send(member->fd, frame, (size_t)all, 0, until_ns);
        shutdown(member->fd, SHUT_WR);
    }
    return sl_fail(code, "%s", why);
}

static bool list_behind(struct host *host, enum stage stage, char *list, size_t cap)
{
    int count = 0;

    host->missing[0] = false;
    for (int i = 1; i < host->size; i++)
        count += host->missing[i] = host->member[i].stage < stage;
    sl_rank_list(host->missing, host->size, list, cap);
    return count > 1;
}

static double seconds(const struct host *host)
{
    return (double)host->timeout_ns / (double)SL_NS_PER_S;
}

static int fail_missing(struct host *host)
{
    char list[256];
    bool many = list_behind(host, READY, list, sizeof(list));

    sl_fail(-ETIMEDOUT,
            "rank%s %s of %d did not reach rank 0 at port %u within %.3g s; see their output, and "
            "whether a firewall closes the port",
            many ? "s" : "", list, host->size, host->port, seconds(host));
    return host_break(host, -ETIMEDOUT);
}

static int fail_unseated(struct host *host)
{
    char list[256];
    bool many = list_behind(host, SEATED, list, sizeof(list));

    sl_fail(-ETIMEDOUT,
            "rank%s %s of %d reached rank 0, but not their neighbours in the tree within %.3g s; "
            "see their output, and whether a firewall closes ports between hosts",
            many ? "s" : "", list, host->size, seconds(host));
    return host_break(host, -ETIMEDOUT);
}

static int fail_gone(struct host *host, int rank, bool awaited)
{
    sl_fail(-ECONNRESET, "rank %d went away while %s; see its output", rank,
            awaited ? "ranks were still awaited" : "ranks looked for their neighbours");
    return host_break(host, -ECONNRESET);
}

/* ---- members ---- */

static void enter_stage(struct host *host, struct member *member, enum stage stage)
{
    host->count[member->stage]--;
    member->stage = stage;
    host->count[stage]++;
}

static int expects(void *owner, int rank)
{
    struct host *host = owner;

    if (host->member[rank].stage == AWAITED)
        return 0;
    return sl_fail(-EPROTO, "there is a rank %d already (two processes with the same rank?)", rank);
}

static void admit(void *owner, int rank, int fd, bool nearby, const struct sl_meeting_keys *keys,
                  const char *from)
{
    struct host *host = owner;
    struct member *member = &host->member[rank];
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)rank};
    struct sl_tree tree;

    (void)from;
    sl_tree_make(rank, host->size, &tree);
    member->fd = fd;
    member->nearby = nearby;
    member->keys = *keys;
    enter_stage(host, member, tree.count > 0 ? IN : READY);
    if (epoll_ctl(host->epoll, EPOLL_CTL_ADD, fd, &event) != 0)
        sl_warn("launch", "the kernel does not watch the connection to rank %d: %s", rank,
                strerror(errno));
}

/* Rank and its children need no TCP. */
static bool all_nearby(const struct host *host, int rank)
{
    const struct member *member = &host->member[rank];
    struct sl_tree tree;
    bool nearby = member->nearby && sl_get64(member->seat) != 0;

    sl_tree_make(rank, host->size, &tree);
    for (int i = 0; i < tree.count; i++)
        nearby = nearby && host->member[tree.child[i]].nearby;
    return nearby;
}

static int take_seat(struct host *host, int rank)
{
    struct member *member = &host->member[rank];
    uint64_t number = member->opened ? SL_NUMBER_OPENED : SL_NUMBER_SEAT;
    struct sl_seat seat;
    size_t len;

    if (member->stage != IN ||
        sl_control_open(&member->keys, true, number, member->control.bytes, &len) != 0 ||
        sl_seat_unpack(member->control.bytes + SL_FRAME_BYTES, len, &seat) != 0 ||
        (member->opened && !seat.network))
        return host_break(host, sl_fail(-EBADMSG,
                                        "what rank %d says of its seat was changed on the way, or "
                                        "is none",
                                        rank));
    memcpy(member->seat, member->control.bytes + SL_FRAME_BYTES, len);
    member->seat_len = len;
    enter_stage(host, member, READY);
    return 0;
}

/* Its connection ends with this, unless it is a child, whose next bytes are an exchange's. */
static void take_seated(struct host *host, int rank)
{
    struct member *member = &host->member[rank];

    enter_stage(host, member, SEATED);
    epoll_ctl(host->epoll, EPOLL_CTL_DEL, member->fd, NULL);
    if (sl_gather_child(host->gather, rank) != NULL)
        return;
    close(member->fd);
    member->fd = -1;
}

static int take_failed(struct host *host, int rank)
{
    struct member *member = &host->member[rank];
    int err = sl_control_failed(&member->control, &member->keys, true, rank);

    epoll_ctl(host->epoll, EPOLL_CTL_DEL, member->fd, NULL);
    close(member->fd);
    member->fd = -1;
    return host_break(host, err);
}

/* One control message, if it is there. awaited: no rank has been told its parent yet. */
static int member_read(struct host *host, int rank, bool awaited)
{
    struct member *member = &host->member[rank];
    int err = sl_control_read(&member->control, member->fd);

    if (err == 0)
        return 0;
    if (err == -EBADMSG)
        return host_break(host, sl_fail(err, "rank %d: %s", rank, sluice_last_error()));
    if (err < 0)
        return fail_gone(host, rank, awaited);
    member->control.got = 0;
    switch (member->control.frame.kind) {
    case SL_FRAME_SEAT: return take_seat(host, rank);
    case SL_FRAME_FAILED: return take_failed(host, rank);
    case SL_FRAME_SEATED:
        if (!awaited && member->control.frame.len == 0) {
            take_seated(host, rank);
            return 0;
        }
        break;
    default: break;
    }
    return host_break(host, sl_fail(-EBADMSG, "rank %d sent a frame of kind %d while ranks meet",
                                    rank, (int)member->control.frame.kind));
}

/* ---- the meeting ---- */

static int meeting_round(struct host *host, uint64_t deadline_ns, bool awaited)
{
    uint64_t due_ns = host->door != NULL ? sl_door_due_ns(host->door) : SL_NEVER;
    struct epoll_event events[EVENTS_MAX];
    int n = epoll_wait(host->epoll, events, EVENTS_MAX,
                       sl_io_poll_ms(due_ns < deadline_ns ? due_ns : deadline_ns));
    int err = 0;

    if (n < 0 && errno != EINTR)
        return sl_fail(-errno, "waiting for ranks failed: %s", strerror(errno));
    for (int i = 0; i < n && err == 0; i++)
        if (events[i].data.u32 != 0 && host->member[events[i].data.u32].fd >= 0)
            err = member_read(host, (int)events[i].data.u32, awaited);
    if (host->door != NULL && err == 0)
        sl_door_round(host->door);
    return err;
}

/* Until all ranks are as far as that. */
static int await_stage(struct host *host, enum stage stage, uint64_t deadline_ns,
                       int (*fail_late)(struct host *host))
{
    for (;;) {
        int behind = 0, err;

        for (enum stage s = AWAITED; s < stage; s++)
            behind += host->count[s];
        if (behind == 0)
            return 0;
        if (sl_io_now() >= deadline_ns)
            return fail_late(host);
        err = meeting_round(host, deadline_ns, stage < SEATED);
        if (err != 0)
            return err;
    }
}

static int tell(struct host *host, int rank, enum sl_frame_kind kind, const void *body, size_t len)
{
    struct member *member = &host->member[rank];
    struct sl_meeting_keys none = {.sealed = false};
    int err = sl_control_send(member->fd, kind == SL_FRAME_PARENT ? &member->keys : &none, false,
                              kind, SL_NUMBER_SEAT, body, len);

    /* A socket that has carried so little takes this; else it is closed, or its rank is. */
    return err == 0 ? 0 : fail_gone(host, rank, kind != SL_FRAME_PARENT);
}

/* Ranks with children of other hosts, or users, open TCP, too. */
static int open_seats(struct host *host, uint64_t deadline_ns)
{
    int err = 0;

    for (int i = 1; i < host->size && err == 0; i++) {
        struct member *member = &host->member[i];

        if (member->seat_len == 0 || all_nearby(host, i))
            continue;
        member->opened = true;
        enter_stage(host, member, IN);
        err = tell(host, i, SL_FRAME_OPEN, NULL, 0);
    }
    return err ?: await_stage(host, READY, deadline_ns, fail_missing);
}

static int tell_parents(struct host *host)
{
    int err = 0;

    for (int i = 1; i < host->size && err == 0; i++) {
        const struct member *parent;
        struct sl_tree tree;

        sl_tree_make(i, host->size, &tree);
        parent = &host->member[tree.parent];
        err = tell(host, i, SL_FRAME_PARENT, parent->seat, parent->seat_len);
    }
    return err;
}

static int meet(struct host *host)
{
    uint64_t deadline_ns = sl_io_now() + host->timeout_ns;
    int err = await_stage(host, READY, deadline_ns, fail_missing);

    if (err != 0)
        return err;
    /* Who still knocks finds the door closed and, if it belongs to the next job here, knocks
     * again. */
    sl_door_close(host->door);
    host->door = NULL;
    deadline_ns = sl_io_now() + host->timeout_ns + PATIENCE_MS * SL_NS_PER_MS;
    err = open_seats(host, deadline_ns) ?: tell_parents(host);
    return err ?: await_stage(host, SEATED, deadline_ns, fail_unseated);
}

/* ---- what it becomes ---- */

static void keep_children(struct host *host)
{
    struct sl_gather *gather = host->gather;

    gather->job = host->job;
    gather->base.nearby = true;
    if (gather->sealed)
        gather->base.session = gather->job.session;
    for (int i = 0; i < gather->tree.count; i++) {
        struct member *member = &host->member[gather->tree.child[i]];

        sl_gather_join(&gather->down[i], member->fd, &member->keys, NULL);
        member->fd = -1;
    }
}

/* New ones for each job, whose members learn nothing of the next by them. */
static int make_job_keys(struct sl_job_keys *job)
{
    int err = sl_random(job->job, sizeof(job->job));

    return err ?: sl_job_keys_derive(job);
}

static int open_door(struct host *host, const struct sl_party *party,
                     const struct sl_listeners *listeners)
{
    struct epoll_event event = {.events = EPOLLIN};
    struct sl_door_owner owner = {host, expects, admit};
    int err = sl_door_open(&host->terms, &host->job, listeners, &owner, &host->door);

    if (err != 0)
        return err;
    host->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (host->epoll < 0 ||
        epoll_ctl(host->epoll, EPOLL_CTL_ADD, sl_door_fd(host->door), &event) != 0)
        return sl_fail(-errno, "no epoll descriptor: %s", strerror(errno));
    if (*party->secret == '\0' && listeners->count > 0)
        sl_warn("launch",
                "no secret is set: anyone %s can join this job as a rank at port %u; set the same "
                "SLUICE_SECRET on all ranks",
                listeners->loopback ? "on this host" : "who can reach it", listeners->port);
    return 0;
}

static int host_init(struct host *host, const struct sl_party *party,
                     const struct sl_listeners *listeners)
{
    size_t size = (size_t)party->size;
    struct sl_listeners owned = *listeners;
    int err;

    host->member = calloc(size, sizeof(*host->member));
    host->missing = calloc(size, sizeof(*host->missing));
    err = host->member != NULL && host->missing != NULL
              ? 0
              : sl_fail(-ENOMEM, "no memory for the meeting of %d ranks", party->size);
    for (size_t i = 0; i < size && err == 0; i++)
        host->member[i].fd = -1;
    err = err ?: sl_gather_create(party, &host->gather);
    err = err ?: sl_descriptors_raise((unsigned)size, &host->descriptors);
    err = err ?: sl_job_hash(party->job, host->terms.job);
    err = err ?: make_job_keys(&host->job);
    if (err != 0) {
        sl_listeners_close(&owned);
        return err;
    }
    host->count[AWAITED] = party->size - 1;
    return open_door(host, party, listeners);
}

static void host_fini(struct host *host)
{
    sl_door_close(host->door);
    if (host->epoll >= 0)
        close(host->epoll);
    for (int i = 1; host->member != NULL && i < host->size; i++)
        if (host->member[i].fd >= 0)
            close(host->member[i].fd);
    if (host->member != NULL)
        explicit_bzero(host->member, (size_t)host->size * sizeof(*host->member));
    explicit_bzero(&host->job, sizeof(host->job));
    sl_descriptors_restore(&host->descriptors);
    free(host->member);
    free(host->missing);
}

int sl_rendezvous_host(const struct sl_party *party, const struct sl_listeners *listeners,
                       struct sl_exchange **out)
{
    struct host host = {.size = party->size,
                        .timeout_ns = party->timeout_ms * SL_NS_PER_MS,
                        .port = listeners->port,
                        .epoll = -1};
    int err;

    host.terms = (struct sl_terms){.rank = 0,
                                   .size = party->size,
                                   .secret = party->secret,
                                   .secret_len = strlen(party->secret),
                                   .sealed = *party->secret != '\0'};
    err = host_init(&host, party, listeners);
    err = err ?: meet(&host);
    if (err == 0) {
        keep_children(&host);
        *out = &host.gather->base;
    } else if (host.gather != NULL) {
        host.gather->base.close(&host.gather->base);
    }
    host_fini(&host);
    return err;
}
