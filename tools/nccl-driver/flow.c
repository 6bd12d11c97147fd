/* SPDX-License-Identifier: Apache-2.0 */
/* The progress thread: posts, tests, and looks at every byte. */
#include "tools/nccl-driver/flow.h"

#include "tools/nccl-driver/pattern.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define GUARD 64
#define GUARD_BYTE 0x6e
#define IDLE_EAGER 500
#define IDLE_PAUSE_NS 20000

static char unwritten; /* what *request holds before a call */

size_t flow_size(const struct flow *f, int tag, unsigned step)
{
    return f->sizes[pattern_key(f->conn, tag, step) / 7 % f->size_count];
}

/* Room of a receive: as large as the message or larger, as NCCL does, or smaller to have it cut. */
static size_t room_of(const struct flow *f, int tag, unsigned step)
{
    size_t size = flow_size(f, tag, step);

    if (f->clip != 0)
        return size < f->clip ? size : f->clip;
    return size + (step % 3 == 0 ? 0 : 1 + step % 61);
}

static uint8_t *slot(const struct flow *f, unsigned sub, unsigned step)
{
    return f->memory[sub] + (step % f->window) * f->stride + GUARD;
}

/* An error of the plugin ends the flow, and the case too unless it was to be. */
static bool failed(struct flow *f, int rc, const char *call)
{
    char warning[160];

    if (rc == NET_OK)
        return false;
    f->result = rc;
    if (!f->may_fail) {
        net_last_warning(warning, sizeof(warning));
        watch_fail("%s gave %s%s%s", call, net_result_name(rc),
                   warning[0] != '\0' ? "; the plugin says: " : "", warning);
    }
    atomic_store(&f->state, FLOW_FAILED);
    return true;
}

static bool in_flight(struct rank *r, const void *request)
{
    bool found = false;

    pthread_mutex_lock(&r->lock);
    for (const struct flow *f = r->flows; f != NULL; f = f->next)
        for (unsigned s = 0; s < (f->send ? f->subs : 1); s++)
            for (unsigned i = f->done[s]; i != f->posted[s]; i++)
                found |= f->posts[s][i % f->window].request == request;
    pthread_mutex_unlock(&r->lock);
    return found;
}

/* Whether a call gave a request, and one that can be. */
static bool taken(struct rank *r, struct flow *f, void *request)
{
    if (request == NULL)
        return false;
    if (request == &unwritten)
        watch_fail("the call succeeded and did not write *request");
    else if (request == NET_MARKER)
        watch_fail("the marker was left in *request: NCCL takes it for a request");
    else if (in_flight(r, request))
        watch_fail("the request %p was given out twice: the first is still in flight", request);
    else
        return true;
    atomic_store(&f->state, FLOW_FAILED);
    return false;
}

static bool post_send(struct rank *r, struct flow *f, unsigned sub)
{
    unsigned step = f->posted[sub];
    struct flow_post *post = &f->posts[sub][step % f->window];
    size_t size = flow_size(f, f->tags[sub], step);
    uint8_t *data = slot(f, sub, step);
    void *request = &unwritten;

    if (f->filled[sub] != (int)step) {
        pattern_fill(data, size, f->conn, f->tags[sub], step);
        f->filled[sub] = (int)step;
    }
    post->phandles[0].magic = NET_PHANDLE;
    atomic_store(&post->phandles[0].live, 1);
    watch_about(f->conn, step);
    if (failed(f,
               net_isend(r->net, f->comm, data, size, f->tags[sub], f->mrs[sub], &post->phandles[0],
                         &request),
               "isend"))
        return false;
    if (!taken(r, f, request)) {
        atomic_store(&post->phandles[0].live, 0);
        return false;
    }
    post->request = request;
    post->sizes[0] = size;
    f->posted[sub]++;
    atomic_fetch_add(&f->asked, 1);
    return true;
}

/* Whose turn it is in the group changes from step to step. */
static unsigned turn(const struct flow *f, unsigned step, unsigned at)
{
    return (at + step) % f->subs;
}

static bool post_recv(struct rank *r, struct flow *f)
{
    unsigned step = f->posted[0];
    struct flow_post *post = &f->posts[0][step % f->window];
    struct net_phandle *phandles[NET_GROUP];
    void *data[NET_GROUP], *mrs[NET_GROUP], *request;
    size_t sizes[NET_GROUP];
    int tags[NET_GROUP];

    request = f->marker ? NET_MARKER : (void *)&unwritten;
    for (unsigned i = 0; i < f->subs; i++) {
        unsigned sub = turn(f, step, i);
        uint8_t *at = slot(f, sub, step);

        tags[i] = f->tags[sub];
        sizes[i] = post->sizes[i] = room_of(f, tags[i], step);
        if (f->filled[0] != (int)step) {
            memset(at - GUARD, GUARD_BYTE, GUARD);
            memset(at, PATTERN_FRESH, sizes[i]);
            memset(at + sizes[i], GUARD_BYTE, GUARD);
        }
        data[i] = at;
        mrs[i] = f->mrs[sub];
        post->phandles[i].magic = NET_PHANDLE;
        atomic_store(&post->phandles[i].live, 1);
        phandles[i] = &post->phandles[i];
    }
    f->filled[0] = (int)step;
    watch_about(f->conn, step);
    if (failed(f,
               net_irecv(r->net, f->comm, (int)f->subs, data, sizes, tags, mrs, phandles, &request),
               "irecv"))
        return false;
    if (!taken(r, f, request)) {
        for (unsigned i = 0; i < f->subs; i++)
            atomic_store(&post->phandles[i].live, 0);
        return false;
    }
    post->request = request;
    post->arrived = false;
    f->posted[0]++;
    atomic_fetch_add(&f->asked, 1);
    return true;
}

static void check_data(const struct flow *f, const uint8_t *at, size_t got, int tag, unsigned step)
{
    const struct pattern pattern = {.conn = f->conn,
                                    .tag = tag,
                                    .step = step,
                                    .tags = f->tags,
                                    .tag_count = f->subs,
                                    .largest = f->stride};
    size_t wrong = pattern_differs(at, got, f->conn, tag, step);
    char text[320];

    if (wrong == got)
        return;
    pattern_describe(&pattern, at, got, wrong, text, sizeof(text));
    watch_fail("tag %d: byte %zu of %zu is wrong; there are %s", tag, wrong, got, text);
}

static void check_guard(const uint8_t *at, size_t room, int tag)
{
    for (size_t i = 0; i < GUARD; i++) {
        if (at[room + i] != GUARD_BYTE)
            watch_fail("tag %d: byte %zu was written of a receive of %zu", tag, room + i, room);
        else if (at[-(ptrdiff_t)i - 1] != GUARD_BYTE)
            watch_fail("tag %d: byte %zu before the receive was written", tag, i + 1);
        else
            continue;
        return;
    }
}

/* With the marker, the data tells: true once it is all there. */
static bool data_there(const struct flow *f, const struct flow_post *post, unsigned step)
{
    for (unsigned i = 0; i < f->subs; i++) {
        unsigned sub = turn(f, step, i);
        size_t size = flow_size(f, f->tags[sub], step);

        if (pattern_differs(slot(f, sub, step), size, f->conn, f->tags[sub], step) != size)
            return false;
    }
    return true;
}

static void check_recv(struct flow *f, struct flow_post *post, const int *sizes, unsigned step)
{
    for (unsigned i = 0; i < f->subs; i++) {
        unsigned sub = turn(f, step, i);
        int tag = f->tags[sub];
        size_t size = flow_size(f, tag, step), room = post->sizes[i];
        size_t want = size < room ? size : room;

        if (sizes != NULL && !f->marker && sizes[i] != (int)want)
            watch_fail("tag %d: test reports %d bytes; %zu were sent and there was room for %zu",
                       tag, sizes[i], size, room);
        check_data(f, slot(f, sub, step), want, tag, step);
        check_guard(slot(f, sub, step), room, tag);
    }
}

/* Retires the oldest request of a tag, or of the group. */
static bool reap(struct rank *r, struct flow *f, unsigned sub)
{
    unsigned step = f->done[sub];
    struct flow_post *post = &f->posts[sub][step % f->window];
    int sizes[NET_GROUP] = {0}, done = 0, n = f->send ? 1 : (int)f->subs;
    bool ask = step % 4 != 3;

    watch_about(f->conn, step);
    if (!post->arrived) {
        if (failed(f, net_test(r->net, post->request, &done, ask ? sizes : NULL, n), "test"))
            return false;
        if (!done)
            return false;
        post->arrived = true;
        for (int i = 0; i < n; i++)
            atomic_store(&post->phandles[i].live, 0);
    }
    if (f->send) {
        size_t size = post->sizes[0];

        /* A send that was cut may say so or not: NCCL's own transports do. */
        if (ask && sizes[0] != (int)size &&
            (f->clip == 0 || sizes[0] != (int)room_of(f, f->tags[sub], step)))
            watch_fail("tag %d: test of a send of %zu bytes reports %d", f->tags[sub], size,
                       sizes[0]);
        memset(slot(f, sub, step), PATTERN_SPENT, size);
    } else {
        if (f->marker && !data_there(f, post, step))
            return false;
        check_recv(f, post, ask ? sizes : NULL, step);
        if (failed(f, net_consumed(r->net, f->comm, n, post->request), "irecvConsumed"))
            return false;
    }
    post->arrived = false;
    post->request = NULL;
    f->done[sub]++;
    atomic_fetch_add(&f->moved, 1);
    return true;
}

static bool all_done(const struct flow *f)
{
    for (unsigned s = 0; s < (f->send ? f->subs : 1); s++)
        if (f->done[s] < f->steps)
            return false;
    return true;
}

static bool flow_step(struct rank *r, struct flow *f)
{
    unsigned ways = f->send ? f->subs : 1, start = (unsigned)(rank_random(&r->turn_rng) % ways);
    bool any = false;

    for (unsigned i = 0; i < ways; i++) {
        unsigned sub = (start + i) % ways;

        while (atomic_load(&f->state) == FLOW_RUN && f->posted[sub] < f->steps &&
               f->posted[sub] - f->done[sub] < f->window &&
               (f->send ? post_send(r, f, sub) : post_recv(r, f)))
            any = true;
        if (any && f->send && f->pause_ns != 0)
            nanosleep(&(struct timespec){.tv_nsec = (long)f->pause_ns}, NULL);
        if (atomic_load(&f->state) == FLOW_RUN && f->done[sub] < f->posted[sub] &&
            !atomic_load(&f->hold) && reap(r, f, sub))
            any = true;
    }
    return any;
}

/* Lock held: what has ended leaves the list. */
static void flow_remove(struct rank *r, struct flow *f)
{
    struct flow **at = &r->flows;

    while (*at != f)
        at = &(*at)->next;
    *at = f->next;
}

static bool progress_round(struct rank *r)
{
    bool any = false;
    struct flow *f = r->flows, *next;

    for (; f != NULL && !r->stop_progress; f = next) {
        bool over;

        pthread_mutex_unlock(&r->lock);
        any |= flow_step(r, f);
        over = all_done(f) || atomic_load(&f->state) == FLOW_FAILED || watch_failed();
        pthread_mutex_lock(&r->lock);
        next = f->next;
        if (over) {
            flow_remove(r, f);
            if (atomic_load(&f->state) == FLOW_RUN)
                atomic_store(&f->state, all_done(f) ? FLOW_DONE : FLOW_FAILED);
            pthread_cond_broadcast(&r->news);
        }
    }
    return any;
}

void *flow_thread(void *rank)
{
    struct rank *r = rank;

    watch_sit(r->idx, ROLE_PROGRESS);
    pthread_mutex_lock(&r->lock);
    while (!r->stop_progress) {
        if (r->flows == NULL) {
            watch_about(-1, -1);
            pthread_cond_wait(&r->wake_progress, &r->lock);
            atomic_store(&r->idle, 0);
            continue;
        }
        atomic_store(&r->idle, progress_round(r) ? 0 : r->idle + 1);
        pthread_mutex_unlock(&r->lock);
        if (r->idle > IDLE_EAGER)
            nanosleep(&(struct timespec){.tv_nsec = IDLE_PAUSE_NS}, NULL);
        else if (r->idle > 0)
            sched_yield();
        pthread_mutex_lock(&r->lock);
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

int flow_start(struct rank *r, struct flow *f)
{
    size_t largest = 0;

    for (unsigned i = 0; i < f->size_count; i++)
        largest = f->sizes[i] > largest ? f->sizes[i] : largest;
    if (f->window == 0)
        f->window = NET_STEPS;
    f->stride = (largest + 64 + 2 * GUARD + 63) / 64 * 64;
    f->len = (f->stride * f->window + 4095) / 4096 * 4096;
    for (unsigned s = 0; s < f->subs; s++) {
        struct job job = {.kind = JOB_REG, .conn = f->conn, .comm = f->comm, .len = f->len};

        f->memory[s] =
            mmap(NULL, f->len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (f->memory[s] == MAP_FAILED)
            return watch_fail("no memory for %zu bytes", f->len);
        job.data = f->memory[s];
        if (rank_do(r, &job) != 0)
            return -1;
        f->mrs[s] = job.mr;
        f->filled[s] = -1;
    }
    atomic_store(&f->state, FLOW_RUN);
    pthread_mutex_lock(&r->lock);
    f->next = r->flows;
    r->flows = f;
    pthread_cond_signal(&r->wake_progress);
    pthread_mutex_unlock(&r->lock);
    return 0;
}

int flow_await(struct rank *r, struct flow *f)
{
    uint64_t start = watch_now();

    watch_about(f->conn, -1);
    watch_wait("messages");
    pthread_mutex_lock(&r->lock);
    while (atomic_load(&f->state) == FLOW_RUN && !watch_failed()) {
        if (watch_now() - start > watch_shared->deadline_ns) {
            watch_fail("%s of tag %d: %u posted, %u done of %u after %llu ms",
                       f->send ? "sends" : "receives", f->tags[0], f->posted[0], f->done[0],
                       f->steps, (unsigned long long)((watch_now() - start) / MS));
            break;
        }
        rank_news_wait(r);
    }
    pthread_mutex_unlock(&r->lock);
    watch_leave(false);
    watch_about(-1, -1);
    if (watch_failed())
        return -1;
    return atomic_load(&f->state) == FLOW_DONE || f->may_fail ? 0 : -1;
}

int flow_stop(struct rank *r, struct flow *f)
{
    int rc = 0;

    for (unsigned s = 0; s < f->subs; s++) {
        struct job job = {.kind = JOB_DEREG, .conn = f->conn, .comm = f->comm, .mr = f->mrs[s]};

        if (rank_do(r, &job) != 0)
            rc = -1;
        munmap(f->memory[s], f->len);
    }
    return rc;
}
