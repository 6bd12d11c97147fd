/* SPDX-License-Identifier: Apache-2.0 */
/* bench_uring: epoll, and the same calls in a batch. */
#include "bench/uring.h"

#include <errno.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define SLICE ((size_t)512 << 10)

static void news(struct side *s)
{
    struct epoll_event events[CONNS_MAX];

    if (s->waiting == SLEEP)
        sleep_on(s->epoll);
    else if (s->yields)
        sched_yield();
    int n = epoll_wait(s->epoll, events, CONNS_MAX, s->waiting == ENTER ? -1 : 0);

    for (int i = 0; i < n; i++) {
        struct conn *conn = &s->conns[events[i].data.u32];

        conn->readable |= (events[i].events & EPOLLIN) != 0;
        conn->writable |= (events[i].events & EPOLLOUT) != 0;
    }
}

static void moved(struct conn *conn, bool sends, ssize_t n)
{
    if (n > 0 && sends)
        conn->sent += (size_t)n;
    else if (n > 0)
        conn->got += (size_t)n;
    else if (n == -EAGAIN && sends)
        conn->writable = false;
    else if (n == -EAGAIN)
        conn->readable = false;
    else
        errno = (int)-n, die(sends ? "send" : "recv");
}

static size_t slice(size_t left)
{
    return left < SLICE ? left : SLICE;
}

void epoll_exchange(struct side *s, size_t len, bool batch)
{
    unsigned open = s->count;

    while (open > 0) {
        unsigned queued = 0;

        open = 0;
        for (unsigned i = 0; i < s->count; i++) {
            struct conn *conn = &s->conns[i];
            bool send_it = conn->sent < len && conn->writable;
            bool recv_it =
                conn->got < len && (conn->readable || (s->count == 1 && s->waiting == SPIN));
            size_t tx = slice(len - conn->sent), rx = slice(len - conn->got);

            if (batch && send_it) {
                struct io_uring_sqe *sqe = io_uring_get_sqe(&s->plain);

                io_uring_prep_send(sqe, (int)i, s->src, tx, MSG_DONTWAIT | MSG_NOSIGNAL);
                sqe->flags |= IOSQE_FIXED_FILE;
                io_uring_sqe_set_data64(sqe, (uint64_t)OP_SEND << 32 | i);
                queued++;
            } else if (send_it) {
                ssize_t n = send(conn->fd, s->src, tx, MSG_DONTWAIT | MSG_NOSIGNAL);

                moved(conn, true, n < 0 ? -errno : n);
            }
            if (batch && recv_it) {
                struct io_uring_sqe *sqe = io_uring_get_sqe(&s->plain);

                io_uring_prep_recv(sqe, (int)i, s->dst, rx, MSG_DONTWAIT);
                sqe->flags |= IOSQE_FIXED_FILE;
                io_uring_sqe_set_data64(sqe, (uint64_t)OP_RECV << 32 | i);
                queued++;
            } else if (recv_it) {
                ssize_t n = recv(conn->fd, s->dst, rx, MSG_DONTWAIT);

                moved(conn, false, n < 0 ? -errno : n);
            }
        }
        if (queued > 0) {
            struct io_uring_cqe *cqe;

            io_uring_submit(&s->plain);
            for (; queued > 0 && io_uring_wait_cqe(&s->plain, &cqe) == 0; queued--) {
                moved(&s->conns[(uint32_t)cqe->user_data], cqe->user_data >> 32 == OP_SEND,
                      cqe->res);
                io_uring_cqe_seen(&s->plain, cqe);
            }
        }
        bool work = false;

        for (unsigned i = 0; i < s->count; i++) {
            struct conn *conn = &s->conns[i];

            open += conn->sent < len || conn->got < len;
            work |= (conn->sent < len && conn->writable) || (conn->got < len && conn->readable);
        }
        if (open > 0 && !work && (s->count > 1 || s->waiting != SPIN))
            news(s);
    }
}
