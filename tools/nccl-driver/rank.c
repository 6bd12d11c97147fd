/* SPDX-License-Identifier: Apache-2.0 */
/* The service thread of a rank and what ranks tell each other beside the plugin. */
#include "tools/nccl-driver/rank.h"

#include "tools/nccl-driver/flow.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define POLL_PAUSE_NS 20000 /* after many rounds of nothing, as others need the core */
#define POLL_EAGER 500

uint64_t rank_random(uint64_t *rng)
{
    *rng ^= *rng << 13;
    *rng ^= *rng >> 7;
    *rng ^= *rng << 17;
    return *rng;
}

static const char *const job_names[] = {"listen",  "connect",   "accept",    "regMr",
                                        "deregMr", "closeSend", "closeRecv", "closeListen"};

/* One attempt. True when it is over. */
static bool attempt(struct rank *r, struct job *job)
{
    struct net *net = r->net;

    watch_about(job->conn, -1);
    job->polls++;
    switch (job->kind) {
    case JOB_LISTEN:
        job->result = net_listen(net, job->ctx, r->dev, job->handle, &job->comm);
        break;
    case JOB_CONNECT:
        job->result = net_connect(net, job->ctx, r->dev, job->handle, &job->comm);
        return job->result != NET_OK || job->comm != NULL;
    case JOB_ACCEPT:
        job->result = net_accept(net, job->listen, &job->comm);
        return job->result != NET_OK || job->comm != NULL;
    case JOB_REG: job->result = net_reg(net, job->comm, job->data, job->len, &job->mr); break;
    case JOB_DEREG: job->result = net_dereg(net, job->comm, job->mr); break;
    case JOB_CLOSE_SEND: job->result = net_close_send(net, job->comm); break;
    case JOB_CLOSE_RECV: job->result = net_close_recv(net, job->comm); break;
    case JOB_CLOSE_LISTEN: job->result = net_close_listen(net, job->comm); break;
    }
    return true;
}

static void judge(struct job *job)
{
    char warning[200];

    if (job->result == NET_OK || job->may_fail)
        return;
    net_last_warning(warning, sizeof(warning));
    watch_fail("%s of comm %d gave %s%s%s", job_names[job->kind], job->conn,
               net_result_name(job->result), warning[0] != '\0' ? "; the plugin says: " : "",
               warning);
}

/* One round over all that is pending: what takes long must not keep the others waiting. Lock held.
 */
static bool service_round(struct rank *r)
{
    struct job **at = &r->jobs;
    bool any = false;

    while (*at != NULL) {
        struct job *job = *at;
        bool over;

        pthread_mutex_unlock(&r->lock);
        over = attempt(r, job);
        if (over)
            judge(job);
        pthread_mutex_lock(&r->lock);
        if (!over) {
            at = &job->next;
            continue;
        }
        any = true;
        /* The list may have grown in front while the lock was open. */
        at = &r->jobs;
        while (*at != job)
            at = &(*at)->next;
        *at = job->next;
        job->done = true;
        pthread_cond_broadcast(&r->news);
    }
    return any;
}

static void *service_thread(void *arg)
{
    struct rank *r = arg;
    unsigned idle = 0;

    watch_sit(r->idx, ROLE_SERVICE);
    pthread_mutex_lock(&r->lock);
    while (!r->stop_service) {
        if (r->jobs == NULL) {
            pthread_cond_wait(&r->wake_service, &r->lock);
            idle = 0;
            continue;
        }
        idle = service_round(r) ? 0 : idle + 1;
        pthread_mutex_unlock(&r->lock);
        if (idle > POLL_EAGER)
            nanosleep(&(struct timespec){.tv_nsec = POLL_PAUSE_NS}, NULL);
        else
            sched_yield();
        pthread_mutex_lock(&r->lock);
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

void rank_submit(struct rank *r, struct job *job)
{
    struct job **at;

    job->done = false;
    job->polls = 0;
    job->next = NULL;
    if (job->kind == JOB_CONNECT || job->kind == JOB_ACCEPT || job->kind == JOB_LISTEN)
        job->comm = NULL;
    pthread_mutex_lock(&r->lock);
    for (at = &r->jobs; *at != NULL; at = &(*at)->next)
        continue;
    *at = job;
    pthread_cond_signal(&r->wake_service);
    pthread_mutex_unlock(&r->lock);
}

void rank_news_wait(struct rank *r)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (until.tv_nsec + 20000000) / 1000000000;
    until.tv_nsec = (until.tv_nsec + 20000000) % 1000000000;
    pthread_cond_timedwait(&r->news, &r->lock, &until);
}

int rank_await(struct rank *r, struct job *job)
{
    watch_about(job->conn, -1);
    watch_wait(job_names[job->kind]);
    pthread_mutex_lock(&r->lock);
    while (!job->done && !watch_over(0))
        rank_news_wait(r);
    pthread_mutex_unlock(&r->lock);
    watch_leave(false);
    watch_about(-1, -1);
    if (!job->done)
        return -1;
    return job->result == NET_OK || job->may_fail ? 0 : -1;
}

int rank_do(struct rank *r, struct job *job)
{
    rank_submit(r, job);
    return rank_await(r, job);
}

int rank_start(struct rank *r)
{
    pthread_condattr_t attr;
    int count = 0;

    if (r->rng == 0)
        r->rng = 0x9e3779b97f4a7c15u + (uint64_t)r->idx;
    r->turn_rng = r->rng + 1;
    if (net_init(r->net, &r->ctx, 0x1234) != NET_OK)
        return watch_fail("init failed");
    if (net_devices(r->net, &count) != NET_OK || count <= r->dev)
        return watch_fail("%d devices: there is no device %d", count, r->dev);
    if (net_properties(r->net, r->dev, 0, &r->props) != NET_OK)
        return watch_fail("getProperties failed");
    pthread_mutex_init(&r->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&r->wake_service, NULL);
    pthread_cond_init(&r->wake_progress, NULL);
    pthread_cond_init(&r->news, &attr);
    pthread_condattr_destroy(&attr);
    r->stop_service = r->stop_progress = false;
    r->jobs = NULL;
    r->flows = NULL;
    if (pthread_create(&r->service, NULL, service_thread, r) != 0)
        return watch_fail("no service thread");
    if (pthread_create(&r->progress, NULL, flow_thread, r) != 0)
        return watch_fail("no progress thread");
    r->running = true;
    return 0;
}

void rank_stop_progress(struct rank *r)
{
    pthread_mutex_lock(&r->lock);
    if (r->stop_progress) {
        pthread_mutex_unlock(&r->lock);
        return;
    }
    r->stop_progress = true;
    pthread_cond_signal(&r->wake_progress);
    pthread_mutex_unlock(&r->lock);
    watch_wait("the end of the progress thread");
    pthread_join(r->progress, NULL);
    watch_leave(false);
}

void rank_stop_threads(struct rank *r)
{
    rank_stop_progress(r);
    pthread_mutex_lock(&r->lock);
    if (r->stop_service) {
        pthread_mutex_unlock(&r->lock);
        return;
    }
    r->stop_service = true;
    pthread_cond_signal(&r->wake_service);
    pthread_mutex_unlock(&r->lock);
    watch_wait("the end of the service thread");
    pthread_join(r->service, NULL);
    watch_leave(false);
}

int rank_stop(struct rank *r)
{
    int rc = NET_OK;

    if (!r->running)
        return 0;
    rank_stop_threads(r);
    r->running = false;
    rc = net_finalize(r->net, r->ctx);
    r->ctx = NULL;
    pthread_mutex_destroy(&r->lock);
    pthread_cond_destroy(&r->wake_service);
    pthread_cond_destroy(&r->wake_progress);
    pthread_cond_destroy(&r->news);
    return rc == NET_OK ? 0 : watch_fail("finalize gave %s", net_result_name(rc));
}

int boot_send(struct rank *r, int peer, const void *data, size_t len)
{
    if (send(r->boot[peer], data, len, MSG_NOSIGNAL) == (ssize_t)len)
        return 0;
    return watch_fail("rank %d is gone", peer);
}

int boot_recv(struct rank *r, int peer, void *data, size_t len)
{
    size_t got = 0;

    watch_wait("a word from the other rank");
    while (got < len && !watch_over(0)) {
        struct pollfd fd = {.fd = r->boot[peer], .events = POLLIN};
        ssize_t n;

        if (poll(&fd, 1, 20) == 0)
            continue;
        n = recv(r->boot[peer], (char *)data + got, len - got, MSG_DONTWAIT);
        if (n == 0)
            return watch_fail("rank %d is gone", peer);
        if (n > 0)
            got += (size_t)n;
    }
    watch_leave(false);
    return got == len ? 0 : -1;
}

int boot_barrier(struct rank *r)
{
    char word = 'b';

    for (int peer = 0; peer < r->count; peer++)
        if (peer != r->idx && boot_send(r, peer, &word, 1) != 0)
            return -1;
    for (int peer = 0; peer < r->count; peer++)
        if (peer != r->idx && boot_recv(r, peer, &word, 1) != 0)
            return -1;
    return 0;
}

/* Handles go from the receiver to the sender. */
static int swap_handles(struct rank *r, struct conn *conns, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        struct conn *c = &conns[i];

        if (c->from == c->to)
            continue;
        if (c->to == r->idx && boot_send(r, c->from, c->handle, sizeof(c->handle)) != 0)
            return -1;
        if (c->from == r->idx && boot_recv(r, c->to, c->handle, sizeof(c->handle)) != 0)
            return -1;
    }
    return 0;
}

static void submit_ends(struct rank *r, struct conn *c)
{
    bool first = rank_random(&r->rng) & 1;

    c->connect =
        (struct job){.kind = JOB_CONNECT, .conn = c->id, .ctx = r->ctx, .handle = c->handle};
    c->accept = (struct job){.kind = JOB_ACCEPT, .conn = c->id, .listen = c->listen};
    for (int i = 0; i < 2; i++) {
        if ((i == 0) == first && c->from == r->idx)
            rank_submit(r, &c->connect);
        if ((i == 1) == first && c->to == r->idx)
            rank_submit(r, &c->accept);
    }
}

int rank_connect(struct rank *r, struct conn *conns, unsigned count)
{
    unsigned start = (unsigned)(rank_random(&r->rng) % count);

    for (unsigned i = 0; i < count; i++) {
        struct job job = {
            .kind = JOB_LISTEN, .conn = conns[i].id, .ctx = r->ctx, .handle = conns[i].handle};

        if (conns[i].to != r->idx)
            continue;
        if (rank_do(r, &job) != 0)
            return -1;
        if (job.comm == NULL)
            return watch_fail("listen succeeded and gave no comm");
        conns[i].listen = job.comm;
    }
    if (swap_handles(r, conns, count) != 0)
        return -1;
    for (unsigned i = 0; i < count; i++)
        submit_ends(r, &conns[(start + i) % count]);
    for (unsigned i = 0; i < count; i++) {
        struct conn *c = &conns[i];

        if (c->from == r->idx && rank_await(r, &c->connect) != 0)
            return -1;
        if (c->to == r->idx && rank_await(r, &c->accept) != 0)
            return -1;
        c->send_comm = c->from == r->idx ? c->connect.comm : NULL;
        c->recv_comm = c->to == r->idx ? c->accept.comm : NULL;
        if (c->to == r->idx) { /* at once, as NCCL does */
            struct job job = {.kind = JOB_CLOSE_LISTEN, .conn = c->id, .comm = c->listen};

            c->listen = NULL;
            if (rank_do(r, &job) != 0)
                return -1;
        }
    }
    return 0;
}

void rank_close(struct rank *r, struct conn *conns, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        struct conn *c = &conns[i];
        struct job send = {.kind = JOB_CLOSE_SEND, .conn = c->id, .comm = c->send_comm};
        struct job recv = {.kind = JOB_CLOSE_RECV, .conn = c->id, .comm = c->recv_comm};

        if (c->send_comm != NULL)
            rank_do(r, &send);
        if (c->recv_comm != NULL)
            rank_do(r, &recv);
        c->send_comm = c->recv_comm = NULL;
    }
}
