/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of a run: their memory, their requests, and what must be true of each. */
#include "tests/sim/verbs_swarm.h"

#include "core/err.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FRESH 0xa5
#define SPENT 0x5a /* memory whose request has ended */

static uint8_t pattern(uint64_t key, size_t idx)
{
    uint64_t z = (key + idx / 8) * UINT64_C(0x9e3779b97f4a7c15);

    return (uint8_t)((z ^ z >> 31) >> idx % 8 * 8);
}

static void fill(uint8_t *bytes, uint64_t key, size_t len)
{
    for (size_t i = 0; i < len; i++)
        bytes[i] = pattern(key, i);
}

static bool all_are(const uint8_t *bytes, uint8_t value, size_t len)
{
    return len == 0 || (bytes[0] == value && memcmp(bytes, bytes + 1, len - 1) == 0);
}

/* "message 3 of side 0, connection 1 (5000 bytes)" */
static const char *name_of(const struct vs_half *half)
{
    static char text[120];
    const struct vs_queue *queue = half->queue;

    snprintf(text, sizeof(text), "%s %u of side %u, connection %u (%zu bytes, %zu expected)",
             half->is_recv ? "receive" : "send", (unsigned)(half->message - queue->messages),
             half->is_recv ? !queue->from : queue->from,
             (unsigned)(queue->conn - queue->run->conns), half->message->len,
             half->message->wanted_len);
    return text;
}

/* ---- memory ---- */

static void half_open(struct vs_half *half, size_t len, bool reg)
{
    struct vs_run *run = half->run;
    unsigned side = half->is_recv ? !half->queue->from : half->queue->from;
    struct sl_mem mem = {.len = len, .kind = SL_MEM_HOST, .fd = -1};

    half->block_len = len + 2 * VS_GUARD;
    half->block = malloc(half->block_len);
    sl_assert(half->block != NULL);
    memset(half->block, FRESH, half->block_len);
    mem.addr = half->block + VS_GUARD;
    if (reg && len > 0 && run->ops.mr_reg(run->iface[side], &mem, &half->mr, NULL) != 0)
        vs_wrong(run, "registration: %s", sluice_last_error());
}

static void on_done(struct sl_req *req);
static void on_piece(const struct sl_sink *sink, const void *bytes, size_t off, size_t len);

static void message_open(struct vs_queue *queue, struct vs_message *m)
{
    struct vs_half *send = &m->half[0], *recv = &m->half[1];

    for (unsigned i = 0; i < 2; i++) {
        m->half[i] =
            (struct vs_half){.run = queue->run, .message = m, .queue = queue, .is_recv = i};
        m->half[i].req = (struct sl_req){.done = on_done, .arg = &m->half[i]};
    }
    half_open(send, m->len, m->send_reg);
    fill(send->block + VS_GUARD, m->key, m->len);
    m->buf = (struct sl_buf){
        .addr = send->block + VS_GUARD, .len = m->len, .mr = m->given ? send->mr : NULL};
    if (m->dst)
        half_open(recv, m->wanted_len, m->recv_reg);
    m->sink = (struct sl_sink){.dst = m->dst ? recv->block + VS_GUARD : NULL,
                               .len = m->wanted_len,
                               .tag = m->wanted_tag,
                               .granule = m->granule,
                               .shorter = m->shorter,
                               .mr = m->given ? recv->mr : NULL};
    if (m->consume) {
        m->sink.consume = on_piece;
        recv->got = malloc(m->wanted_len + 1);
        sl_assert(recv->got != NULL);
    }
}

void vs_traffic_open(struct vs_run *run)
{
    for (unsigned c = 0; c < run->conn_count; c++)
        for (unsigned side = 0; side < 2; side++) {
            struct vs_queue *queue = &run->conns[c].queue[side];

            queue->run = run;
            queue->conn = &run->conns[c];
            queue->from = side;
            for (unsigned i = 0; i < queue->count; i++)
                message_open(queue, &queue->messages[i]);
        }
}

static void half_dereg(struct vs_half *half)
{
    unsigned side = half->is_recv ? !half->queue->from : half->queue->from;

    if (half->mr != NULL)
        half->run->ops.mr_dereg(half->run->iface[side], half->mr);
    half->mr = NULL;
}

static void each_half(struct vs_run *run, void (*what)(struct vs_half *half))
{
    for (unsigned c = 0; c < run->conn_count; c++)
        for (unsigned side = 0; side < 2; side++)
            for (unsigned i = 0; i < run->conns[c].queue[side].count; i++)
                for (unsigned h = 0; h < 2; h++)
                    if (run->conns[c].queue[side].messages[i].half[h].run != NULL)
                        what(&run->conns[c].queue[side].messages[i].half[h]);
}

void vs_traffic_close(struct vs_run *run)
{
    each_half(run, half_dereg);
}

static void half_free(struct vs_half *half)
{
    if (half->block != NULL && half->ended && !all_are(half->block, SPENT, half->block_len))
        vs_wrong(half->run, "memory of %s was touched after its end", name_of(half));
    free(half->block);
    free(half->got);
    half->block = half->got = NULL;
}

void vs_traffic_free(struct vs_run *run)
{
    each_half(run, half_free);
}

/* ---- ends ---- */

static void check_bytes(struct vs_half *half, const uint8_t *bytes)
{
    const struct vs_message *m = half->message;

    for (size_t i = 0; i < m->len; i++)
        if (bytes[i] != pattern(m->key, i)) {
            vs_wrong(half->run, "byte %zu of %s is 0x%02x, not 0x%02x", i, name_of(half), bytes[i],
                     pattern(m->key, i));
            return;
        }
}

static void check_recv(struct vs_half *half)
{
    const struct vs_message *m = half->message;
    bool fits = m->len == m->wanted_len || (m->shorter && m->len < m->wanted_len);
    int expected = m->tag != m->wanted_tag ? -EPROTO : !fits ? -EMSGSIZE : 0;
    size_t used = VS_GUARD + (expected == 0 ? m->len : m->wanted_len); /* of the block */

    if (half->block != NULL && (!all_are(half->block, FRESH, VS_GUARD) ||
                                !all_are(half->block + used, FRESH, half->block_len - used)))
        vs_wrong(half->run, "memory around what came was touched, of %s", name_of(half));
    if (half->status != expected)
        vs_wrong(half->run, "%s ended with %s, not %s", name_of(half),
                 sluice_strerror(half->status), sluice_strerror(expected));
    else if (expected == -EPROTO && half->req.tag != m->tag)
        vs_wrong(half->run, "%s does not tell the sender's tag", name_of(half));
    else if (expected == -EMSGSIZE && half->req.len != m->len)
        vs_wrong(half->run, "%s does not tell the sender's length", name_of(half));
    if (expected != 0 || half->status != 0)
        return;
    if (half->req.len != m->len || half->req.tag != m->tag)
        vs_wrong(half->run, "%s tells a wrong length or tag", name_of(half));
    if (m->consume && half->taken != m->len)
        vs_wrong(half->run, "%s got %zu bytes", name_of(half), half->taken);
    check_bytes(half, m->consume ? half->got : half->block + VS_GUARD);
}

static void on_end(struct vs_half *half, int status)
{
    struct vs_queue *queue = half->queue;
    unsigned side = half->is_recv ? !queue->from : queue->from;
    bool gone = queue->conn->downs[side] > 0 || queue->conn->left[side];

    if (half->ended || !half->posted) {
        vs_wrong(half->run, "%s ended twice", name_of(half));
        return;
    }
    half->ended = true;
    half->status = status;
    queue->ended[half->is_recv]++;
    /* Nothing ends well after the loss was told, and nothing badly before, but by its own fault. */
    int lost = queue->conn->left[side] ? -ECANCELED : queue->conn->down_status[side];

    /* Who leaves may be told that something arrived just before. */
    gone &= !(queue->conn->left[side] && status != -ECANCELED);
    if (gone && status != lost)
        vs_wrong(half->run, "%s ended with %s after the connection had with %s", name_of(half),
                 sluice_strerror(status), sluice_strerror(lost));
    else if (!gone && !half->is_recv && status != 0)
        vs_wrong(half->run, "%s ended with %s, and nobody said why", name_of(half),
                 sluice_strerror(status));
    else if (!gone && half->is_recv)
        check_recv(half);
    else if (!gone && queue->messages[half->message - queue->messages].len != half->req.len)
        vs_wrong(half->run, "%s tells a wrong length", name_of(half));
    /* The memory is ours again. */
    if (half->block != NULL)
        memset(half->block, SPENT, half->block_len);
}

static void on_done(struct sl_req *req)
{
    struct vs_half *half = req->arg;
    struct vs_queue *queue = half->queue;

    on_end(half, req->status);
    if (queue->conn->ep[half->is_recv ? !queue->from : queue->from] != NULL &&
        sl_rng_chance(&half->run->rng, 4))
        vs_post(queue, half->is_recv);
}

static void on_piece(const struct sl_sink *sink, const void *bytes, size_t off, size_t len)
{
    struct vs_message *m =
        (struct vs_message *)(uintptr_t)sl_container_of((uintptr_t)sink, struct vs_message, sink);
    struct vs_half *half = &m->half[1];

    if (half->ended || off != half->taken || off + len > m->wanted_len) {
        vs_wrong(half->run, "%s got %zu bytes at %zu, after %zu", name_of(half), len, off,
                 half->taken);
        return;
    }
    if (m->granule > 1 && len % m->granule != 0)
        vs_wrong(half->run, "%s got a piece of %zu bytes, of granule %u", name_of(half), len,
                 m->granule);
    memcpy(half->got + off, bytes, len);
    half->taken += len;
}

/* ---- posting ---- */

/* As an endpoint may that is lost, also before it says so. */
static void refused(struct vs_conn *conn, unsigned side, const char *what)
{
    snprintf(conn->refused[side], sizeof(conn->refused[side]), "%s was refused: %s", what,
             sluice_last_error());
}

bool vs_post(struct vs_queue *queue, unsigned which)
{
    struct vs_run *run = queue->run;
    unsigned side = which == 0 ? queue->from : !queue->from;
    struct sl_ep *ep = queue->conn->ep[side];
    struct vs_message *m = &queue->messages[queue->next[which]];
    struct vs_half *half = &m->half[which];
    int rc;

    if (ep == NULL || queue->conn->downs[side] > 0 || queue->next[which] == queue->count ||
        queue->next[which] - queue->ended[which] >= queue->window[which])
        return false;
    half->req.status = SL_PENDING;
    half->posted = true;
    queue->next[which]++;
    rc = which == 0 ? run->ops.send(ep, &m->buf, m->tag, &half->req)
                    : run->ops.recv(ep, &m->sink, &half->req);
    if (rc == 1) {
        if (half->req.status != 0)
            vs_wrong(run, "%s ended at once, with %s", name_of(half),
                     sluice_strerror(half->req.status));
        on_end(half, 0);
        return true;
    }
    if (rc == 0)
        return true;
    if (rc != -EAGAIN)
        refused(queue->conn, side, name_of(half));
    half->posted = false;
    queue->next[which]--;
    return false;
}

/* A control message: its number, and as many bytes as that says. */
static size_t ctrl_make(const struct vs_queue *queue, unsigned number, uint8_t *out)
{
    size_t len = 1 + (number * 37 + queue->from * 11) % SL_CTRL_MAX;

    fill(out, number * 2 + queue->from, len);
    out[0] = (uint8_t)number;
    return len;
}

void vs_ctrl(struct vs_queue *queue)
{
    struct sl_ep *ep = queue->conn->ep[queue->from];
    uint8_t bytes[SL_CTRL_MAX];
    int rc;

    if (ep == NULL || queue->conn->downs[queue->from] > 0 || queue->ctrl_sent == queue->ctrl_count)
        return;
    rc = queue->run->ops.ctrl(ep, bytes, ctrl_make(queue, queue->ctrl_sent, bytes));
    if (rc == 0)
        queue->ctrl_sent++;
    else if (rc != -EAGAIN)
        refused(queue->conn, queue->from, "a control message");
}

void vs_on_ctrl(void *arg, struct sl_ep *ep, const void *bytes, size_t len)
{
    struct vs_conn *conn = ep->owner;
    struct vs_queue *queue = &conn->queue[ep == conn->ep[0]];
    uint8_t expected[SL_CTRL_MAX];

    (void)arg;
    if (conn->downs[ep == conn->ep[1]] > 0)
        vs_wrong(queue->run, "a control message came after the end");
    if (queue->ctrl_got >= queue->ctrl_sent || ctrl_make(queue, queue->ctrl_got, expected) != len ||
        memcmp(expected, bytes, len) != 0)
        vs_wrong(queue->run, "control message %u of side %u is not what was sent", queue->ctrl_got,
                 queue->from);
    queue->ctrl_got++;
}

/* ---- the whole ---- */

static bool queue_over(const struct vs_queue *queue)
{
    for (unsigned which = 0; which < 2; which++) {
        unsigned side = which == 0 ? queue->from : !queue->from;
        bool gone = queue->conn->downs[side] > 0 || queue->conn->ep[side] == NULL;

        if (queue->ended[which] != queue->next[which] ||
            (!gone && queue->ended[which] != queue->count))
            return false;
    }
    return queue->conn->downs[0] + queue->conn->downs[1] > 0 || queue->conn->ep[0] == NULL ||
           queue->conn->ep[1] == NULL || queue->ctrl_got == queue->ctrl_count;
}

bool vs_traffic_over(const struct vs_run *run)
{
    for (unsigned c = 0; c < run->conn_count; c++)
        for (unsigned side = 0; side < 2; side++)
            if (!queue_over(&run->conns[c].queue[side]))
                return false;
    return true;
}

void vs_traffic_judge(struct vs_run *run)
{
    for (unsigned c = 0; c < run->conn_count; c++)
        for (unsigned side = 0; side < 2; side++) {
            const struct vs_queue *queue = &run->conns[c].queue[side];

            for (unsigned i = 0; i < queue->count; i++)
                for (unsigned h = 0; h < 2; h++) {
                    const struct vs_half *half = &queue->messages[i].half[h];

                    if (half->posted && !half->ended)
                        vs_wrong(run, "%s never ended", name_of(half));
                }
            if (queue->ctrl_got > queue->ctrl_sent)
                vs_wrong(run, "more control messages came than went");
        }
}
