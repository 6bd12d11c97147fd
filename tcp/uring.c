/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The io_uring engine: multishot polls in place of epoll, so that looking for events is a read of
 * the completion queue in memory and no system call, however many peers there are. Bytes still move
 * by plain socket calls: docs/design/0004-tcp-engines.md has the measurements.
 *
 * Without SQPOLL the kernel completes polls in the task that made them. A ring therefore belongs to
 * a thread; when another thread takes over progress, the ring is made anew and all polls with it.
 */
#include "core/err.h"
#include "core/log.h"
#include "tcp/engine.h"

#include <liburing.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ENTRIES 64
#define CQ_ENTRIES 4096
#define EVENTS (POLLIN | POLLRDHUP)

/* The parts of user_data. Generations keep a late completion from hitting a reused slot. */
struct slot {
    struct sl_tcp_watch *watch; /* NULL: free */
    uint32_t generation;
    uint32_t next_free;
    bool armed; /* a multishot poll is in the kernel */
};

struct uring_engine {
    struct io_uring ring;
    int outer; /* an epoll instance with the ring in it: fd() must stay when the ring is remade */
    pid_t owner;
    struct slot *slots;
    uint32_t slot_count, first_free; /* handles count from 1 */
    bool wants_arm;                  /* some slot is not armed */
};

static pid_t this_thread(void)
{
    static _Thread_local pid_t tid;

    if (tid == 0)
        tid = (pid_t)syscall(SYS_gettid);
    return tid;
}

static const char *advice(int err)
{
    switch (err) {
    case -EPERM: return "; sysctl kernel.io_uring_disabled or a sandbox forbids it";
    case -ENOSYS: return "; this kernel or a seccomp filter has no io_uring";
    case -ENOMEM: return "; raise the locked-memory limit (ulimit -l)";
    case -EMFILE: return "; raise 'ulimit -n'";
    default: return "";
    }
}

/* Makes the ring for the calling thread. */
static int ring_make(struct uring_engine *engine)
{
    struct io_uring_params params = {.flags = IORING_SETUP_CQSIZE | IORING_SETUP_COOP_TASKRUN |
                                              IORING_SETUP_TASKRUN_FLAG,
                                     .cq_entries = CQ_ENTRIES};
    struct epoll_event event = {.events = EPOLLIN};
    int err = io_uring_queue_init_params(ENTRIES, &engine->ring, &params);

    if (err != 0)
        return sl_fail(err, "io_uring is refused: %s%s", sluice_strerror(err), advice(err));
    engine->owner = this_thread();
    if (epoll_ctl(engine->outer, EPOLL_CTL_ADD, engine->ring.ring_fd, &event) == 0)
        return 0;
    err = -errno;
    io_uring_queue_exit(&engine->ring);
    engine->owner = 0;
    return sl_fail(err, "epoll_ctl of an io_uring failed: %s", sluice_strerror(err));
}

static void engine_close(void *arg)
{
    struct uring_engine *engine = arg;

    if (engine == NULL)
        return;
    if (engine->owner != 0)
        io_uring_queue_exit(&engine->ring);
    if (engine->outer >= 0)
        close(engine->outer);
    free(engine->slots);
    free(engine);
}

/* One poll of our own end of a pipe, to see that the kernel can serve the engine. */
static int trial(struct uring_engine *engine)
{
    struct io_uring_probe *probe = io_uring_get_probe_ring(&engine->ring);
    bool ok = probe != NULL && io_uring_opcode_supported(probe, IORING_OP_POLL_ADD);

    io_uring_free_probe(probe);
    if (!ok)
        return sl_fail(-ENOTSUP, "this kernel's io_uring cannot poll");
    return 0;
}

static int engine_open(void **out)
{
    struct uring_engine *engine = calloc(1, sizeof(*engine));
    int err;

    if (engine == NULL)
        return sl_fail(-ENOMEM, "no memory for the io_uring engine");
    engine->outer = epoll_create1(EPOLL_CLOEXEC);
    if (engine->outer < 0) {
        err = sl_fail(-errno, "epoll_create1 failed: %s", sluice_strerror(-errno));
        goto err_engine;
    }
    err = ring_make(engine);
    if (err == 0)
        err = trial(engine);
    if (err != 0)
        goto err_engine;
    *out = engine;
    return 0;

err_engine:
    engine_close(engine);
    return err;
}

/* A place for one more entry; entries that wait are handed to the kernel first. */
static struct io_uring_sqe *sqe_get(struct uring_engine *engine)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&engine->ring);

    if (sqe == NULL) {
        io_uring_submit(&engine->ring);
        sqe = io_uring_get_sqe(&engine->ring);
    }
    return sqe;
}

static void slot_arm(struct uring_engine *engine, uint32_t handle)
{
    struct slot *slot = &engine->slots[handle];
    struct io_uring_sqe *sqe = sqe_get(engine);

    if (sqe == NULL) {
        engine->wants_arm = true;
        return;
    }
    io_uring_prep_poll_multishot(sqe, slot->watch->fd,
                                 EVENTS | (sl_tcp_watch_writes(slot->watch) ? POLLOUT : 0));
    io_uring_sqe_set_data64(sqe, (uint64_t)slot->generation << 32 | handle);
    slot->armed = true;
}

static void arm_all(struct uring_engine *engine)
{
    engine->wants_arm = false;
    for (uint32_t handle = 1; handle < engine->slot_count; handle++)
        if (engine->slots[handle].watch != NULL && !engine->slots[handle].armed)
            slot_arm(engine, handle);
    io_uring_submit(&engine->ring);
}

static int slots_grow(struct uring_engine *engine)
{
    uint32_t count = engine->slot_count == 0 ? 64 : 2 * engine->slot_count;
    struct slot *slots = reallocarray(engine->slots, count, sizeof(*slots));

    if (slots == NULL)
        return sl_fail(-ENOMEM, "no memory for %u watched sockets", count);
    engine->slots = slots;
    for (uint32_t i = count - 1; i >= engine->slot_count && i > 0; i--) {
        slots[i] = (struct slot){.next_free = engine->first_free};
        engine->first_free = i;
    }
    if (engine->slot_count == 0)
        slots[0] = (struct slot){0};
    engine->slot_count = count;
    return 0;
}

/* Another thread makes progress now. */
static int follow_thread(struct uring_engine *engine)
{
    int err;

    io_uring_queue_exit(&engine->ring);
    engine->owner = 0;
    err = ring_make(engine);
    if (err != 0)
        return err;
    for (uint32_t handle = 1; handle < engine->slot_count; handle++)
        engine->slots[handle].armed = false;
    arm_all(engine);
    return 0;
}

static int engine_add(void *arg, struct sl_tcp_watch *watch)
{
    struct uring_engine *engine = arg;
    struct slot *slot;
    int err = engine->owner == this_thread() ? 0 : follow_thread(engine);

    if (err == 0 && engine->first_free == 0)
        err = slots_grow(engine);
    if (err != 0)
        return err;
    watch->handle = engine->first_free;
    slot = &engine->slots[watch->handle];
    engine->first_free = slot->next_free;
    slot->watch = watch;
    slot->armed = false;
    slot_arm(engine, watch->handle);
    err = io_uring_submit(&engine->ring);
    return err < 0 ? sl_fail(err, "io_uring_submit failed: %s", sluice_strerror(err)) : 0;
}

static void engine_del(void *arg, struct sl_tcp_watch *watch)
{
    struct uring_engine *engine = arg;
    struct slot *slot = &engine->slots[watch->handle];

    if (slot->armed && engine->owner == this_thread()) {
        struct io_uring_sqe *sqe = sqe_get(engine);

        /* The poll holds the socket open until it is removed: without this the peer would not see
         * the close. */
        if (sqe != NULL) {
            io_uring_prep_poll_remove(sqe, (uint64_t)slot->generation << 32 | watch->handle);
            io_uring_sqe_set_data64(sqe, 0);
        }
        io_uring_submit(&engine->ring);
    } else if (slot->armed) {
        follow_thread(engine);
    }
    slot->watch = NULL;
    slot->generation++;
    slot->armed = false;
    slot->next_free = engine->first_free;
    engine->first_free = watch->handle;
    watch->handle = 0;
}

static void on_cqe(struct uring_engine *engine, const struct io_uring_cqe *cqe,
                   sl_tcp_event_fn *event, void *event_arg)
{
    uint32_t handle = (uint32_t)cqe->user_data, generation = (uint32_t)(cqe->user_data >> 32);
    struct slot *slot = &engine->slots[handle];
    struct sl_tcp_watch *watch;

    if (handle == 0 || slot->watch == NULL || slot->generation != generation)
        return;
    watch = slot->watch;
    if ((cqe->flags & IORING_CQE_F_MORE) == 0) {
        slot->armed = false;
        engine->wants_arm = true;
    }
    if (cqe->res < 0 || (cqe->res & (POLLIN | POLLRDHUP | POLLHUP | POLLERR)) != 0)
        watch->readable = true;
    if (cqe->res < 0 || (cqe->res & (POLLRDHUP | POLLHUP | POLLERR)) != 0)
        watch->hung_up = true;
    if (cqe->res < 0 || (cqe->res & (POLLOUT | POLLHUP | POLLERR)) != 0)
        watch->writable = true;
    event(event_arg, watch);
}

static int engine_poll(void *arg, sl_tcp_event_fn *event, void *event_arg)
{
    struct uring_engine *engine = arg;
    struct io_uring_cqe *cqe;
    int count = 0, err = 0;

    if (SL_UNLIKELY(engine->owner != this_thread()))
        err = follow_thread(engine);
    if (err != 0)
        return err;
    /* The kernel says in the ring when it has work for this task or overflowed completions. */
    if ((*engine->ring.sq.kflags & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) != 0)
        io_uring_get_events(&engine->ring);
    while (count < CQ_ENTRIES && io_uring_peek_cqe(&engine->ring, &cqe) == 0) {
        struct io_uring_cqe copy = *cqe;

        io_uring_cqe_seen(&engine->ring, cqe);
        on_cqe(engine, &copy, event, event_arg);
        count++;
    }
    if (engine->wants_arm)
        arm_all(engine);
    return count;
}

static int engine_fd(void *arg)
{
    return ((struct uring_engine *)arg)->outer;
}

const struct sl_tcp_engine_ops sl_tcp_uring = {
    .kind = SL_TCP_ENGINE_URING,
    .name = "uring",
    .open = engine_open,
    .close = engine_close,
    .add = engine_add,
    .del = engine_del,
    .poll = engine_poll,
    .fd = engine_fd,
};
