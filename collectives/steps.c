/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs steps: messages and what a rank does with its own memory; win_steps.c has the kinds that
 * touch windows. A message is posted when earlier operations have posted theirs to the same peer.
 */
#include "collectives/steps.h"

#include "collectives/connect.h"
#include "collectives/health.h"

static void step_failed(struct sluice_req *op, const struct sl_post *post, int status)
{
    sl_health_step_failed(op, post->step, &post->req, status);
}

/* Bytes of a message of the wire that has gone or come. */
static uint64_t wire_moved(struct sluice_req *op, const struct sl_post *post)
{
    const struct sl_step *step = post->step;

    if (step->src_buf == SL_BUF_WIRE)
        return sl_op_wire_len(op, step);
    if (op->lengths != NULL)
        op->lengths[step - op->plan->schedule.steps] = post->req.len;
    return post->req.len;
}

static inline void count_bytes(struct sluice_req *op, const struct sl_post *post)
{
    const struct sl_step *step = post->step;

    op->bytes +=
        SL_LIKELY(!sl_step_uses_wire(step)) ? step->count * op->plan->esize : wire_moved(op, post);
}

static void post_done(struct sl_req *req)
{
    struct sl_post *post = sl_container_of(req, struct sl_post, req);
    struct sluice_req *op = post->op;

    post->posted = false;
    /* A failed step stays in flight: its operation must not end well while the ranks still find out
     * who is to blame. */
    if (SL_UNLIKELY(req->status != 0)) {
        step_failed(op, post, req->status);
        return;
    }
    op->in_flight--;
    op->comm->wait.messages++;
    count_bytes(op, post);
    sl_op_step_over(op, (uint32_t)(post->step - op->plan->schedule.steps));
}

/* The reduction of a message that arrives: straight from where the transport has it. */
static inline void reduce_bytes(const struct sl_post *post, const void *bytes, size_t off,
                                size_t count, sl_reduce_fn *reduce, uint32_t divisor)
{
    const struct sluice_req *op = post->op;
    const struct sl_step *step = post->step;
    uint8_t *dst = sl_op_at(op, step->dst_buf, step->dst_off) + off;
    const uint8_t *own = sl_op_at(op, step->src_buf, step->src_off) + off;
    bool remote_first = (step->flags & SL_STEP_REMOTE_FIRST) != 0;
    const void *srcs[2] = {remote_first ? bytes : own, remote_first ? own : bytes};

    reduce(dst, NULL, srcs, 2, count, (step->flags & SL_STEP_FINAL) != 0 ? divisor : 1);
}

static void reduce_arrived(const struct sl_sink *sink, const void *bytes, size_t off, size_t len)
{
    const struct sl_post *post = sl_container_of(sink, const struct sl_post, sink);
    const struct sl_plan *plan = post->op->plan;

    reduce_bytes(post, bytes, off, len / plan->esize, plan->reduce, plan->divisor);
}

/* Numbers of a term: a sum of them is divided when it is decoded. */
static void reduce_arrived_term(const struct sl_sink *sink, const void *bytes, size_t off,
                                size_t len)
{
    const struct sl_post *post = sl_container_of(sink, const struct sl_post, sink);
    const struct sl_term_plan *term = sl_op_term(post->op, post->step);

    reduce_bytes(post, bytes, off, len / term->esize, term->reduce, 1);
}

/* After a post was taken: serves the next operation once this one has posted all to that peer. */
static void post_taken(struct sluice_req *op, uint32_t use, uint64_t *serving)
{
    if (--op->use_left[use] == 0)
        ++*serving;
}

static enum sl_go finish_post(struct sluice_req *op, struct sl_post *post, int result)
{
    if (result == 1) {
        count_bytes(op, post);
        return SL_GO_OVER;
    }
    post->posted = true;
    op->in_flight++;
    return SL_GO_ON;
}

static inline enum sl_go post_send(struct sluice_req *op, const struct sl_step *step,
                                   uint32_t index, const uint8_t *from, size_t len)
{
    const struct sl_plan *plan = op->plan;
    uint32_t number = plan->post_of[index], use = plan->use_of[number];
    struct sl_post *post = &op->posts[number];
    struct sl_peer *peer = plan->peer_of[index];
    struct sl_buf buf = {.addr = from, .len = len, .channel = op->comm->channel};

    if (peer->send_serving != op->tickets[use] || op->comm->health.error.code != 0)
        return SL_GO_BLOCKED;
    if (SL_UNLIKELY(!peer->open)) {
        sl_reach(op->comm, step->peer);
        return SL_GO_BLOCKED;
    }
    post->req = (struct sl_req){.status = SL_PENDING, .done = post_done};
    int result = peer->ep->iface->ops->send(peer->ep, &buf, op->tag, &post->req);

    if (result == -EAGAIN)
        return SL_GO_BLOCKED;
    if (result < 0) {
        step_failed(op, post, result);
        return SL_GO_BLOCKED;
    }
    post_taken(op, use, &peer->send_serving);
    return finish_post(op, post, result);
}

static enum sl_go run_send(struct sluice_req *op, const struct sl_step *step, uint32_t index)
{
    return post_send(op, step, index, sl_op_at(op, step->src_buf, step->src_off),
                     step->count * op->plan->esize);
}

static enum sl_go run_send_wire(struct sluice_req *op, const struct sl_step *step, uint32_t index)
{
    return post_send(op, step, index, op->base[SL_BUF_WIRE] + step->src_off,
                     sl_op_wire_len(op, step));
}

static inline enum sl_go post_recv(struct sluice_req *op, const struct sl_step *step,
                                   uint32_t index, const struct sl_sink *sink)
{
    const struct sl_plan *plan = op->plan;
    uint32_t number = plan->post_of[index], use = plan->use_of[number];
    struct sl_post *post = &op->posts[number];
    struct sl_peer *peer = plan->peer_of[index];

    if (peer->recv_serving != op->tickets[use] || op->comm->health.error.code != 0)
        return SL_GO_BLOCKED;
    if (SL_UNLIKELY(!peer->open)) {
        sl_reach(op->comm, step->peer);
        return SL_GO_BLOCKED;
    }
    post->req = (struct sl_req){.status = SL_PENDING, .done = post_done};
    post->sink = *sink;
    post->sink.channel = op->comm->channel;
    int result = peer->ep->iface->ops->recv(peer->ep, &post->sink, &post->req);

    if (result == -EAGAIN)
        return SL_GO_BLOCKED;
    if (result < 0) {
        step_failed(op, post, result);
        return SL_GO_BLOCKED;
    }
    post_taken(op, use, &peer->recv_serving);
    return finish_post(op, post, result);
}

static enum sl_go run_recv(struct sluice_req *op, const struct sl_step *step, uint32_t index)
{
    struct sl_sink sink = {
        .dst = sl_op_at(op, step->dst_buf, step->dst_off),
        .len = step->count * op->plan->esize,
        .tag = op->tag,
        .granule = op->plan->esize,
    };

    return post_recv(op, step, index, &sink);
}

static enum sl_go run_recv_reduce(struct sluice_req *op, const struct sl_step *step, uint32_t index)
{
    struct sl_sink sink = {
        .len = step->count * op->plan->esize,
        .tag = op->tag,
        .granule = op->plan->esize,
        .consume = reduce_arrived,
    };

    return post_recv(op, step, index, &sink);
}

static enum sl_go run_recv_reduce_term(struct sluice_req *op, const struct sl_step *step,
                                       uint32_t index)
{
    struct sl_sink sink = {
        .len = step->count,
        .tag = op->tag,
        .granule = sl_op_term(op, step)->esize,
        .consume = reduce_arrived_term,
    };

    return post_recv(op, step, index, &sink);
}

static enum sl_go run_recv_wire(struct sluice_req *op, const struct sl_step *step, uint32_t index)
{
    struct sl_sink sink = {
        .dst = op->base[SL_BUF_WIRE] + step->dst_off,
        .len = step->wire_len,
        .tag = op->tag,
        .granule = 1,
        .shorter = (step->flags & SL_STEP_UP_TO) != 0,
    };

    return post_recv(op, step, index, &sink);
}

static enum sl_go run_copy(struct sluice_req *op, const struct sl_step *step, uint32_t index)
{
    const struct sl_plan *plan = op->plan;
    uint8_t *dst = sl_op_at(op, step->dst_buf, step->dst_off);
    const uint8_t *src = sl_op_at(op, step->src_buf, step->src_off);
    size_t len = step->count * plan->esize;

    if (dst != src && len != 0)
        (step->dst_buf == SL_BUF_OUT ? plan->copy_out : plan->copy)(dst, src, len);
    op->bytes += len;
    return SL_GO_OVER;
}

static inline void reduce_own(struct sluice_req *op, const struct sl_step *step, size_t count,
                              sl_reduce_fn *reduce, uint32_t divisor)
{
    uint8_t *dst = sl_op_at(op, step->dst_buf, step->dst_off);
    const uint8_t *src = sl_op_at(op, step->src_buf, step->src_off);
    bool src_first = (step->flags & SL_STEP_REMOTE_FIRST) != 0;
    const void *srcs[2] = {src_first ? src : dst, src_first ? dst : src};

    reduce(dst, NULL, srcs, 2, count, (step->flags & SL_STEP_FINAL) != 0 ? divisor : 1);
}

static enum sl_go run_reduce(struct sluice_req *op, const struct sl_step *step, uint32_t index)
{
    reduce_own(op, step, step->count, op->plan->reduce, op->plan->divisor);
    return SL_GO_OVER;
}

static enum sl_go run_reduce_term(struct sluice_req *op, const struct sl_step *step, uint32_t index)
{
    const struct sl_term_plan *term = sl_op_term(op, step);

    reduce_own(op, step, step->count / term->esize, term->reduce, 1);
    return SL_GO_OVER;
}

/* By the executor itself, with elements, with the wire, and with numbers of a term, where these are
 * not as elements of a byte. */
static const struct {
    sl_step_fn *elements, *wire, *term;
} functions[SL_STEP_KIND_COUNT] = {
    [SL_STEP_SEND] = {run_send, run_send_wire, run_send},
    [SL_STEP_RECV] = {run_recv, run_recv_wire, run_recv},
    [SL_STEP_RECV_REDUCE] = {run_recv_reduce, NULL, run_recv_reduce_term},
    [SL_STEP_COPY] = {run_copy, NULL, run_copy},
    [SL_STEP_REDUCE] = {run_reduce, NULL, run_reduce_term},
    [SL_STEP_POST] = {sl_step_run_post, NULL, sl_step_run_post},
    [SL_STEP_AWAIT] = {sl_step_run_await, NULL, sl_step_run_await},
    [SL_STEP_REDUCE_WIN] = {sl_step_run_reduce_win, NULL, sl_step_run_reduce_win_term},
    [SL_STEP_GET] = {sl_step_run_get, NULL, sl_step_run_get},
};

sl_step_fn *sl_step_function(const struct sl_step *step)
{
    sl_assert(step->kind < SL_STEP_KIND_COUNT);
    sl_step_fn *function = step->runner != 0         ? sl_step_run_job
                           : sl_step_uses_wire(step) ? functions[step->kind].wire
                           : step->term != 0         ? functions[step->kind].term
                                                     : functions[step->kind].elements;

    sl_assert(function != NULL);
    return function;
}
