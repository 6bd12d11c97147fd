/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The io_uring engine that moves bytes. Of a connection that carries messages:
 *
 *   sends     are entries of the ring, one in flight, all of a pass made by one io_uring_enter
 *   receives  are one multishot receive, which fills buffers that the interface's connections
 *             share; they are copied out as the stream asks. For a large payload it is taken back,
 *             and the bytes are read to their place.
 *
 * Every other socket is polled. Completions are deferred until this thread asks for them
 * (DEFER_TASKRUN), so the ring belongs to the thread that opened it: no user can ask for this engine,
 * only bench_tcp_engines takes it, to measure.
 */
#include "core/err.h"
#include "tcp/engine.h"

#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ENTRIES 256
#define CQ_ENTRIES 4096
#define EVENTS (POLLIN | POLLRDHUP)
#define BUFFERS 256u
#define BUFFER_BYTES (16u << 10)
#define NO_BUFFER UINT16_MAX
#define QUEUED_MAX (128u << 10) /* read ahead of one connection: TCP holds back its sender then */
#define BULK_BYTES (32u << 10)  /* of one read: worth having without a copy */
#define SMALL_BYTES 2048u       /* of one send: copied */

enum op { OP_NONE, OP_POLL, OP_RECV, OP_SEND };

struct slot {
    struct sl_tcp_watch *watch; /* NULL: free */
    uint32_t generation, next_free, next_noted;
    bool noted; /* in the list of those with news, and next_noted counts */
    bool moves, polled, receiving, taken_back, sending, eof;
    int error;            /* of a receive, once the buffers before it are read */
    uint16_t first, last; /* buffers with bytes */
    uint32_t off;         /* read of the first */
    uint32_t queued;
    struct iovec iov[2];
    struct msghdr msg;
    uint8_t small[SMALL_BYTES];
};

struct engine {
    struct io_uring ring;
    pid_t owner;
    int bell;
    struct slot **slots; /* handles count from 1 */
    uint32_t slot_count, first_free;
    bool wants_arm;
    struct io_uring_buf_ring *pool;
    uint8_t *bytes;
    uint16_t next[BUFFERS];
    uint32_t len[BUFFERS];
    uint32_t first_noted; /* news are told by poll() alone: others reap, too */
};

static pid_t this_thread(void)
{
    static _Thread_local pid_t tid;

    if (tid == 0)
        tid = (pid_t)syscall(SYS_gettid);
    return tid;
}

static void buffer_give(struct engine *engine, uint16_t bid)
{
    io_uring_buf_ring_add(engine->pool, engine->bytes + (size_t)bid * BUFFER_BYTES, BUFFER_BYTES,
                          bid, io_uring_buf_ring_mask(BUFFERS), 0);
    io_uring_buf_ring_advance(engine->pool, 1);
}

static void engine_close(void *arg)
{
    struct engine *engine = arg;

    if (engine == NULL)
        return;
    if (engine->ring.ring_fd > 0)
        io_uring_queue_exit(&engine->ring);
    if (engine->bell >= 0)
        close(engine->bell);
    for (uint32_t i = 1; i < engine->slot_count; i++)
        free(engine->slots[i]);
    free(engine->slots);
    free(engine->pool);
    free(engine->bytes);
    free(engine);
}

static int pool_open(struct engine *engine)
{
    struct io_uring_buf_reg reg = {.ring_entries = BUFFERS};
    int err;

    engine->pool = aligned_alloc(4096, 4096);
    engine->bytes = aligned_alloc(4096, (size_t)BUFFERS * BUFFER_BYTES);
    if (engine->pool == NULL || engine->bytes == NULL)
        return sl_fail(-ENOMEM, "no memory for the io_uring engine");
    memset(engine->pool, 0, 4096);
    reg.ring_addr = (uint64_t)(uintptr_t)engine->pool;
    err = io_uring_register_buf_ring(&engine->ring, &reg, 0);
    if (err != 0)
        return sl_fail(err, "io_uring takes no ring of buffers: %s", sluice_strerror(err));
    for (uint16_t i = 0; i < BUFFERS; i++)
        buffer_give(engine, i);
    return 0;
}

static int engine_open(void **out)
{
    struct io_uring_params params = {.flags = IORING_SETUP_CQSIZE | IORING_SETUP_SINGLE_ISSUER |
                                              IORING_SETUP_DEFER_TASKRUN |
                                              IORING_SETUP_TASKRUN_FLAG,
                                     .cq_entries = CQ_ENTRIES};
    struct engine *engine = calloc(1, sizeof(*engine));
    int err;

    if (engine == NULL)
        return sl_fail(-ENOMEM, "no memory for the io_uring engine");
    engine->bell = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    err = engine->bell < 0 ? -errno : io_uring_queue_init_params(ENTRIES, &engine->ring, &params);
    if (err != 0) {
        err = sl_fail(err, "io_uring is refused: %s", sluice_strerror(err));
        goto err_engine;
    }
    engine->owner = this_thread();
    io_uring_register_ring_fd(&engine->ring);
    err = pool_open(engine);
    if (err == 0)
        err = io_uring_register_eventfd(&engine->ring, engine->bell);
    if (err != 0)
        goto err_engine;
    io_uring_cq_eventfd_toggle(&engine->ring, false);
    *out = engine;
    return 0;

err_engine:
    engine_close(engine);
    return err;
}

static struct io_uring_sqe *entry(struct engine *engine)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&engine->ring);

    if (sqe == NULL) {
        io_uring_submit(&engine->ring);
        sqe = io_uring_get_sqe(&engine->ring);
    }
    return sqe;
}

static void name(struct io_uring_sqe *sqe, const struct slot *slot, uint32_t handle, enum op op)
{
    io_uring_sqe_set_data64(sqe, (uint64_t)op << 56 |
                                     (uint64_t)(slot->generation & 0xffffff) << 32 | handle);
}

static uint64_t name_of(const struct slot *slot, uint32_t handle, enum op op)
{
    return (uint64_t)op << 56 | (uint64_t)(slot->generation & 0xffffff) << 32 | handle;
}

static void arm_poll(struct engine *engine, uint32_t handle, bool once)
{
    struct slot *slot = engine->slots[handle];
    struct io_uring_sqe *sqe = entry(engine);
    unsigned mask = EVENTS | (slot->watch->kind == SL_TCP_WATCH_CONN && !once ? POLLOUT : 0);

    if (once)
        io_uring_prep_poll_add(sqe, slot->watch->fd, mask);
    else
        io_uring_prep_poll_multishot(sqe, slot->watch->fd, mask);
    name(sqe, slot, handle, OP_POLL);
    slot->polled = true;
}

static void arm_recv(struct engine *engine, uint32_t handle)
{
    struct slot *slot = engine->slots[handle];
    struct io_uring_sqe *sqe = entry(engine);

    io_uring_prep_recv_multishot(sqe, slot->watch->fd, NULL, 0, 0);
    sqe->flags |= IOSQE_BUFFER_SELECT;
    sqe->buf_group = 0;
    sqe->ioprio |= IORING_RECVSEND_POLL_FIRST;
    name(sqe, slot, handle, OP_RECV);
    slot->receiving = true;
    slot->taken_back = false;
}

static void take_back(struct engine *engine, uint32_t handle, enum op op)
{
    struct slot *slot = engine->slots[handle];
    struct io_uring_sqe *sqe = entry(engine);

    io_uring_prep_cancel64(sqe, name_of(slot, handle, op), 0);
    io_uring_sqe_set_data64(sqe, 0);
    if (op == OP_RECV)
        slot->taken_back = true;
}

/* ---- completions ---- */

static void received(struct engine *engine, struct slot *slot, const struct io_uring_cqe *cqe)
{
    if ((cqe->flags & IORING_CQE_F_MORE) == 0)
        slot->receiving = false;
    if (cqe->res > 0) {
        uint16_t bid = (uint16_t)(cqe->flags >> IORING_CQE_BUFFER_SHIFT);

        engine->len[bid] = (uint32_t)cqe->res;
        engine->next[bid] = NO_BUFFER;
        if (slot->first == NO_BUFFER) {
            slot->first = bid;
            slot->off = 0;
        } else {
            engine->next[slot->last] = bid;
        }
        slot->last = bid;
        slot->queued += (uint32_t)cqe->res;
        if (slot->queued > QUEUED_MAX && slot->receiving && !slot->taken_back)
            take_back(engine, slot->watch->handle, OP_RECV);
    } else if (cqe->res == 0) {
        slot->eof = true;
    } else if (cqe->res != -ENOBUFS && cqe->res != -ECANCELED && cqe->res != -EAGAIN) {
        slot->error = -cqe->res;
    }
    slot->watch->readable = true;
}

static void on_cqe(struct engine *engine, const struct io_uring_cqe *cqe)
{
    uint32_t handle = (uint32_t)cqe->user_data;
    uint32_t generation = (uint32_t)(cqe->user_data >> 32) & 0xffffff;
    enum op op = (enum op)(cqe->user_data >> 56);
    struct slot *slot;
    struct sl_tcp_watch *watch;

    if (handle == 0)
        return;
    slot = engine->slots[handle];
    watch = slot->watch;
    if (watch == NULL || (slot->generation & 0xffffff) != generation)
        return;
    switch (op) {
    case OP_POLL:
        if ((cqe->flags & IORING_CQE_F_MORE) == 0) {
            slot->polled = false;
            if (!slot->moves)
                engine->wants_arm = true;
        }
        if (cqe->res < 0 || (cqe->res & (POLLIN | POLLRDHUP | POLLHUP | POLLERR)) != 0)
            watch->readable = true;
        if (cqe->res < 0 || (cqe->res & (POLLRDHUP | POLLHUP | POLLERR)) != 0)
            watch->hung_up = true;
        if (cqe->res > 0 && (cqe->res & (POLLOUT | POLLHUP | POLLERR)) != 0)
            watch->writable = true;
        break;
    case OP_RECV: received(engine, slot, cqe); break;
    default:
        slot->sending = false;
        watch->sent = cqe->res;
        watch->has_sent = true;
    }
    if (!slot->noted) {
        slot->noted = true;
        slot->next_noted = engine->first_noted;
        engine->first_noted = handle;
    }
}

static void reap(struct engine *engine)
{
    struct io_uring_cqe *cqe;

    while (io_uring_peek_cqe(&engine->ring, &cqe) == 0) {
        struct io_uring_cqe copy = *cqe;

        io_uring_cqe_seen(&engine->ring, cqe);
        on_cqe(engine, &copy);
    }
}

static int tell(struct engine *engine, sl_tcp_event_fn *event, void *event_arg)
{
    uint32_t handle = engine->first_noted;
    int count = 0;

    engine->first_noted = 0;
    while (handle != 0) {
        struct slot *slot = engine->slots[handle];

        handle = slot->next_noted;
        slot->noted = false;
        count++;
        if (slot->watch != NULL)
            event(event_arg, slot->watch);
    }
    return count;
}

static void arm_all(struct engine *engine)
{
    engine->wants_arm = false;
    for (uint32_t handle = 1; handle < engine->slot_count; handle++) {
        struct slot *slot = engine->slots[handle];

        if (slot->watch != NULL && !slot->moves && !slot->polled)
            arm_poll(engine, handle, false);
    }
}

static int check_owner(const struct engine *engine)
{
    if (SL_LIKELY(engine->owner == this_thread()))
        return 0;
    return sl_fail(-ENOTSUP, "an io_uring that defers its work belongs to one thread: use "
                             "SLUICE_TCP_ENGINE=epoll");
}

static int engine_poll(void *arg, sl_tcp_event_fn *event, void *event_arg)
{
    struct engine *engine = arg;
    int err = check_owner(engine);

    if (err != 0)
        return err;
    if (engine->wants_arm)
        arm_all(engine);
    if (io_uring_sq_ready(&engine->ring) > 0)
        io_uring_submit_and_get_events(&engine->ring);
    else if ((*engine->ring.sq.kflags & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) != 0)
        io_uring_get_events(&engine->ring);
    reap(engine);
    return tell(engine, event, event_arg);
}

/* ---- watches ---- */

static int slots_grow(struct engine *engine)
{
    uint32_t count = engine->slot_count == 0 ? 64 : 2 * engine->slot_count;
    struct slot **slots = reallocarray(engine->slots, count, sizeof(struct slot *));

    if (slots == NULL)
        return sl_fail(-ENOMEM, "no memory for %u watched sockets", count);
    engine->slots = slots;
    for (uint32_t i = engine->slot_count; i < count; i++)
        slots[i] = NULL;
    for (uint32_t i = count - 1; i >= engine->slot_count && i > 0; i--) {
        slots[i] = calloc(1, sizeof(struct slot));
        if (slots[i] == NULL)
            break;
        slots[i]->next_free = engine->first_free;
        engine->first_free = i;
    }
    engine->slot_count = count;
    return engine->first_free != 0 ? 0
                                   : sl_fail(-ENOMEM, "no memory for %u watched sockets", count);
}

static int engine_add(void *arg, struct sl_tcp_watch *watch)
{
    struct engine *engine = arg;
    struct slot *slot;
    uint32_t generation, next_noted;
    bool noted;
    int err = check_owner(engine);

    if (err == 0 && engine->first_free == 0)
        err = slots_grow(engine);

    if (err != 0)
        return err;
    watch->handle = engine->first_free;
    slot = engine->slots[watch->handle];
    engine->first_free = slot->next_free;
    generation = slot->generation + 1;
    noted = slot->noted;
    next_noted = slot->next_noted;
    memset(slot, 0, offsetof(struct slot, small));
    slot->noted = noted;
    slot->next_noted = next_noted;
    slot->generation = generation;
    slot->watch = watch;
    slot->first = slot->last = NO_BUFFER;
    arm_poll(engine, watch->handle, false);
    io_uring_submit(&engine->ring);
    return 0;
}

/* Until the kernel has nothing of it any more. */
static void stop(struct engine *engine, uint32_t handle)
{
    struct slot *slot = engine->slots[handle];

    if (slot->polled)
        take_back(engine, handle, OP_POLL);
    if (slot->receiving)
        take_back(engine, handle, OP_RECV);
    if (slot->sending)
        take_back(engine, handle, OP_SEND);
    while (slot->polled || slot->receiving || slot->sending) {
        io_uring_submit_and_wait(&engine->ring, 1);
        reap(engine);
    }
}

static void engine_stop(void *arg, struct sl_tcp_watch *watch)
{
    if (watch->handle != 0)
        stop(arg, watch->handle);
}

static void engine_del(void *arg, struct sl_tcp_watch *watch)
{
    struct engine *engine = arg;
    struct slot *slot = engine->slots[watch->handle];

    stop(engine, watch->handle);
    while (slot->first != NO_BUFFER) {
        uint16_t bid = slot->first;

        slot->first = engine->next[bid];
        buffer_give(engine, bid);
    }
    slot->watch = NULL;
    slot->next_free = engine->first_free;
    engine->first_free = watch->handle;
    watch->handle = 0;
    watch->moves = false;
}

static void engine_move(void *arg, struct sl_tcp_watch *watch)
{
    struct engine *engine = arg;
    struct slot *slot = engine->slots[watch->handle];

    slot->moves = watch->moves = true;
    if (slot->polled)
        stop(engine, watch->handle);
    watch->readable = watch->writable = true;
}

/* ---- bytes ---- */

static ssize_t copy_out(struct engine *engine, struct slot *slot, const struct iovec *iov,
                        unsigned count)
{
    size_t done = 0, at = 0;
    unsigned i = 0;

    while (slot->first != NO_BUFFER && i < count) {
        uint16_t bid = slot->first;
        size_t len = engine->len[bid] - slot->off;

        if (len > iov[i].iov_len - at)
            len = iov[i].iov_len - at;
        memcpy((uint8_t *)iov[i].iov_base + at,
               engine->bytes + (size_t)bid * BUFFER_BYTES + slot->off, len);
        at += len;
        done += len;
        slot->off += (uint32_t)len;
        slot->queued -= (uint32_t)len;
        if (slot->off == engine->len[bid]) {
            slot->first = engine->next[bid];
            slot->off = 0;
            buffer_give(engine, bid);
        }
        if (at == iov[i].iov_len) {
            i++;
            at = 0;
        }
    }
    return (ssize_t)done;
}

static void take_back_now(struct engine *engine, uint32_t handle)
{
    struct slot *slot = engine->slots[handle];

    if (!slot->taken_back)
        take_back(engine, handle, OP_RECV);
    while (slot->receiving) {
        io_uring_submit_and_wait(&engine->ring, 1);
        reap(engine);
    }
}

static ssize_t engine_recv(void *arg, struct sl_tcp_watch *watch, struct iovec *iov, unsigned count)
{
    struct engine *engine = arg;
    struct slot *slot = engine->slots[watch->handle];
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = count};
    bool bulk = iov[0].iov_len >= BULK_BYTES;
    ssize_t n;

    if (slot->first == NO_BUFFER && slot->receiving && bulk)
        take_back_now(engine, watch->handle);
    if (slot->first != NO_BUFFER) {
        n = copy_out(engine, slot, iov, count);
        return n;
    }
    if (slot->error != 0) {
        errno = slot->error;
        return -1;
    }
    if (slot->eof)
        return 0;
    if (slot->receiving) {
        errno = EAGAIN;
        return -1;
    }
    n = recvmsg(watch->fd, &msg, MSG_DONTWAIT);
    if (n >= 0 || errno != EAGAIN)
        return n;
    if (bulk && !slot->polled)
        arm_poll(engine, watch->handle, true);
    else if (!slot->polled)
        arm_recv(engine, watch->handle);
    errno = EAGAIN;
    return n;
}

static void engine_send(void *arg, struct sl_tcp_watch *watch, const struct iovec *iov,
                        unsigned count)
{
    struct engine *engine = arg;
    struct slot *slot = engine->slots[watch->handle];
    struct io_uring_sqe *sqe = entry(engine);
    size_t len = iov[0].iov_len + (count > 1 ? iov[1].iov_len : 0);

    if (len <= SMALL_BYTES) {
        memcpy(slot->small, iov[0].iov_base, iov[0].iov_len);
        if (count > 1 && iov[1].iov_len > 0)
            memcpy(slot->small + iov[0].iov_len, iov[1].iov_base, iov[1].iov_len);
        io_uring_prep_send(sqe, watch->fd, slot->small, len, MSG_WAITALL | MSG_NOSIGNAL);
    } else {
        memcpy(slot->iov, iov, count * sizeof(*iov));
        slot->msg = (struct msghdr){.msg_iov = slot->iov, .msg_iovlen = count};
        io_uring_prep_sendmsg(sqe, watch->fd, &slot->msg, MSG_WAITALL | MSG_NOSIGNAL);
    }
    name(sqe, slot, watch->handle, OP_SEND);
    slot->sending = watch->sending = true;
}

static void engine_arm(void *arg)
{
    struct engine *engine = arg;
    uint64_t count;

    if (read(engine->bell, &count, sizeof(count)) < 0 && errno != EAGAIN)
        return;
    io_uring_cq_eventfd_toggle(&engine->ring, true);
    /* The kernel marks its work, then looks at that. */
    atomic_thread_fence(memory_order_seq_cst);
}

static void engine_disarm(void *arg)
{
    io_uring_cq_eventfd_toggle(&((struct engine *)arg)->ring, false);
}

static int engine_fd(void *arg)
{
    return ((struct engine *)arg)->bell;
}

const struct sl_tcp_engine_ops sl_tcp_ring = {
    .name = "ring",
    .open = engine_open,
    .close = engine_close,
    .add = engine_add,
    .del = engine_del,
    .poll = engine_poll,
    .fd = engine_fd,
    .move = engine_move,
    .stop = engine_stop,
    .recv = engine_recv,
    .send = engine_send,
    .arm = engine_arm,
    .disarm = engine_disarm,
};
