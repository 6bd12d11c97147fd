/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An endpoint that is up, besides its rings: messages of its socket (control messages, regions, the
 * news that the peer is gone), and its end.
 */
#include "shm/shm.h"

#include "core/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MESSAGES_PER_LOOK 32

const _Atomic uint32_t shm_always_awake;

/* The peer's socket is closed or its process dead. Its messages in the ring are still delivered. */
static void hang_up(struct shm_ep *ep)
{
    struct shm_iface *iface = shm_ep_iface(ep);

    shm_source_close(iface, &ep->source);
    shm_source_close(iface, &ep->death);
    if (ep->state == SHM_ANSWER) {
        shm_ep_doom(ep, sl_fail(-ECONNREFUSED, "the shm peer left while the connection was made"));
    } else if (ep->state == SHM_UP && !ep->leaving) {
        ep->leaving = true;
        iface->chores++;
    }
}

static int hear(struct shm_ep *ep, const struct shm_msg *msg, size_t body, const int *fds,
                unsigned fd_count)
{
    struct sl_handler *handler = &ep->base.iface->handler;

    switch (msg->head.type) {
    case SHM_CTRL:
        if (handler->ctrl != NULL)
            handler->ctrl(handler->arg, &ep->base, msg->ctrl, body);
        return 0;
    case SHM_REGION: return shm_heard_region(ep, &msg->region, fd_count == 1 ? fds[0] : -1);
    case SHM_DROP: shm_heard_drop(ep, msg->region.id); return 0;
    case SHM_BYE: ep->graceful = true; return 0;
    default:
        return sl_fail(-EPROTO, "a shm peer sent a message of type %u on a finished connection",
                       msg->head.type);
    }
}

void shm_socket_ready(struct shm_iface *iface, struct shm_source *source)
{
    struct shm_ep *ep = sl_container_of(source, struct shm_ep, source);

    (void)iface;
    for (int i = 0; i < MESSAGES_PER_LOOK && source->fd >= 0; i++) {
        struct shm_msg msg;
        int fds[SHM_FDS_MAX], err;
        unsigned fd_count = 0;
        size_t body;

        err = shm_take(source->fd, &msg, &body, fds, &fd_count);
        if (err == -EAGAIN)
            return;
        if (err == -ECONNRESET) {
            hang_up(ep);
            return;
        }
        if (err == -EMFILE && msg.head.type == SHM_REGION) {
            sl_warn("shm", "shm: %s", sluice_last_error());
            err = 0;
        }
        if (err == 0)
            err = hear(ep, &msg, body, fds, fd_count);
        while (fd_count > 0)
            close(fds[--fd_count]);
        if (err != 0) {
            shm_ep_lose(ep, -EBADMSG, "it sent what makes no sense");
            return;
        }
    }
}

static void death_ready(struct shm_iface *iface, struct shm_source *source)
{
    struct shm_ep *ep = sl_container_of(source, struct shm_ep, death);

    if (source->fd < 0)
        return;
    shm_socket_ready(iface, &ep->source); /* its last words first */
    if (!ep->leaving && ep->state == SHM_UP)
        hang_up(ep);
}

void shm_watch_process(struct shm_ep *ep)
{
    struct ucred cred;
    socklen_t len = sizeof(cred);

    if (getsockopt(ep->source.fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) != 0 || cred.pid <= 0)
        return;
    ep->peer_pid = cred.pid;
    ep->death.fd = (int)syscall(SYS_pidfd_open, cred.pid, 0);
    ep->death.ready = death_ready;
    if (ep->death.fd >= 0 && shm_watch(shm_ep_iface(ep), &ep->death, EPOLLIN) != 0) {
        close(ep->death.fd);
        ep->death.fd = -1;
    }
}

/* ---- the end ---- */

void shm_ep_lose(struct shm_ep *ep, int status, const char *why)
{
    struct shm_iface *iface = shm_ep_iface(ep);
    struct sl_handler *handler = &iface->base.handler;

    if (ep->state == SHM_LOST)
        return;
    ep->state = SHM_LOST;
    ep->status = status;
    snprintf(ep->why, sizeof(ep->why), "%s", why);
    ep->base.peer_asleep = &shm_always_awake;
    shm_source_close(iface, &ep->source);
    shm_source_close(iface, &ep->death);
    if (handler->down != NULL)
        handler->down(handler->arg, &ep->base, status, ep->why);
    sl_fail(status, "%s is lost: %s", sl_ep_peer_name(&ep->base), ep->why);
    shm_ep_lose_posted(ep, status);
}

bool shm_settle_leaving(struct shm_ep *ep)
{
    /* A ring's worth of cells at most: the peer might be alive and filling. */
    for (unsigned i = 0; i < ep->cells && shm_ep_receives(ep) && shm_ep_unread(ep); i++) {
        unsigned budget = ep->cells;

        shm_ep_run(ep, &budget);
    }
    if (ep->state != SHM_UP)
        return true;
    shm_take_closes(ep);
    /* Its last messages may still be received: but not by one that waits although all are here. */
    if (ep->graceful && !shm_ep_sending(ep) && ep->channels.wanting == 0 &&
        (shm_ep_unread(ep) || shm_channels_keep(ep)))
        return false;
    shm_ep_lose(ep, -ECONNRESET, ep->graceful ? "it closed the connection" : "its process is gone");
    return true;
}

int shm_ctrl(struct sl_ep *base, const void *msg, size_t len)
{
    struct shm_ep *ep = shm_ep_of(base);

    if (len > SL_CTRL_MAX)
        return sl_fail(-EINVAL, "a control message of %zu bytes; %d is the most", len, SL_CTRL_MAX);
    if (ep->state != SHM_UP)
        return shm_refused(ep, 0);
    if (ep->source.fd < 0)
        return sl_fail(-ECONNRESET, "%s closed the connection", sl_ep_peer_name(base));
    return shm_post(ep->source.fd, SHM_CTRL, msg, len, NULL, 0);
}

void shm_ep_destroy(struct sl_ep *base)
{
    struct shm_ep *ep = shm_ep_of(base);
    struct shm_iface *iface;
    struct sl_req *req;

    if (base == NULL)
        return;
    iface = shm_ep_iface(ep);
    req = ep->connect_req;
    if (ep->state == SHM_UP && ep->source.fd >= 0 &&
        shm_post(ep->source.fd, SHM_BYE, NULL, 0, NULL, 0) != 0)
        sl_debug("shm", "shm: %s could not be told that its endpoint closes",
                 sl_ep_peer_name(base));
    ep->state = SHM_LOST;
    ep->status = -ECANCELED;
    snprintf(ep->why, sizeof(ep->why), "its endpoint was destroyed");
    if (req != NULL) {
        iface->connecting--;
        ep->connect_req = NULL;
        sl_req_end(req, -ECANCELED);
    }
    shm_ep_end_posted(ep, -ECANCELED);
    if (ep->is_active)
        sl_list_remove(&ep->active);
    sl_list_remove(&ep->node);
    iface->ep_count--;
    if (ep->pending != NULL)
        shm_pending_end(iface, ep->pending);
    shm_source_close(iface, &ep->source);
    shm_source_close(iface, &ep->death);
    shm_forget_regions(ep);
    shm_segment_unmap(&ep->segment);
    if (ep->peer_page != NULL)
        munmap(ep->peer_page, sizeof(*ep->peer_page));
    if (ep->peer_event >= 0)
        close(ep->peer_event);
    if (ep->segment_fd >= 0)
        close(ep->segment_fd);
    sl_channels_fini(&ep->channels);
    free(ep->room_end);
    free(ep);
}
