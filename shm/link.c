/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first part of an endpoint's life: from ep_create to "data may flow".
 *
 * Both sides know both addresses before they connect, so the side with the smaller one dials: one
 * connection, and no race. It makes the segment and sends HELLO with it; the other answers WELCOME. Both
 * carry the tokens of both endpoints, 128 random bits each, which only the exchange told them:
 * whoever connects without them is refused. The socket then stays open: it carries control
 * messages and regions, and its end is the news that the peer is gone.
 */
#include "shm/shm.h"

#include "core/config.h"
#include "core/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#define GUESTS_MAX 256
#define GUEST_SILENT_NS (5 * SL_NS_PER_S)
#define ACCEPTS_PER_LOOK 32

/* All rings of one rank together, when nobody said otherwise. */
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

static void refuse(int fd, const uint8_t *to, const uint8_t *from, int code)
{
    struct shm_refuse body = {.code = code};

    if (to != NULL)
        memcpy(body.to, to, SHM_TOKEN_LEN);
    if (from != NULL)
        memcpy(body.from, from, SHM_TOKEN_LEN);
    snprintf(body.text, sizeof(body.text), "%s", sluice_last_error());
    /* A peer that cannot be told sees the socket close. */
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

/* Maps what came with HELLO (segment_fd) or WELCOME (-1: the segment is ours). Takes over no
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
    uint64_t bytes = (uint64_t)config->shm_ring_bytes;

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
    uint32_t cells = 256;

    ep->ring_bytes = shm_ring_bytes(iface->base.worker->config, iface->ep_count);
    while (cells > SHM_CELLS_MIN && cells * 256 > ep->ring_bytes)
        cells /= 2;
    ep->cells = cells;
}

static int make_segment(struct shm_ep *ep)
{
    int err;

    choose_ring(ep);
    err = shm_file_create("a shared-memory ring", RING_ADVICE,
                          shm_segment_len(ep->ring_bytes, ep->cells), &ep->segment_fd);
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

/* Dials and says HELLO. Stays in SHM_DIAL when it has to be tried again. */
static void dial(struct shm_ep *ep)
{
    struct shm_iface *iface = shm_ep_iface(ep);
    struct shm_hello hello;
    int err = 0, fd;

    if (ep->segment_fd < 0)
        err = make_segment(ep);
    if (err != 0) {
        /* The peer need not wait until its deadline. */
        char text[SHM_TEXT_MAX];

        snprintf(text, sizeof(text), "%s", sluice_last_error());
        if (shm_dial(ep->peer_addr.name, ep->peer_addr.name_len, &fd) == 0) {
            sl_fail_text(err, text);
            refuse(fd, ep->peer_addr.token, ep->addr.token, err);
            close(fd);
        }
        sl_fail_text(err, text);
        shm_ep_doom(ep, err);
        return;
    }
    err = shm_dial(ep->peer_addr.name, ep->peer_addr.name_len, &fd);
    if (err == -EAGAIN)
        return;
    if (err != 0) {
        shm_ep_doom(ep, err);
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

void shm_guest_end(struct shm_iface *iface, struct shm_guest *guest)
{
    shm_source_close(iface, &guest->source);
    while (guest->fd_count > 0)
        close(guest->fds[--guest->fd_count]);
    guest->gone = true;
    sl_list_foreach(&iface->eps, node) {
        struct shm_ep *ep = sl_container_of(node, struct shm_ep, node);

        if (ep->guest == guest)
            ep->guest = NULL;
    }
}

static void guests_reap(struct shm_iface *iface)
{
    sl_list_foreach(&iface->guests, node) {
        struct shm_guest *guest = sl_container_of(node, struct shm_guest, node);

        if (!guest->gone)
            continue;
        sl_list_remove(node);
        iface->guest_count--;
        free(guest);
    }
}

void shm_guests_free(struct shm_iface *iface)
{
    sl_list_foreach(&iface->guests, node) {
        shm_guest_end(iface, sl_container_of(node, struct shm_guest, node));
    }
    guests_reap(iface);
}

/* Turns a guest away for the reason in the last error. */
static void turn_away(struct shm_iface *iface, struct shm_guest *guest, int code)
{
    sl_warn("shm", "shm: refused a connection: %s", sluice_last_error());
    refuse(guest->source.fd, NULL, NULL, code);
    shm_guest_end(iface, guest);
}

static struct shm_ep *find_ep(struct shm_iface *iface, const uint8_t *token)
{
    sl_list_foreach(&iface->eps, node) {
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

/* The guest is whom ep waits for: its connection becomes ep's. */
static void seat(struct shm_ep *ep, struct shm_guest *guest)
{
    struct shm_iface *iface = shm_ep_iface(ep);
    int err;

    if (memcmp(guest->hello.from, ep->peer_addr.token, SHM_TOKEN_LEN) != 0) {
        turn_away(iface, guest,
                  sl_fail(-EPROTO, "it named the right endpoint, but is not its peer"));
        return;
    }
    err = adopt(ep, &guest->hello, guest->fds[0], guest->fds[1], guest->fds[2]);
    if (err == 0)
        guest->fd_count = 2; /* the event is ep's now */
    if (err == 0) {
        int fd = guest->source.fd;

        epoll_ctl(iface->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
        guest->source.fd = -1;
        ep->source.fd = fd;
        ep->source.ready = shm_socket_ready;
        err = shm_watch(iface, &ep->source, EPOLLIN);
        ep->trial_addr = guest->hello.trial_addr;
        ep->state = SHM_ANSWER;
    } else {
        refuse(guest->source.fd, guest->hello.from, guest->hello.to, err);
    }
    shm_guest_end(iface, guest);
    if (err != 0)
        shm_ep_doom(ep, err);
    else
        answer(ep);
}

/* The dialling side could not make the segment, or speaks another version. */
static void guest_failed(struct shm_iface *iface, struct shm_guest *guest,
                         const struct shm_msg *msg, int err)
{
    const uint8_t *to = msg->head.type == SHM_REFUSE ? msg->refuse.to : msg->hello.to;
    struct shm_ep *ep = find_ep(iface, to);

    if (ep == NULL || (ep->state != SHM_NEW && ep->state != SHM_AWAITED)) {
        turn_away(iface, guest, err);
        return;
    }
    if (msg->head.type == SHM_REFUSE && err == 0) {
        doom_refused(ep, &msg->refuse);
    } else {
        refuse(guest->source.fd, NULL, to, err);
        shm_ep_doom(ep, err);
    }
    shm_guest_end(iface, guest);
}

static void guest_ready(struct shm_iface *iface, struct shm_source *source)
{
    struct shm_guest *guest = sl_container_of(source, struct shm_guest, source);
    struct shm_msg msg;
    struct shm_ep *ep;
    int fds[SHM_FDS_MAX], err;
    unsigned fd_count = 0;
    size_t body;

    if (guest->gone || source->fd < 0)
        return;
    memset(&msg, 0, sizeof(msg));
    err = shm_take(source->fd, &msg, &body, fds, &fd_count);
    if (err == -EAGAIN)
        return;
    guest->fd_count += fd_count;
    if (fd_count > 0)
        memcpy(guest->fds, fds, fd_count * sizeof(int));
    if (err == -ECONNRESET) {
        if (!guest->spoken)
            sl_info("shm", "shm: a connection came and went without a word");
        shm_guest_end(iface, guest);
    } else if (err == -EPROTO || err == -EMFILE ||
               (err == 0 && !guest->spoken && msg.head.type == SHM_REFUSE)) {
        guest_failed(iface, guest, &msg, err);
    } else if (err != 0) {
        turn_away(iface, guest, err);
    } else if (guest->spoken || msg.head.type != SHM_HELLO || fd_count != 3) {
        turn_away(iface, guest, sl_fail(-EPROTO, "it spoke out of turn"));
    } else if ((ep = find_ep(iface, msg.hello.to)) == NULL || ep->guest != NULL ||
               (ep->state != SHM_NEW && ep->state != SHM_AWAITED)) {
        turn_away(iface, guest, sl_fail(-ECONNREFUSED, "it knows no endpoint of this process"));
    } else {
        guest->spoken = true;
        guest->hello = msg.hello;
        if (ep->state == SHM_AWAITED)
            seat(ep, guest);
        else
            ep->guest = guest; /* until ep_connect() tells who its peer is */
    }
}

static void evict_guest(struct shm_iface *iface)
{
    struct shm_guest *victim = NULL;

    sl_list_foreach(&iface->guests, node) {
        struct shm_guest *guest = sl_container_of(node, struct shm_guest, node);

        if (!guest->gone && (victim == NULL || (victim->spoken && !guest->spoken)))
            victim = guest;
    }
    if (victim != NULL)
        turn_away(iface, victim,
                  sl_fail(-ECONNREFUSED, "more than %d connections wait", GUESTS_MAX));
}

static void accept_failed(struct shm_iface *iface, int err)
{
    sl_warn("shm", "shm: %s", sluice_last_error());
    sl_list_foreach(&iface->eps, node) {
        struct shm_ep *ep = sl_container_of(node, struct shm_ep, node);

        if (ep->state == SHM_AWAITED)
            shm_ep_doom(ep, err);
    }
}

void shm_listener_ready(struct shm_iface *iface, struct shm_source *source)
{
    for (int i = 0; i < ACCEPTS_PER_LOOK; i++) {
        struct shm_guest *guest;
        int fd, err = shm_accept(source->fd, &fd);

        if (err == -EAGAIN)
            return;
        if (err != 0) {
            accept_failed(iface, err);
            return;
        }
        if (iface->guest_count >= GUESTS_MAX)
            evict_guest(iface);
        guest = calloc(1, sizeof(*guest));
        if (guest == NULL) {
            close(fd);
            return;
        }
        guest->source.fd = fd;
        guest->source.ready = guest_ready;
        guest->deadline_ns = now(iface) + GUEST_SILENT_NS;
        sl_list_push_back(&iface->guests, &guest->node);
        iface->guest_count++;
        if (shm_watch(iface, &guest->source, EPOLLIN) != 0)
            shm_guest_end(iface, guest);
        else
            guest_ready(iface, &guest->source); /* its HELLO is there already, mostly */
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
        if (ep->guest != NULL)
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
    else if (ep->state == SHM_AWAITED && ep->guest != NULL)
        seat(ep, ep->guest);
    else if (ep->state == SHM_ANSWER)
        answer(ep);
    if (ep->state == SHM_UP)
        return true;
    if (ep->state != SHM_DOOMED) {
        if (now_ns < ep->deadline_ns)
            return false;
        sl_fail(-ETIMEDOUT, "%s did not connect over shared memory in %lld ms", sl_ep_peer_name(&ep->base),
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

int shm_settle(struct shm_iface *iface, uint64_t now_ns)
{
    unsigned chores = 0;
    int moved = 0;

    if (iface->connecting > 0 || iface->chores > 0) {
        sl_list_foreach(&iface->eps, node) {
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
    if (iface->guest_count > 0) {
        sl_list_foreach(&iface->guests, node) {
            struct shm_guest *guest = sl_container_of(node, struct shm_guest, node);

            if (!guest->gone && !guest->spoken && now_ns >= guest->deadline_ns)
                turn_away(iface, guest, sl_fail(-ETIMEDOUT, "it said nothing for 5 s"));
        }
        guests_reap(iface);
    }
    return moved;
}
