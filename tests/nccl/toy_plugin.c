/* SPDX-License-Identifier: Apache-2.0 */
/* The toy's connections: listen, connect, accept, and the end of them. The data is in toy_data.c.
 */
#include "tests/nccl/toy_inside.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAGIC 0x746f792d6e657401ull
#define WAITING_MOST 64
#define LOSS_MS 5000 /* a peer that does not acknowledge for so long is gone */

enum toy_fault toy_fault;

static const struct {
    const char *name;
    enum toy_fault fault;
} fault_names[] = {
#define TOY_NAME(name, text) {#name, TOY_##name},
    TOY_FAULTS(TOY_NAME)
#undef TOY_NAME
};

struct pending { /* a connection that is coming up; freed with it, or by finalize */
    int fd;
    bool greeted;
    struct pending *next;
};

struct context {
    net_logger logger;
    net_profiler profiler;
    struct pending *pendings;
    struct comm *comms; /* of this context */
    struct context *next;
};

struct handle { /* 128 bytes at most; the connector's copy keeps its state */
    uint64_t magic, nonce;
    struct sockaddr_in address;
    struct pending *pending;
};
_Static_assert(sizeof(struct handle) <= NET_HANDLE_BYTES, "a handle has 128 bytes");

struct hello {
    uint64_t magic, nonce;
};

struct waiting { /* someone who connected and has not said hello yet */
    int fd;
    size_t got;
    struct hello hello;
};

struct listener {
    struct context *ctx;
    int fd;
    uint64_t nonce;
    bool accepted;
    struct waiting waiting[WAITING_MOST];
    unsigned count;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct context *contexts; /* of v11 and later */
static struct context for_all;   /* before: one that is never finalized */
static uint64_t next_nonce;

static void choose_fault(void)
{
    const char *name = getenv("TOY_FAULT");

    for (size_t i = 0; name != NULL && i < sizeof(fault_names) / sizeof(fault_names[0]); i++)
        if (strcmp(name, fault_names[i].name) == 0)
            toy_fault = fault_names[i].fault;
}

static void *idle_thread(void *arg)
{
    pause();
    return arg;
}

int toy_init(void **ctx, uint64_t id, struct net_config *config, net_logger logger,
             net_profiler profiler)
{
    struct context *c = ctx != NULL ? calloc(1, sizeof(*c)) : &for_all;
    pthread_t thread;

    if (c == NULL)
        return NET_SYSTEM;
    choose_fault();
    c->logger = logger;
    c->profiler = profiler;
    if (ctx != NULL) {
        pthread_mutex_lock(&lock);
        c->next = contexts;
        contexts = c;
        pthread_mutex_unlock(&lock);
        *ctx = c;
    }
    if (toy_fault == TOY_thread_left && pthread_create(&thread, NULL, idle_thread, NULL) == 0)
        pthread_detach(thread);
    logger(NET_LOG_INFO, 8, __FILE__, __LINE__, "NET/Toy: hello %d", 1);
    return NET_OK;
}

int toy_finalize(void *ctx)
{
    struct context *c = ctx, **at;

    if (c == NULL && toy_fault != TOY_null_context)
        return NET_OK;
    pthread_mutex_lock(&lock);
    while (c->pendings != NULL && toy_fault != TOY_half_open_leaks) {
        struct pending *p = c->pendings;

        c->pendings = p->next;
        close(p->fd);
        free(p);
    }
    for (at = &contexts; *at != NULL && *at != c; at = &(*at)->next)
        continue;
    if (*at != NULL)
        *at = c->next;
    for (struct context *other = contexts; toy_fault == TOY_finalize_ends_all && other != NULL;
         other = other->next)
        for (struct comm *comm = other->comms; comm != NULL; comm = comm->next)
            shutdown(comm->fd, SHUT_RDWR);
    pthread_mutex_unlock(&lock);
    free(c);
    return NET_OK;
}

int toy_devices(int *count)
{
    *count = 1;
    return NET_OK;
}

int toy_listen(void *ctx, int dev, void *handle, void **comm)
{
    struct listener *l = calloc(1, sizeof(*l));
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(address);
    struct handle h = {.magic = MAGIC};
    int room = 1 << 20;

    if (l == NULL)
        return NET_SYSTEM;
    l->ctx = ctx != NULL ? ctx : &for_all;
    l->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    /* What is accepted has the same. Left to itself the kernel (6.18) may come to hold 32 MiB, the
     * whole window of a receiver that stands still: then nothing is left in the sender's queue. */
    setsockopt(l->fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
    if (l->fd < 0 || bind(l->fd, (struct sockaddr *)&address, sizeof(address)) != 0 ||
        listen(l->fd, 64) != 0 || getsockname(l->fd, (struct sockaddr *)&address, &len) != 0) {
        close(l->fd);
        free(l);
        return NET_SYSTEM;
    }
    pthread_mutex_lock(&lock);
    l->nonce = ++next_nonce;
    pthread_mutex_unlock(&lock);
    h.nonce = l->nonce;
    h.address = address;
    memset(handle, 0, toy_fault == TOY_handle_overrun ? NET_HANDLE_BYTES + 8 : NET_HANDLE_BYTES);
    memcpy(handle, &h, sizeof(h));
    *comm = l;
    return NET_OK;
}

static struct comm *make_comm(struct context *ctx, int fd, bool send)
{
    struct comm *comm = calloc(1, sizeof(*comm));
    int one = 1, loss = LOSS_MS;

    if (comm == NULL)
        return NULL;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &one, sizeof(one));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &one, sizeof(one));
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &loss, sizeof(loss));
    comm->fd = fd;
    comm->send = send;
    comm->ctx = ctx;
    comm->profiler = ctx->profiler;
    pthread_mutex_lock(&lock);
    comm->next = ctx->comms;
    ctx->comms = comm;
    pthread_mutex_unlock(&lock);
    return comm;
}

static void forget_pending(struct context *c, struct pending *p)
{
    struct pending **at;

    pthread_mutex_lock(&lock);
    for (at = &c->pendings; *at != p; at = &(*at)->next)
        continue;
    *at = p->next;
    pthread_mutex_unlock(&lock);
    free(p);
}

static struct pending *start_connect(struct context *c, const struct handle *h)
{
    struct pending *p = calloc(1, sizeof(*p));

    if (p == NULL)
        return NULL;
    p->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (p->fd < 0 ||
        (connect(p->fd, (const struct sockaddr *)&h->address, sizeof(h->address)) != 0 &&
         errno != EINPROGRESS)) {
        close(p->fd);
        free(p);
        return NULL;
    }
    pthread_mutex_lock(&lock);
    p->next = c->pendings;
    c->pendings = p;
    pthread_mutex_unlock(&lock);
    return p;
}

/* 1: up. 0: not yet. Negative: it will not come up. */
static int advance(struct pending *p, const struct handle *h)
{
    struct pollfd ready = {.fd = p->fd, .events = p->greeted ? POLLIN : POLLOUT};
    struct hello hello = {.magic = h->magic, .nonce = h->nonce};
    char welcome;

    if (poll(&ready, 1, 0) == 0)
        return 0;
    if (!p->greeted) {
        if (send(p->fd, &hello, sizeof(hello), MSG_NOSIGNAL) != (ssize_t)sizeof(hello))
            return -1;
        p->greeted = true;
        return 0;
    }
    return recv(p->fd, &welcome, 1, 0) == 1 ? 1 : -1;
}

int toy_connect(void *ctx, int dev, void *handle, void **comm, void **device)
{
    static struct pending *one_for_all;
    struct context *c = ctx != NULL ? ctx : &for_all;
    struct handle *h = handle;
    struct pending **state = toy_fault == TOY_one_connect_at_a_time ? &one_for_all : &h->pending;
    int up;

    *comm = NULL;
    if (h->magic != MAGIC)
        return NET_ARGUMENT;
    if (*state == NULL)
        *state = start_connect(c, h);
    if (*state == NULL)
        return NET_SYSTEM;
    if (toy_fault == TOY_handle_overrun_later)
        ((uint8_t *)handle)[NET_HANDLE_BYTES] = 1;
    up = advance(*state, h);
    if (up == 0)
        return NET_OK;
    if (up > 0)
        *comm = make_comm(c, (*state)->fd, true);
    else
        close((*state)->fd);
    forget_pending(c, *state);
    *state = NULL;
    return up > 0 && *comm != NULL ? NET_OK : NET_REMOTE;
}

static void drop(struct listener *l, unsigned at, bool shut)
{
    if (shut)
        close(l->waiting[at].fd);
    l->waiting[at] = l->waiting[--l->count];
}

static void take_callers(struct listener *l)
{
    int fd;

    while ((fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
        if (l->count == WAITING_MOST)
            drop(l, 0, true);
        l->waiting[l->count++] = (struct waiting){.fd = fd};
    }
}

/* The first who said the right words; -1: nobody yet. */
static int find_peer(struct listener *l)
{
    for (unsigned i = 0; i < l->count; i++) {
        struct waiting *w = &l->waiting[i];
        struct pollfd ready = {.fd = w->fd, .events = POLLIN};
        ssize_t n;

        if (toy_fault == TOY_stranger_blocks)
            poll(&ready, 1, -1);
        n = recv(w->fd, (uint8_t *)&w->hello + w->got, sizeof(w->hello) - w->got, 0);
        if (n < 0 && errno == EAGAIN)
            continue;
        if (n > 0)
            w->got += (size_t)n;
        if (n > 0 && w->got < sizeof(w->hello) && toy_fault != TOY_stranger_accepted)
            continue;
        if (n > 0 && ((w->hello.magic == MAGIC && w->hello.nonce == l->nonce) ||
                      toy_fault == TOY_stranger_accepted)) {
            int fd = w->fd;

            drop(l, i, false);
            return fd;
        }
        drop(l, i--, true);
    }
    return -1;
}

int toy_accept(void *listen, void **comm, void **device)
{
    struct listener *l = listen;
    int fd;

    *comm = NULL;
    do {
        struct pollfd ready = {.fd = l->fd, .events = POLLIN};

        if (toy_fault == TOY_blocking_accept && l->count == 0)
            poll(&ready, 1, -1);
        take_callers(l);
        fd = find_peer(l);
    } while (fd < 0 && toy_fault == TOY_blocking_accept);
    if (fd < 0)
        return NET_OK;
    if (send(fd, "w", 1, MSG_NOSIGNAL) != 1) {
        close(fd);
        return NET_OK; /* whoever it was has gone: the next may be better */
    }
    l->accepted = true;
    *comm = make_comm(l->ctx, fd, false);
    return *comm != NULL ? NET_OK : NET_SYSTEM;
}

int toy_close_listen(void *comm)
{
    struct listener *l = comm;

    if (l == NULL)
        return NET_OK;
    while (toy_fault == TOY_listener_waits && !l->accepted) {
        void *peer;

        toy_accept(l, &peer, NULL);
    }
    while (l->count > 0)
        drop(l, 0, true);
    close(l->fd);
    free(l);
    return NET_OK;
}

void toy_close_comm(struct comm *comm)
{
    struct context *c = comm->ctx;
    struct comm **at;

    pthread_mutex_lock(&lock);
    for (at = &c->comms; *at != comm; at = &(*at)->next)
        continue;
    *at = comm->next;
    pthread_mutex_unlock(&lock);
    close(comm->fd);
    free(comm);
}

int toy_reg_mr(void *comm, void *data, size_t len, int type, void **mr)
{
    if (data == NULL || len == 0 || (type & NET_PTR_HOST) == 0)
        return NET_ARGUMENT;
    *mr = malloc(64);
    return *mr != NULL ? NET_OK : NET_SYSTEM;
}

int toy_dereg_mr(void *comm, void *mr)
{
    if (toy_fault != TOY_registration_leaks)
        free(mr);
    return NET_OK;
}
