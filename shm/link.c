/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first part of an endpoint's life: from ep_create to "data may flow".
 *
 * Both sides know both addresses before they connect, so the side with the smaller one dials: one
 * connection, and no race. It makes the segment and sends HELLO with it; the other answers WELCOME.
 * Both carry the tokens of both endpoints, 128 random bits each, which only the exchange gives
 * them: a connection without them is refused. So is, where no secret has sealed what the exchange
 * told, every process of another user: the kernel tells whose one is. The socket then stays open:
 * it carries control messages and regions, and its end is the news that the peer is gone.
 */
#include "shm/shm.h"
#include "shm/config.h"

#include "core/config.h"
#include "core/host.h"
#include "core/log.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#define ACCEPT_RETRY_NS SL_NS_PER_S /* after descriptors ran out */
#define ACCEPTS_PER_LOOK 32

/* All rings of one rank together, without a setting. */
#define RINGS_TOTAL (16u << 20)
#define RING_SMALLEST (64u << 10)
#define RING_LARGEST (512u << 10)

#define RING_ADVICE "lower SLUICE_SHM_RING_BYTES"

static uint64_t now(struct shm_iface *iface)
{
    return sl_now(iface->base.worker->clock);
}

int shm_ep_create(struct sl_iface *base, struct sl_ep **out)
{
    struct shm_iface *iface = shm_iface_of(base);
    struct shm_ep *ep = aligned_alloc(SL_CACHE_LINE, (sizeof(*ep) + SL_CACHE_LINE - 1) &
                                                         ~(size_t)(SL_CACHE_LINE - 1));
    int err;

    if (ep == NULL)
        return sl_fail(-ENOMEM, "no memory for a shm endpoint of %zu bytes", sizeof(*ep));
    memset(ep, 0, sizeof(*ep));
    ep->base.iface = base;
    ep->base.peer_asleep = &shm_always_awake;
    ep->base.peer = -1;
    ep->source.fd = ep->death.fd = ep->peer_event = ep->segment_fd = -1;
    ep->addr.magic = SHM_MAGIC;
    ep->addr.version = SHM_VERSION;
    ep->addr.name_len = iface->name_len;
    memcpy(ep->addr.name, iface->name, sizeof(ep->addr.name));
    memcpy(ep->addr.host, iface->host, sizeof(ep->addr.host));
    if (getrandom(ep->addr.token, SHM_TOKEN_LEN, 0) != SHM_TOKEN_LEN) {
        free(ep);
        return sl_fail(-EIO, "the kernel gave no random bytes: %s", strerror(errno));
    }
    err = shm_channels_init(ep);
    if (err != 0) {
        free(ep);
        return err;
    }
    sl_list_init(&ep->peer_regions);
    sl_list_push_back(&iface->eps, &ep->node);
    iface->ep_count++;
    *out = &ep->base;
    return 0;
}

int shm_ep_addr(struct sl_ep *base, struct sl_addr *out)
{
    shm_addr_pack(&shm_ep_of(base)->addr, out);
    return 0;
}

void shm_ep_doom(struct shm_ep *ep, int status)
{
    ep->status = status;
    snprintf(ep->why, sizeof(ep->why), "%s", sluice_last_error());
    shm_source_close(shm_ep_iface(ep), &ep->source);
    if (ep->state != SHM_NEW)
        ep->state = SHM_DOOMED;
}

void shm_spare_keep(struct shm_iface *iface)
{
    if (iface->spare_fd < 0)
        iface->spare_fd = fcntl(iface->epoll_fd, F_DUPFD_CLOEXEC, 0);
}

void shm_spare_use(struct shm_iface *iface)
{
    if (iface->spare_fd >= 0)
        close(iface->spare_fd);
    iface->spare_fd = -1;
}

static void refuse(int fd, const uint8_t *to, const uint8_t *from, int code)
{
    struct shm_refuse body = {.code = code};

    if (to != NULL)
        memcpy(body.to, to, SHM_TOKEN_LEN);
    if (from != NULL)
        memcpy(body.from, from, SHM_TOKEN_LEN);
    snprintf(body.text, sizeof(body.text), "%s", sluice_last_error());
    /* A peer that the word does not reach sees the socket close. */
    if (shm_post(fd, SHM_REFUSE, &body, sizeof(body), NULL, 0) != 0)
        sl_debug("shm", "shm: a refusal could not be sent");
}

static void doom_refused(struct shm_ep *ep, const struct shm_refuse *refused)
{
    sl_fail(refused->code, "the shm peer refused: %s", refused->text);
    shm_ep_doom(ep, refused->code);
}

/* ---- data may flow ---- */

static void link_up(struct shm_ep *ep, uint64_t trial_addr)
{
    struct shm_iface *iface = shm_ep_iface(ep);
    struct sl_req *req = ep->connect_req;

    ep->state = SHM_UP;
    shm_ep_begin(ep);
    iface->connecting--;
    ep->connect_req = NULL;
    ep->base.peer_asleep = &ep->peer_page->asleep;
    if (ep->ring_bytes < iface->base.eager_max)
        iface->base.eager_max = ep->ring_bytes;
    shm_watch_process(ep);
    shm_read_try(ep, trial_addr);
    if (shm_announce(ep)) {
        ep->backlog = true;
        iface->chores++;
    }
    sl_req_end(req, 0);
}

/* Maps the segment of HELLO (segment_fd) or WELCOME (-1: the segment is ours). Takes over no
 * descriptor but event_fd, on success. */
static int adopt(struct shm_ep *ep, const struct shm_hello *hello, int segment_fd, int page_fd,
                 int event_fd)
{
    void *page;
    int err = shm_file_map(page_fd, 0, sizeof(struct shm_page), 0, &page);

    if (err != 0)
        return err;
    if (segment_fd >= 0) {
        ep->ring_bytes = hello->ring_bytes;
        ep->cells = hello->cells;
        err = shm_segment_map(segment_fd, ep->ring_bytes, ep->cells, 1, &ep->segment);
    }
    if (err == 0)
        err = shm_data_init(ep);
    if (err != 0) {
        munmap(page, sizeof(struct shm_page));
        return err;
    }
    if ((hello->flags & SHM_FLAG_BARRIER) == 0)
        shm_ep_iface(ep)->barrier = false;
    ep->peer_page = page;
    ep->peer_event = event_fd;
    return 0;
}

static void fill_hello(struct shm_ep *ep, struct shm_hello *out)
{
    struct shm_iface *iface = shm_ep_iface(ep);

    memset(out, 0, sizeof(*out));
    memcpy(out->to, ep->peer_addr.token, SHM_TOKEN_LEN);
    memcpy(out->from, ep->addr.token, SHM_TOKEN_LEN);
    out->ring_bytes = ep->ring_bytes;
    out->cells = ep->cells;
    out->flags = iface->barrier ? SHM_FLAG_BARRIER : 0;
    out->trial_addr = (uint64_t)(uintptr_t)iface->page;
}

/* ---- the dialling side ---- */

uint32_t shm_ring_bytes(const struct sl_config *config, unsigned peers)
{
    uint64_t bytes = (uint64_t)sl_shm_config(config)->ring_bytes;

    if (bytes == 0) {
        bytes = RINGS_TOTAL / (2 * (peers > 0 ? peers : 1));
        if (bytes > RING_LARGEST)
            bytes = RING_LARGEST;
        if (bytes < RING_SMALLEST)
            bytes = RING_SMALLEST;
    }
    if (bytes < SHM_RING_MIN)
        bytes = SHM_RING_MIN;
    return (uint32_t)((bytes + 4095) & ~UINT64_C(4095));
}

static void choose_ring(struct shm_ep *ep)
{
    struct shm_iface *iface = shm_ep_iface(ep);
    const struct sl_worker *worker = iface->base.worker;
    uint32_t cells = 256;
    unsigned peers = iface->ep_count > worker->near ? iface->ep_count : worker->near;

    ep->ring_bytes = shm_ring_bytes(worker->config, peers);
    while (cells > SHM_CELLS_MIN && cells * 256 > ep->ring_bytes)
        cells /= 2;
    ep->cells = cells;
}

static int make_segment(struct shm_ep *ep)
{
    size_t len;
    int err;

    choose_ring(ep);
    len = shm_segment_len(ep->ring_bytes, ep->cells);
    err = shm_file_create("a shared-memory ring", RING_ADVICE, len, len, &ep->segment_fd);
    if (err != 0)
        return err;
    return shm_segment_map(ep->segment_fd, ep->ring_bytes, ep->cells, 0, &ep->segment);
}

static void asked_ready(struct shm_iface *iface, struct shm_source *source)
{
    struct shm_ep *ep = sl_container_of(source, struct shm_ep, source);
    struct shm_msg msg;
    int fds[SHM_FDS_MAX], err;
    unsigned fd_count = 0;
    size_t body;

    if (source->fd < 0 || ep->state != SHM_ASKED)
        return;
    err = shm_take(source->fd, &msg, &body, fds, &fd_count);
    if (err == -EAGAIN)
        return;
    if (err == -ECONNRESET)
        err = sl_fail(-ECONNREFUSED, "the shm peer closed the connection before it answered");
    if (err != 0) {
        shm_ep_doom(ep, err);
        return;
    }
    if (msg.head.type == SHM_REFUSE) {
        doom_refused(ep, &msg.refuse);
    } else if (msg.head.type != SHM_WELCOME || fd_count != 2 ||
               memcmp(msg.hello.from, ep->peer_addr.token, SHM_TOKEN_LEN) != 0 ||
               memcmp(msg.hello.to, ep->addr.token, SHM_TOKEN_LEN) != 0) {
        shm_ep_doom(ep, sl_fail(-EPROTO, "the shm peer's answer was not one to our question"));
    } else {
        err = adopt(ep, &msg.hello, -1, fds[0], fds[1]);
        if (err != 0) {
            shm_ep_doom(ep, err);
        } else {
            fds[--fd_count] = -1;
            source->ready = shm_socket_ready;
            link_up(ep, msg.hello.trial_addr);
        }
    }
    while (fd_count > 0)
        close(fds[--fd_count]);
}

/* With a secret, the holder of a token is a rank, of whatever user. Else another user may have read
 * the token on its way, or taken the name of a peer that died. */
static int check_user(struct shm_iface *iface, int fd)
{
    struct ucred peer;

    if (iface->base.worker->has_session || sl_host_same_user(fd, &peer))
        return 0;
    return sl_fail(
        -EACCES,
        "process %d of user %u is at the other end of shm's socket, this is one of user %u; set "
        "the same SLUICE_SECRET on all ranks if it is one of them",
        (int)peer.pid, (unsigned)peer.uid, (unsigned)geteuid());
}

/* The peer need not wait until its deadline: fd tells it, which is closed, or, if negative,
 * one of its own, for which there is a descriptor even if those are missing. */
static void give_up(struct shm_ep *ep, int fd, int err)
{
    struct shm_iface *iface = shm_ep_iface(ep);
    char text[SHM_TEXT_MAX];

    snprintf(text, sizeof(text), "%s", sluice_last_error());
    if (fd < 0) {
        shm_spare_use(iface);
        if (shm_dial(ep->peer_addr.name, ep->peer_addr.name_len, &fd) != 0)
            fd = -1;
    }
    sl_fail_text(err, text);
    if (fd >= 0) {
        refuse(fd, ep->peer_addr.token, ep->addr.token, err);
        close(fd);
    }
    shm_spare_keep(iface);
    sl_fail_text(err, text);
    shm_ep_doom(ep, err);
}

/* Dials and says HELLO. Stays in SHM_DIAL when it has to be tried again. */
static void dial(struct shm_ep *ep)
{
    struct shm_iface *iface = shm_ep_iface(ep);
    struct shm_hello hello;
    int err = 0, fd;

    if (ep->segment_fd < 0)
        err = make_segment(ep);
    if (err != 0) {
        give_up(ep, -1, err);
        return;
    }
    err = shm_dial(ep->peer_addr.name, ep->peer_addr.name_len, &fd);
    if (err == -EAGAIN)
        return;
    if (err == -EMFILE || err == -ENFILE) {
        give_up(ep, -1, err);
        return;
    }
    if (err != 0) {
        shm_ep_doom(ep, err);
        return;
    }
    err = check_user(iface, fd);
    if (err != 0) {
        give_up(ep, fd, err);
        return;
    }
    fill_hello(ep, &hello);
    err = shm_post(fd, SHM_HELLO, &hello, sizeof(hello),
                   (int[]){ep->segment_fd, iface->page_fd, iface->event.fd}, 3);
    ep->source.fd = fd;
    ep->source.ready = asked_ready;
    if (err == 0)
        err = shm_watch(iface, &ep->source, EPOLLIN);
    if (err == -EAGAIN) {
        close(fd);
        ep->source.fd = -1;
        return;
    }
    if (err != 0) {
        shm_ep_doom(ep, err == -ECONNRESET ? -ECONNREFUSED : err);
        return;
    }
    close(ep->segment_fd);
    ep->segment_fd = -1;
    ep->state = SHM_ASKED;
}

/* ---- the side that is dialled ---- */

static struct shm_pending *pending_of(struct sl_pending *base)
{
    return sl_container_of(base, struct shm_pending, base);
}

void shm_pending_end(struct shm_iface *iface, struct shm_pending *pending)
{
    if (pending->gone.next != NULL)
        return;
    shm_source_close(iface, &pending->source);
    while (pending->fd_count > 0)
        close(pending->fds[--pending->fd_count]);
    sl_pending_remove(&iface->pending, &pending->base);
    sl_list_push_back(&iface->gone, &pending->gone);
    sl_list_foreach(&iface->eps, node)
    {
        struct shm_ep *ep = sl_container_of(node, struct shm_ep, node);

        if (ep->pending == pending)
            ep->pending = NULL;
    }
}

static void free_gone(struct shm_iface *iface)
{
    struct sl_node *node;

    while ((node = sl_list_pop_front(&iface->gone)) != NULL)
        free(sl_container_of(node, struct shm_pending, gone));
}

void shm_stop_listening(struct sl_iface *base)
{
    struct shm_iface *iface = shm_iface_of(base);

    shm_source_close(iface, &iface->listener);
    iface->accept_due = false;
    sl_list_foreach(&iface->pending.list, node)
    {
        shm_pending_end(iface, pending_of(sl_container_of(node, struct sl_pending, node)));
    }
    free_gone(iface);
    sl_pending_fini(&iface->pending);
    shm_spare_use(iface);
}

/* Turns a connection away for the reason in the last error. */
static void turn_away(struct shm_iface *iface, struct shm_pending *pending, int code)
{
    sl_pending_refused(&iface->pending, pending->base.from, sluice_last_error(), now(iface));
    refuse(pending->source.fd, NULL, NULL, code);
    shm_pending_end(iface, pending);
}

static struct shm_ep *find_ep(struct shm_iface *iface, const uint8_t *token)
{
    sl_list_foreach(&iface->eps, node)
    {
        struct shm_ep *ep = sl_container_of(node, struct shm_ep, node);

        if (memcmp(ep->addr.token, token, SHM_TOKEN_LEN) == 0)
            return ep;
    }
    return NULL;
}

static void answer(struct shm_ep *ep)
{
    struct shm_iface *iface = shm_ep_iface(ep);
    struct shm_hello hello;
    int err;

    fill_hello(ep, &hello);
    err = shm_post(ep->source.fd, SHM_WELCOME, &hello, sizeof(hello),
                   (int[]){iface->page_fd, iface->event.fd}, 2);
    if (err == 0)
        link_up(ep, ep->trial_addr);
    else if (err != -EAGAIN)
        shm_ep_doom(ep, err == -ECONNRESET ? -ECONNREFUSED : err);
}

/* The connection is the one that ep waits for: it becomes ep's. */
static void seat(struct shm_ep *ep, struct shm_pending *pending)
{
    struct shm_iface *iface = shm_ep_iface(ep);
    int err;

    if (memcmp(pending->hello.from, ep->peer_addr.token, SHM_TOKEN_LEN) != 0) {
        turn_away(iface, pending,
                  sl_fail(-EPROTO, "it named the right endpoint, but is not its peer"));
        return;
    }
    err = adopt(ep, &pending->hello, pending->fds[0], pending->fds[1], pending->fds[2]);
    if (err == 0)
        pending->fd_count = 2; /* the event is ep's now */
    if (err == 0) {
        int fd = pending->source.fd;

        epoll_ctl(iface->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
        pending->source.fd = -1;
        ep->source.fd = fd;
        ep->source.ready = shm_socket_ready;
        err = shm_watch(iface, &ep->source, EPOLLIN);
        ep->trial_addr = pending->hello.trial_addr;
        ep->state = SHM_ANSWER;
    } else {
        refuse(pending->source.fd, pending->hello.from, pending->hello.to, err);
    }
    shm_pending_end(iface, pending);
    if (err != 0)
        shm_ep_doom(ep, err);
    else
        answer(ep);
}

/* The dialling side could not make the segment, or speaks another version. */
static void pending_failed(struct shm_iface *iface, struct shm_pending *pending,
                           const struct shm_msg *msg, int err)
{
    const uint8_t *to = msg->head.type == SHM_REFUSE ? msg->refuse.to : msg->hello.to;
    struct shm_ep *ep = find_ep(iface, to);

    if (ep == NULL || (ep->state != SHM_NEW && ep->state != SHM_AWAITED)) {
        turn_away(iface, pending, err);
        return;
    }
    if (msg->head.type == SHM_REFUSE && err == 0) {
        doom_refused(ep, &msg->refuse);
    } else {
        refuse(pending->source.fd, NULL, to, err);
        shm_ep_doom(ep, err);
    }
    shm_pending_end(iface, pending);
}

static void pending_ready(struct shm_iface *iface, struct shm_source *source)
{
    struct shm_pending *pending = sl_container_of(source, struct shm_pending, source);
    struct shm_msg msg;
    struct shm_ep *ep;
    int fds[SHM_FDS_MAX], err;
    unsigned fd_count = 0;
    size_t body;

    if (source->fd < 0)
        return;
    memset(&msg, 0, sizeof(msg));
    err = shm_take(source->fd, &msg, &body, fds, &fd_count);
    if (err == -EAGAIN)
        return;
    if (err == -ECONNRESET) {
        if (pending->base.standing == SL_PENDING_SILENT)
            sl_debug("shm", "shm: a connection from %s came and went without a word",
                     pending->base.from);
        shm_pending_end(iface, pending);
    } else if (pending->base.standing == SL_PENDING_PROVED) {
        /* It has its three descriptors already: those that came now are not kept. */
        turn_away(iface, pending, sl_fail(-EPROTO, "it spoke out of turn"));
    } else if (err == -EPROTO || err == -EMFILE || (err == 0 && msg.head.type == SHM_REFUSE)) {
        pending_failed(iface, pending, &msg, err);
    } else if (err != 0) {
        turn_away(iface, pending, err);
    } else if (msg.head.type != SHM_HELLO || fd_count != SHM_FDS_MAX) {
        turn_away(iface, pending, sl_fail(-EPROTO, "it spoke out of turn"));
    } else if ((err = check_user(iface, source->fd)) != 0) {
        turn_away(iface, pending, err);
    } else if ((ep = find_ep(iface, msg.hello.to)) == NULL || ep->pending != NULL ||
               (ep->state != SHM_NEW && ep->state != SHM_AWAITED)) {
        turn_away(iface, pending, sl_fail(-ECONNREFUSED, "it knows no endpoint of this process"));
    } else {
        memcpy(pending->fds, fds, sizeof(fds));
        pending->fd_count = fd_count;
        fd_count = 0;
        pending->base.standing = SL_PENDING_PROVED;
        pending->hello = msg.hello;
        if (ep->state == SHM_AWAITED)
            seat(ep, pending);
        else
            ep->pending = pending; /* until ep_connect() names its peer */
    }
    while (fd_count > 0)
        close(fds[--fd_count]);
}

/* One pending connection goes, where one has been here long enough. */
static bool make_room(struct shm_iface *iface, const char *why)
{
    struct sl_pending *victim = sl_pending_victim(&iface->pending, now(iface));

    if (victim == NULL)
        return false;
    pending_ready(iface, &pending_of(victim)->source); /* its words may have come meanwhile */
    if (pending_of(victim)->source.fd >= 0 && victim->standing != SL_PENDING_PROVED)
        turn_away(iface, pending_of(victim), sl_fail(-ECONNREFUSED, "%s", why));
    return true;
}

/* No descriptor for the one that waits: pending connections go first, then the clock brings the
 * next try. No endpoint ends for that: strangers may be why, and be gone soon. Once they must be
 * gone, the one in reserve takes the peer's connection, whose own descriptors then find no room:
 * both sides are told so. */
static bool accept_failed(struct shm_iface *iface, int err)
{
    uint64_t now_ns = now(iface);

    if (err != -EMFILE && err != -ENFILE) {
        sl_warn("shm", "shm: %s", sluice_last_error());
        return false;
    }
    if (make_room(iface, "no descriptor is left"))
        return true;
    if (now_ns > iface->accept_failed_ns + 2 * ACCEPT_RETRY_NS)
        iface->accept_since_ns = now_ns; /* not the lack that there was long ago */
    iface->accept_failed_ns = now_ns;
    shm_spare_keep(iface);
    if (err == -EMFILE && iface->spare_fd >= 0 &&
        now_ns - iface->accept_since_ns > SL_PENDING_MS * SL_NS_PER_MS) {
        shm_spare_use(iface);
        return true;
    }
    iface->accept_after_ns = now_ns + ACCEPT_RETRY_NS;
    sl_warn("shm", "shm: %s", sluice_last_error());
    return false;
}

static void accept_one(struct shm_iface *iface, int fd)
{
    struct ucred peer = {.uid = (uid_t)-1};
    socklen_t len = sizeof(peer);
    struct shm_pending *pending = calloc(1, sizeof(*pending));

    if (pending == NULL) {
        sl_iface_note_memory(&iface->base, -ENOMEM);
        close(fd);
        return;
    }
    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len);
    pending->source.fd = fd;
    pending->source.ready = pending_ready;
    sl_pending_add_user(&iface->pending, &pending->base, peer.uid, peer.pid, now(iface));
    if (shm_watch(iface, &pending->source, EPOLLIN) != 0)
        shm_pending_end(iface, pending);
    else
        pending_ready(iface, &pending->source); /* its HELLO is there already, mostly */
}

/* While the listener has to wait it is not watched: else a parked rank would never sleep. */
static void listener_pause(struct shm_iface *iface, bool pause)
{
    struct epoll_event event = {.events = pause ? 0 : EPOLLIN, .data.ptr = &iface->listener};

    if (iface->accept_due == pause)
        return;
    iface->accept_due = pause;
    epoll_ctl(iface->epoll_fd, EPOLL_CTL_MOD, iface->listener.fd, &event);
}

void shm_listener_ready(struct shm_iface *iface, struct shm_source *source)
{
    for (int i = 0; i < ACCEPTS_PER_LOOK && source->fd >= 0; i++) {
        int fd, err;

        if (sl_pending_full(&iface->pending) &&
            !make_room(iface, "it said nothing useful while others waited")) {
            listener_pause(iface, true);
            return;
        }
        err = shm_accept(source->fd, &fd);
        if (err == -EAGAIN) {
            shm_spare_keep(iface);
            return;
        }
        if (err == 0) {
            accept_one(iface, fd);
        } else if (!accept_failed(iface, err)) {
            listener_pause(iface, true);
            return;
        }
    }
}

int shm_ep_connect(struct sl_ep *base, const struct sl_addr *peer, struct sl_req *req)
{
    struct shm_ep *ep = shm_ep_of(base);
    struct shm_iface *iface = shm_ep_iface(ep);
    uint64_t timeout_ms = (uint64_t)base->iface->worker->config->connect_timeout_ms;
    int err;

    if (ep->state != SHM_NEW)
        return sl_fail(-EINVAL, "this shm endpoint is connected already");
    err = shm_addr_parse(peer, &ep->peer_addr);
    if (err == -EINVAL)
        return err;
    if (err == 0 && memcmp(ep->peer_addr.host, iface->host, sizeof(iface->host)) != 0)
        err = sl_fail(-EHOSTUNREACH,
                      "%s is on another host or in another network namespace; set the same "
                      "SLUICE_HOST_ID on both if they share memory nevertheless",
                      sl_ep_peer_name(base));
    req->status = SL_PENDING;
    ep->connect_req = req;
    ep->deadline_ns = now(iface) + timeout_ms * SL_NS_PER_MS;
    iface->connecting++;
    if (ep->status != 0) { /* the peer failed before we began */
        ep->state = SHM_DOOMED;
    } else if (err != 0) {
        ep->state = SHM_DOOMED;
        shm_ep_doom(ep, err);
    } else if (memcmp(ep->addr.token, ep->peer_addr.token, SHM_TOKEN_LEN) < 0) {
        ep->state = SHM_DIAL;
        dial(ep);
    } else {
        ep->state = SHM_AWAITED;
        if (ep->pending != NULL)
            iface->events_due = true; /* seated by the next progress: done() is called from there */
    }
    return 0;
}

static bool settle_connecting(struct shm_ep *ep, uint64_t now_ns)
{
    struct shm_iface *iface = shm_ep_iface(ep);
    struct sl_req *req;

    if (ep->state == SHM_DIAL)
        dial(ep);
    else if (ep->state == SHM_AWAITED && ep->pending != NULL)
        seat(ep, ep->pending);
    else if (ep->state == SHM_ANSWER)
        answer(ep);
    if (ep->state == SHM_UP)
        return true;
    if (ep->state != SHM_DOOMED) {
        if (now_ns < ep->deadline_ns)
            return false;
        sl_fail(-ETIMEDOUT, "%s did not connect over shared memory in %lld ms",
                sl_ep_peer_name(&ep->base),
                (long long)iface->base.worker->config->connect_timeout_ms);
        shm_ep_doom(ep, -ETIMEDOUT);
    }
    req = ep->connect_req;
    ep->connect_req = NULL;
    ep->state = SHM_LOST;
    iface->connecting--;
    sl_fail_text(ep->status, ep->why);
    sl_req_end(req, ep->status);
    return true;
}

static void settle_pending(struct shm_iface *iface, uint64_t now_ns)
{
    struct sl_pending *late;

    while ((late = sl_pending_late(&iface->pending, now_ns)) != NULL)
        turn_away(iface, pending_of(late), sl_fail(-ETIMEDOUT, "it did not say who it is in time"));
    if (iface->accept_due && now_ns >= iface->accept_after_ns &&
        (!sl_pending_full(&iface->pending) || sl_pending_victim(&iface->pending, now_ns) != NULL)) {
        iface->accept_after_ns = 0;
        listener_pause(iface, false); /* and epoll tells of those that wait */
    }
    free_gone(iface);
}

int shm_settle(struct shm_iface *iface, uint64_t now_ns)
{
    unsigned chores = 0;
    int moved = 0;

    if (iface->connecting > 0 || iface->chores > 0) {
        sl_list_foreach(&iface->eps, node)
        {
            struct shm_ep *ep = sl_container_of(node, struct shm_ep, node);

            if (ep->connect_req != NULL)
                moved += settle_connecting(ep, now_ns);
            if (ep->state != SHM_UP)
                continue;
            if (ep->backlog)
                ep->backlog = shm_announce(ep);
            if (ep->leaving && shm_settle_leaving(ep))
                moved++;
            else
                chores += ep->leaving || ep->backlog;
        }
        iface->chores = chores;
    }
    settle_pending(iface, now_ns);
    return moved;
}
