/* SPDX-License-Identifier: Apache-2.0 */
/* bench_uring: the ring moves the bytes. */
#include "bench/uring.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define REPORT_USAGE (1u << 3) /* in ioprio of SEND_ZC: the notification says whether it copied */
#define COPIED (1u << 31)

void buffer_give(struct side *s, uint16_t bid)
{
    io_uring_buf_ring_add(s->pool, s->pool_bytes + (size_t)bid * BUFFER_BYTES, BUFFER_BYTES, bid,
                          io_uring_buf_ring_mask(BUFFERS), 0);
    io_uring_buf_ring_advance(s->pool, 1);
}

static struct io_uring_sqe *entry(struct side *s, unsigned i, unsigned op)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&s->ring);

    if (sqe == NULL)
        die("the ring is full");
    io_uring_sqe_set_data64(sqe, (uint64_t)op << 32 | i);
    return sqe;
}

static void put_send(struct side *s, unsigned i, size_t len, bool zc)
{
    struct io_uring_sqe *sqe = entry(s, i, OP_SEND);

    if (zc) {
        io_uring_prep_send_zc(sqe, (int)i, s->src, len - s->conns[i].sent,
                              MSG_WAITALL | MSG_NOSIGNAL, 0);
        sqe->ioprio |= REPORT_USAGE;
        s->zc_sends++;
        s->notifs++;
    } else {
        io_uring_prep_send(sqe, (int)i, s->src, len - s->conns[i].sent, MSG_WAITALL | MSG_NOSIGNAL);
    }
    sqe->flags |= IOSQE_FIXED_FILE;
    io_uring_sqe_set_data64(sqe, (uint64_t)OP_SEND << 32 | i);
}

static void put_recv(struct side *s, unsigned i, size_t len, bool multi)
{
    struct conn *conn = &s->conns[i];
    struct io_uring_sqe *sqe = entry(s, i, OP_RECV);

    if (multi) {
        io_uring_prep_recv_multishot(sqe, (int)i, NULL, 0, 0);
        sqe->flags |= IOSQE_BUFFER_SELECT;
        sqe->buf_group = 0;
    } else {
        io_uring_prep_recv(sqe, (int)i, s->dst, len - conn->got, MSG_WAITALL);
        sqe->ioprio |= IORING_RECVSEND_POLL_FIRST;
    }
    sqe->flags |= IOSQE_FIXED_FILE;
    io_uring_sqe_set_data64(sqe, (uint64_t)OP_RECV << 32 | i);
    conn->armed = true;
}

static void on_cqe(struct side *s, const struct io_uring_cqe *cqe, size_t len, bool multi)
{
    struct conn *conn = &s->conns[(uint32_t)cqe->user_data];
    unsigned op = (unsigned)(cqe->user_data >> 32);

    if ((cqe->flags & IORING_CQE_F_NOTIF) != 0) {
        s->notifs--;
        s->zc_copied += ((uint32_t)cqe->res & COPIED) != 0;
        return;
    }
    if (op == OP_IGNORE)
        return;
    if (op == OP_RECV && (cqe->flags & IORING_CQE_F_MORE) == 0)
        conn->armed = false;
    if (op == OP_SEND) {
        if (cqe->res <= 0)
            errno = -cqe->res, die("send in the ring");
        conn->sent += (size_t)cqe->res;
        return;
    }
    if (cqe->res == -ENOBUFS || cqe->res == -ECANCELED)
        return;
    if (cqe->res <= 0)
        errno = -cqe->res, die("recv in the ring");
    if (multi) {
        uint16_t bid = (uint16_t)(cqe->flags >> IORING_CQE_BUFFER_SHIFT);

        memcpy(s->dst + conn->got % len, s->pool_bytes + (size_t)bid * BUFFER_BYTES,
               (size_t)cqe->res < len ? (size_t)cqe->res : len);
        buffer_give(s, bid);
    }
    conn->got += (size_t)cqe->res;
}

static void ring_sleep(struct side *s)
{
    uint64_t count;

    sleep_on(s->ring_event);
    if (read(s->ring_event, &count, sizeof(count)) < 0 && errno != EAGAIN)
        die("eventfd");
}

/* Multishot receives are of the peer's exchange that may come early: got runs over the end of
 * ours. */
void ring_exchange(struct side *s, size_t len, enum variant variant)
{
    bool multi = variant == MULTI;
    unsigned open = 1;

    for (unsigned i = 0; i < s->count; i++) {
        put_send(s, i, len, variant == ZC);
        if (!s->conns[i].armed)
            put_recv(s, i, len, multi);
    }
    do {
        struct io_uring_cqe *cqe;
        unsigned head, seen = 0;

        if (s->waiting == ENTER)
            io_uring_submit_and_wait(&s->ring, 1);
        else if (io_uring_sq_ready(&s->ring) > 0)
            io_uring_submit_and_get_events(&s->ring);
        else if ((*s->ring.sq.kflags & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) != 0)
            io_uring_get_events(&s->ring);
        io_uring_for_each_cqe(&s->ring, head, cqe)
        {
            on_cqe(s, cqe, len, multi);
            seen++;
        }
        io_uring_cq_advance(&s->ring, seen);
        if (seen == 0 && s->waiting == SLEEP)
            ring_sleep(s);
        else if (seen == 0 && s->yields)
            sched_yield();
        if (seen == 0)
            continue;
        open = s->notifs;
        for (unsigned i = 0; i < s->count; i++) {
            struct conn *conn = &s->conns[i];

            open += conn->sent < len || conn->got < len;
            if (!conn->armed && conn->got < len)
                put_recv(s, i, len, multi);
        }
    } while (open > 0);
}

void disarm(struct side *s)
{
    bool any = true;

    for (unsigned i = 0; i < s->count; i++)
        if (s->conns[i].armed) {
            struct io_uring_sqe *sqe = entry(s, i, OP_IGNORE);

            io_uring_prep_cancel64(sqe, (uint64_t)OP_RECV << 32 | i, 0);
            io_uring_sqe_set_data64(sqe, (uint64_t)OP_IGNORE << 32);
        }
    while (any) {
        struct io_uring_cqe *cqe;

        any = false;
        for (unsigned i = 0; i < s->count; i++)
            any |= s->conns[i].armed;
        if (!any)
            break;
        io_uring_submit_and_wait(&s->ring, 1);
        while (io_uring_peek_cqe(&s->ring, &cqe) == 0) {
            on_cqe(s, cqe, 1, false);
            io_uring_cqe_seen(&s->ring, cqe);
        }
    }
}
