/* SPDX-License-Identifier: Apache-2.0 */
/* The toy runner: two codecs, copies and sums of u32, done after some looks or by a thread. */
#include "tests/toy/toy.h"

#include "core/err.h"

#include <string.h>

#define VARIABLE_MOST 5 /* bytes of an element */

/* Returns how many bytes; room + 1: they do not fit. */
static size_t encode(bool fixed, const uint32_t *in, uint64_t count, uint8_t *out, size_t room)
{
    size_t at = 0;

    for (uint64_t i = 0; i < count; i++) {
        uint32_t value = fixed ? __builtin_bswap32(in[i]) : in[i];

        if (fixed) {
            if (at + sizeof(value) > room)
                return room + 1;
            memcpy(out + at, &value, sizeof(value));
            at += sizeof(value);
            continue;
        }
        do {
            if (at == room)
                return room + 1;
            out[at++] = (uint8_t)(value & 0x7f) | (value > 0x7f ? 0x80 : 0);
            value >>= 7;
        } while (value != 0);
    }
    return at;
}

/* False: the bytes are not so many elements. */
static bool decode(const struct toy *toy, const struct sl_work *work, bool add)
{
    const uint8_t *in = work->src;
    uint32_t *out = work->dst;
    size_t at = 0;

    for (uint64_t i = 0; i < work->count; i++) {
        uint32_t value = 0;

        if (toy->fixed) {
            if (at + sizeof(value) > work->src_len)
                return false;
            memcpy(&value, in + at, sizeof(value));
            value = __builtin_bswap32(value);
            at += sizeof(value);
        } else {
            for (unsigned shift = 0;; shift += 7) {
                if (at == work->src_len || shift >= 7 * VARIABLE_MOST)
                    return false;
                value |= (uint32_t)(in[at] & 0x7f) << shift;
                if ((in[at++] & 0x80) == 0)
                    break;
            }
        }
        out[i] = add ? out[i] + value : value;
    }
    return at == work->src_len;
}

/* 0, or a negative errno with its sentence. */
static int perform(const struct toy *toy, const struct sl_work *work, uint64_t *len)
{
    const uint32_t *src = work->src;
    uint32_t *dst = work->dst;

    *len = 0;
    switch (work->kind) {
    case SL_WORK_COPY: memmove(dst, src, work->dst_len); return 0;
    case SL_WORK_REDUCE:
        for (uint64_t i = 0; i < work->count; i++)
            dst[i] += src[i];
        return 0;
    case SL_WORK_ENCODE:
        *len = encode(toy->fixed, src, work->count, work->dst, work->dst_len);
        return *len <= work->dst_len ? 0 : sl_fail(-EMSGSIZE, "the toy needs more room");
    case SL_WORK_DECODE:
    case SL_WORK_DECODE_REDUCE:
        return decode(toy, work, work->kind == SL_WORK_DECODE_REDUCE)
                   ? 0
                   : sl_fail(-EBADMSG, "%zu bytes are not %llu elements", work->src_len,
                             (unsigned long long)work->count);
    case SL_WORK_ENCODE_TERM:
    case SL_WORK_DECODE_SUM:
    case SL_WORK_NONE: break;
    }
    return sl_fail(-ENOTSUP, "the toy cannot do work %d", (int)work->kind);
}

static int finish(const struct toy *toy, const struct sl_work *work, uint32_t number, uint64_t *len)
{
    int err = number == toy->fails_at ? sl_fail(-EIO, "the toy broke at its job %u", number)
                                      : perform(toy, work, len);

    if (number == toy->lies_at)
        *len = work->dst_len + 1;
    return err;
}

static int start(struct sl_runner *runner, const struct sl_work *work, struct sl_req *req)
{
    struct toy *toy = (struct toy *)runner;
    struct toy_job *job = toy->jobs;

    if (toy->delay_max == 0 && toy->hangs_at == 0 && !toy->threaded) {
        int err = finish(toy, work, ++toy->taken, &req->len);

        toy->states += work->state != NULL;
        req->status = err;
        return err == 0 ? 1 : err;
    }
    while (job < toy->jobs + toy->jobs_max && job->req != NULL)
        job++;
    if (job == toy->jobs + toy->jobs_max) {
        toy->refused++;
        return -EAGAIN;
    }
    pthread_mutex_lock(&toy->lock);
    *job = (struct toy_job){.work = *work, .req = req, .number = ++toy->taken};
    toy->states += work->state != NULL;
    toy->after += work->after != NULL;
    job->left = toy->taken == toy->hangs_at ? UINT32_MAX
                : toy->delay_max == 0       ? 0
                                            : (uint32_t)sl_rng_below(&toy->rng, toy->delay_max);
    pthread_cond_signal(&toy->changed);
    pthread_mutex_unlock(&toy->lock);
    return 0;
}

/* Whether the job can end now. */
static bool is_ripe(struct toy *toy, struct toy_job *job)
{
    bool ripe;

    if (job->req == NULL || job->left == UINT32_MAX ||
        (job->work.after != NULL && job->work.after->status == SL_PENDING))
        return false;
    pthread_mutex_lock(&toy->lock);
    ripe = toy->threaded ? job->done : job->left-- == 0;
    pthread_mutex_unlock(&toy->lock);
    return ripe;
}

static unsigned progress(struct sl_runner *runner, unsigned budget)
{
    struct toy *toy = (struct toy *)runner;
    unsigned ended = 0;

    for (uint32_t i = 0; i < toy->jobs_max && ended < budget; i++) {
        struct toy_job *job = &toy->jobs[i];

        if (!is_ripe(toy, job))
            continue;
        struct sl_req *req = job->req;
        int err = toy->threaded ? 0 : finish(toy, &job->work, job->number, &req->len);

        pthread_mutex_lock(&toy->lock);
        job->req = NULL;
        pthread_mutex_unlock(&toy->lock);
        sl_req_end(req, err);
        ended++;
    }
    return ended;
}

static void cancel(struct sl_runner *runner, struct sl_req *req)
{
    struct toy *toy = (struct toy *)runner;

    for (uint32_t i = 0; i < TOY_JOBS; i++) {
        if (toy->jobs[i].req != req)
            continue;
        pthread_mutex_lock(&toy->lock);
        while (toy->threaded && !toy->jobs[i].done && toy->jobs[i].left != UINT32_MAX)
            pthread_cond_wait(&toy->changed, &toy->lock);
        toy->jobs[i].req = NULL;
        pthread_mutex_unlock(&toy->lock);
        toy->cancelled++;
        sl_req_end(req, -ECANCELED);
        return;
    }
}

static struct toy_job *next_job(struct toy *toy)
{
    for (uint32_t i = 0; i < TOY_JOBS; i++)
        if (toy->jobs[i].req != NULL && !toy->jobs[i].done && toy->jobs[i].left != UINT32_MAX)
            return &toy->jobs[i];
    return NULL;
}

static void *work_on(void *arg)
{
    struct toy *toy = arg;

    pthread_mutex_lock(&toy->lock);
    while (!toy->stop) {
        struct toy_job *job = next_job(toy);

        if (job == NULL) {
            pthread_cond_wait(&toy->changed, &toy->lock);
            continue;
        }
        pthread_mutex_unlock(&toy->lock);
        sl_assert(perform(toy, &job->work, &job->req->len) == 0);
        pthread_mutex_lock(&toy->lock);
        job->done = true;
        pthread_cond_broadcast(&toy->changed);
    }
    pthread_mutex_unlock(&toy->lock);
    return NULL;
}

static const struct sl_runner_ops variable_ops = {
    .name = "toy", .start = start, .progress = progress, .cancel = cancel};
static const struct sl_runner_ops fixed_ops = {
    .name = "toy4", .start = start, .progress = progress, .cancel = cancel};
static const struct sl_runner_ops ordered_ops[2] = {
    {.name = "toy", .in_order = true, .start = start, .progress = progress, .cancel = cancel},
    {.name = "toy4", .in_order = true, .start = start, .progress = progress, .cancel = cancel}};

void toy_init(struct toy *toy, bool fixed, uint64_t seed)
{
    *toy = (struct toy){
        .base = {fixed ? &fixed_ops : &variable_ops}, .fixed = fixed, .jobs_max = TOY_JOBS};
    sl_rng_init(&toy->rng, seed);
    pthread_mutex_init(&toy->lock, NULL);
    pthread_cond_init(&toy->changed, NULL);
}

void toy_keep_order(struct toy *toy)
{
    toy->base.ops = &ordered_ops[toy->fixed];
}

void toy_start_thread(struct toy *toy)
{
    toy->threaded = true;
    sl_assert(pthread_create(&toy->thread, NULL, work_on, toy) == 0);
}

void toy_fini(struct toy *toy)
{
    if (toy->threaded) {
        pthread_mutex_lock(&toy->lock);
        toy->stop = true;
        pthread_cond_broadcast(&toy->changed);
        pthread_mutex_unlock(&toy->lock);
        pthread_join(toy->thread, NULL);
    }
    pthread_mutex_destroy(&toy->lock);
    pthread_cond_destroy(&toy->changed);
}
