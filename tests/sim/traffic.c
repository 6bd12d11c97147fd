/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/traffic.h"

#include "core/err.h"
#include "tests/util/bytes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FRESH 0xa5
#define SPENT 0x5a /* memory whose request has ended */

void traffic_wrong(struct traffic *traffic, const char *fmt, ...)
{
    va_list args;

    if (traffic->wrong[0] != '\0')
        return;
    va_start(args, fmt);
    vsnprintf(traffic->wrong, sizeof(traffic->wrong), fmt, args);
    va_end(args);
}

/* ---- drawing ---- */

static unsigned queues_of(const struct traffic_conn *conn)
{
    return 2 * conn->channel_count;
}

static uint64_t below(struct traffic *traffic, uint64_t bound)
{
    return sl_rng_below(&traffic->rng, bound);
}

static bool chance(struct traffic *traffic, uint64_t in)
{
    return sl_rng_chance(&traffic->rng, in);
}

static size_t draw_len(struct traffic *traffic, size_t eager, size_t *budget)
{
    size_t len;

    switch (below(traffic, 8)) {
    case 0: len = 0; break;
    case 1:
    case 2: len = below(traffic, eager + 1); break;
    case 3: len = eager + below(traffic, 3) - 1; break;
    case 4:
    case 5: len = below(traffic, 40000); break;
    case 6: len = below(traffic, 300000); break;
    default: len = chance(traffic, 4) ? below(traffic, 1500000) : below(traffic, 80000); break;
    }
    if (len > *budget)
        len = below(traffic, eager + 1);
    *budget -= len < *budget ? len : *budget;
    return len;
}

static void draw_message(struct traffic *traffic, size_t eager, struct traffic_message *m,
                         size_t *budget)
{
    *m = (struct traffic_message){.len = draw_len(traffic, eager, budget),
                                  .tag = below(traffic, 1000)};
    m->wanted_len = m->len;
    m->wanted_tag = m->tag;
    m->key = sl_rng_u64(&traffic->rng);
    m->send_reg = chance(traffic, 2);
    m->recv_reg = chance(traffic, 2);
    m->given = chance(traffic, 2);
    m->consume = chance(traffic, 2);
    m->dst = !m->consume || chance(traffic, 2);
    m->granule = m->consume && chance(traffic, 2) ? 1u << below(traffic, 4) : 0;
    if (m->granule > 1)
        m->len = m->wanted_len = m->len / m->granule * m->granule;
    if (chance(traffic, 16))
        m->wanted_tag += 1 + below(traffic, 3);
    if (chance(traffic, 16))
        m->wanted_len = chance(traffic, 2) ? m->len + 1 + below(traffic, 9000) : m->len / 2;
    m->shorter = chance(traffic, 3);
    if (m->shorter && chance(traffic, 2))
        m->wanted_len += below(traffic, chance(traffic, 2) ? 5000 : 200000);
}

/* Channel 0 is always open. */
static void draw_channels(struct traffic *traffic, struct traffic_conn *conn)
{
    conn->channel_count = chance(traffic, 2) ? 1 : 1 + (unsigned)below(traffic, TRAFFIC_CHANNELS);
    for (unsigned k = 0; k < conn->channel_count; k++)
        conn->channels[k] = (struct traffic_channel){
            .id = k == 0 ? 0 : k + TRAFFIC_CHANNELS * (uint32_t)below(traffic, UINT32_MAX / 8),
            .closes = k > 0 && chance(traffic, 2),
            .slow = conn->channel_count > 1 && chance(traffic, 4),
            .open = {k == 0, k == 0}};
}

void traffic_draw(struct traffic *traffic, size_t eager)
{
    size_t budget = 200000 + below(traffic, 2500000);

    traffic->close_in = 200;
    traffic->conn_count = 1 + (unsigned)(below(traffic, 2) * below(traffic, TRAFFIC_CONNS));
    for (unsigned c = 0; c < traffic->conn_count; c++) {
        draw_channels(traffic, &traffic->conns[c]);
        for (unsigned q = 0; q < queues_of(&traffic->conns[c]); q++) {
            struct traffic_queue *queue = &traffic->conns[c].queue[q];

            queue->count = (unsigned)below(traffic, chance(traffic, 3) ? 5 : TRAFFIC_MESSAGES + 1);
            if (q > 1)
                queue->count /= 2;
            queue->window[0] = 1 + (unsigned)below(traffic, TRAFFIC_MESSAGES);
            queue->window[1] = 1 + (unsigned)below(traffic, TRAFFIC_MESSAGES);
            queue->ctrl_count =
                q > 1 ? 0 : (unsigned)below(traffic, chance(traffic, 2) ? 3 : TRAFFIC_CTRLS);
            for (unsigned i = 0; i < queue->count; i++)
                draw_message(traffic, eager, &queue->messages[i], &budget);
        }
    }
}

/* ---- bytes ---- */

static bool all_are(const uint8_t *bytes, uint8_t value, size_t len)
{
    return bytes_other(bytes, len, value) == len;
}

/* "message 3 of side 0, connection 1 (5000 bytes)" */
static const char *name_of(const struct traffic_half *half)
{
    static char text[160];
    const struct traffic_queue *queue = half->queue;

    snprintf(
        text, sizeof(text), "%s %u of side %u, connection %u, channel %u (%zu bytes, %zu expected)",
        half->is_recv ? "receive" : "send", (unsigned)(half->message - queue->messages),
        half->is_recv ? !queue->from : queue->from, (unsigned)(queue->conn - queue->traffic->conns),
        queue->conn->channels[queue->channel].id, half->message->len, half->message->wanted_len);
    return text;
}

/* ---- memory ---- */

static void half_open(struct traffic_half *half, size_t len, bool reg)
{
    struct traffic *traffic = half->traffic;
    unsigned side = half->is_recv ? !half->queue->from : half->queue->from;
    struct sl_mem mem = {.len = len, .kind = SL_MEM_HOST, .fd = -1};

    half->block_len = len + 2 * TRAFFIC_GUARD;
    half->block = malloc(half->block_len);
    sl_assert(half->block != NULL);
    memset(half->block, FRESH, half->block_len);
    mem.addr = half->block + TRAFFIC_GUARD;
    if (reg && len > 0 && traffic->ops.mr_reg(traffic->iface[side], &mem, &half->mr, NULL) != 0)
        traffic_wrong(traffic, "registration: %s", sluice_last_error());
}

static void on_done(struct sl_req *req);
static void on_piece(const struct sl_sink *sink, const void *bytes, size_t off, size_t len);

static void message_open(struct traffic_queue *queue, struct traffic_message *m)
{
    struct traffic_half *send = &m->half[0], *recv = &m->half[1];

    for (unsigned i = 0; i < 2; i++) {
        m->half[i] = (struct traffic_half){
            .traffic = queue->traffic, .message = m, .queue = queue, .is_recv = i};
        m->half[i].req = (struct sl_req){.done = on_done, .arg = &m->half[i]};
    }
    half_open(send, m->len, m->send_reg);
    bytes_fill(send->block + TRAFFIC_GUARD, m->len, m->key);
    m->buf = (struct sl_buf){.addr = send->block + TRAFFIC_GUARD,
                             .len = m->len,
                             .mr = m->given ? send->mr : NULL,
                             .channel = queue->conn->channels[queue->channel].id};
    if (m->dst)
        half_open(recv, m->wanted_len, m->recv_reg);
    m->sink = (struct sl_sink){.dst = m->dst ? recv->block + TRAFFIC_GUARD : NULL,
                               .len = m->wanted_len,
                               .tag = m->wanted_tag,
                               .channel = m->buf.channel,
                               .granule = m->granule,
                               .shorter = m->shorter,
                               .mr = m->given ? recv->mr : NULL};
    if (m->consume) {
        m->sink.consume = on_piece;
        recv->got = malloc(m->wanted_len + 1);
        sl_assert(recv->got != NULL);
    }
}

void traffic_open(struct traffic *traffic)
{
    for (unsigned c = 0; c < traffic->conn_count; c++) {
        struct traffic_conn *conn = &traffic->conns[c];

        if (conn->channel_count == 0) { /* of a story */
            conn->channel_count = 1;
            conn->channels[0].open[0] = conn->channels[0].open[1] = true;
        }
        for (unsigned q = 0; q < queues_of(conn); q++) {
            struct traffic_queue *queue = &conn->queue[q];

            queue->traffic = traffic;
            queue->conn = conn;
            queue->from = q % 2;
            queue->channel = q / 2;
            for (unsigned i = 0; i < queue->count; i++)
                message_open(queue, &queue->messages[i]);
        }
    }
}

static void half_dereg(struct traffic_half *half)
{
    unsigned side = half->is_recv ? !half->queue->from : half->queue->from;

    if (half->mr != NULL)
        half->traffic->ops.mr_dereg(half->traffic->iface[side], half->mr);
    half->mr = NULL;
}

static void each_half(struct traffic *traffic, void (*what)(struct traffic_half *half))
{
    for (unsigned c = 0; c < traffic->conn_count; c++)
        for (unsigned q = 0; q < queues_of(&traffic->conns[c]); q++)
            for (unsigned i = 0; i < traffic->conns[c].queue[q].count; i++)
                for (unsigned h = 0; h < 2; h++)
                    if (traffic->conns[c].queue[q].messages[i].half[h].traffic != NULL)
                        what(&traffic->conns[c].queue[q].messages[i].half[h]);
}

void traffic_leave(struct traffic *traffic, void (*turn)(void *arg), void *arg)
{
    for (unsigned c = 0; c < traffic->conn_count; c++) {
        unsigned first = (unsigned)sl_rng_below(&traffic->rng, 2);
        unsigned between = (unsigned)sl_rng_below(&traffic->rng, 60);

        for (unsigned i = 0; i < 2; i++) {
            unsigned side = first ^ i;
            struct sl_ep *ep = traffic->conns[c].ep[side];

            traffic->conns[c].left[side] = true;
            traffic->conns[c].ep[side] = NULL;
            traffic->ops.ep_destroy(ep);
            for (unsigned k = 0; k < between && i == 0; k++)
                turn(arg);
        }
    }
}

void traffic_close(struct traffic *traffic)
{
    each_half(traffic, half_dereg);
}

static void half_free(struct traffic_half *half)
{
    if (half->block != NULL && half->ended && !all_are(half->block, SPENT, half->block_len))
        traffic_wrong(half->traffic, "memory of %s was touched after its end", name_of(half));
    free(half->block);
    free(half->got);
    half->block = half->got = NULL;
}

void traffic_free(struct traffic *traffic)
{
    each_half(traffic, half_free);
}

/* ---- ends ---- */

static void check_bytes(struct traffic_half *half, const uint8_t *bytes)
{
    const struct traffic_message *m = half->message;

    uint8_t value;
    size_t i = bytes_check(bytes, m->len, m->key, &value);

    if (i < m->len)
        traffic_wrong(half->traffic, "byte %zu of %s is 0x%02x, not 0x%02x", i, name_of(half),
                      bytes[i], value);
}

static void check_recv(struct traffic_half *half)
{
    const struct traffic_message *m = half->message;
    bool fits = m->len == m->wanted_len || (m->shorter && m->len < m->wanted_len);
    int expected = m->tag != m->wanted_tag ? -EPROTO : !fits ? -EMSGSIZE : 0;
    size_t used = TRAFFIC_GUARD + (expected == 0 ? m->len : m->wanted_len); /* of the block */

    if (half->block != NULL && (!all_are(half->block, FRESH, TRAFFIC_GUARD) ||
                                !all_are(half->block + used, FRESH, half->block_len - used)))
        traffic_wrong(half->traffic, "memory around what came was touched, of %s", name_of(half));
    if (half->status != expected)
        traffic_wrong(half->traffic, "%s ended with %s, not %s", name_of(half),
                      sluice_strerror(half->status), sluice_strerror(expected));
    else if (expected == -EPROTO && half->req.tag != m->tag)
        traffic_wrong(half->traffic, "%s does not tell the sender's tag", name_of(half));
    else if (expected == -EMSGSIZE && half->req.len != m->len)
        traffic_wrong(half->traffic, "%s does not tell the sender's length", name_of(half));
    if (expected != 0 || half->status != 0)
        return;
    if (half->req.len != m->len || half->req.tag != m->tag)
        traffic_wrong(half->traffic, "%s tells a wrong length or tag", name_of(half));
    if (m->consume && half->taken != m->len)
        traffic_wrong(half->traffic, "%s got %zu bytes", name_of(half), half->taken);
    check_bytes(half, m->consume ? half->got : half->block + TRAFFIC_GUARD);
}

static void on_end(struct traffic_half *half, int status)
{
    struct traffic_queue *queue = half->queue;
    unsigned side = half->is_recv ? !queue->from : queue->from;
    bool gone = queue->conn->downs[side] > 0 || queue->conn->left[side];
    bool closed = queue->conn->channels[queue->channel].closed[side];

    if (half->ended || !half->posted) {
        traffic_wrong(half->traffic, "%s ended twice", name_of(half));
        return;
    }
    half->ended = true;
    half->status = status;
    queue->ended[half->is_recv]++;
    /* Nothing ends well after the loss was told, and nothing badly before, but by its own fault. */
    int lost = queue->conn->left[side] ? -ECANCELED : queue->conn->down_status[side];

    /* Who leaves may be told that something arrived just before. */
    gone &= !(queue->conn->left[side] && status != -ECANCELED);
    if (closed && status == -ECANCELED)
        ; /* as it must */
    else if (gone && status != lost)
        traffic_wrong(half->traffic, "%s ended with %s after the connection had with %s",
                      name_of(half), sluice_strerror(status), sluice_strerror(lost));
    else if (!gone && !half->is_recv && status != 0)
        traffic_wrong(half->traffic, "%s ended with %s, and nobody said why", name_of(half),
                      sluice_strerror(status));
    else if (!gone && half->is_recv)
        check_recv(half);
    else if (!gone && queue->messages[half->message - queue->messages].len != half->req.len)
        traffic_wrong(half->traffic, "%s tells a wrong length", name_of(half));
    /* The memory is ours again. */
    if (half->block != NULL)
        memset(half->block, SPENT, half->block_len);
}

static void on_done(struct sl_req *req)
{
    struct traffic_half *half = req->arg;
    struct traffic_queue *queue = half->queue;

    on_end(half, req->status);
    if (queue->conn->ep[half->is_recv ? !queue->from : queue->from] != NULL &&
        sl_rng_chance(&half->traffic->rng, 4))
        traffic_post(queue, half->is_recv);
}

static void on_piece(const struct sl_sink *sink, const void *bytes, size_t off, size_t len)
{
    struct traffic_message *m = (struct traffic_message *)(uintptr_t)sl_container_of(
        (uintptr_t)sink, struct traffic_message, sink);
    struct traffic_half *half = &m->half[1];

    if (half->ended || off != half->taken || off + len > m->wanted_len) {
        traffic_wrong(half->traffic, "%s got %zu bytes at %zu, after %zu", name_of(half), len, off,
                      half->taken);
        return;
    }
    if (m->granule > 1 && len % m->granule != 0)
        traffic_wrong(half->traffic, "%s got a piece of %zu bytes, of granule %u", name_of(half),
                      len, m->granule);
    memcpy(half->got + off, bytes, len);
    half->taken += len;
}

/* ---- posting ---- */

/* As an endpoint may that is lost, also before it says so. */
static void refused(struct traffic_conn *conn, unsigned side, const char *what)
{
    snprintf(conn->refused[side], sizeof(conn->refused[side]), "%s was refused: %s", what,
             sluice_last_error());
}

static bool may_post(const struct traffic_queue *queue, unsigned side)
{
    const struct traffic_channel *channel = &queue->conn->channels[queue->channel];

    return queue->conn->downs[side] == 0 && channel->open[side] && !channel->closed[side] &&
           !(queue->traffic->quiet_ends && channel->closed[!side]);
}

bool traffic_post(struct traffic_queue *queue, unsigned which)
{
    struct traffic *traffic = queue->traffic;
    unsigned side = which == 0 ? queue->from : !queue->from;
    struct sl_ep *ep = queue->conn->ep[side];
    struct traffic_message *m = &queue->messages[queue->next[which]];
    struct traffic_half *half = &m->half[which];
    int rc;

    if (ep == NULL || !may_post(queue, side) || queue->next[which] == queue->count ||
        queue->next[which] - queue->ended[which] >= queue->window[which])
        return false;
    half->req.status = SL_PENDING;
    half->posted = true;
    queue->next[which]++;
    rc = which == 0 ? traffic->ops.send(ep, &m->buf, m->tag, &half->req)
                    : traffic->ops.recv(ep, &m->sink, &half->req);
    if (rc == 1) {
        if (half->req.status != 0)
            traffic_wrong(traffic, "%s ended at once, with %s", name_of(half),
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

bool traffic_take(struct traffic_queue *queue)
{
    unsigned side = !queue->from;
    struct traffic_message *m = &queue->messages[queue->next[1]];
    struct traffic_half *half = &m->half[1];
    struct traffic *traffic = queue->traffic;

    if (queue->next[1] == queue->count ||
        traffic->ops.recv(queue->conn->ep[side], &m->sink, &half->req) != 1)
        return false;
    half->posted = half->ended = true;
    queue->next[1]++;
    queue->ended[1]++;
    check_recv(half);
    if (half->block != NULL)
        memset(half->block, SPENT, half->block_len);
    return true;
}

/* A control message: its number, and as many bytes as that says. */
static size_t ctrl_make(const struct traffic_queue *queue, unsigned number, uint8_t *out)
{
    size_t len = 1 + (number * 37 + queue->from * 11) % SL_CTRL_MAX;

    bytes_fill(out, len, number * 2 + queue->from);
    out[0] = (uint8_t)number;
    return len;
}

void traffic_ctrl(struct traffic_queue *queue)
{
    struct sl_ep *ep = queue->conn->ep[queue->from];
    uint8_t bytes[SL_CTRL_MAX];
    int rc;

    if (ep == NULL || queue->conn->downs[queue->from] > 0 || queue->ctrl_sent == queue->ctrl_count)
        return;
    rc = queue->traffic->ops.ctrl(ep, bytes, ctrl_make(queue, queue->ctrl_sent, bytes));
    if (rc == 0)
        queue->ctrl_sent++;
    else if (rc != -EAGAIN)
        refused(queue->conn, queue->from, "a control message");
}

void traffic_on_ctrl(void *arg, struct sl_ep *ep, const void *bytes, size_t len)
{
    struct traffic_conn *conn = ep->owner;
    struct traffic_queue *queue = &conn->queue[ep == conn->ep[0]];
    uint8_t expected[SL_CTRL_MAX];

    (void)arg;
    if (conn->downs[ep == conn->ep[1]] > 0)
        traffic_wrong(queue->traffic, "a control message came after the end");
    if (queue->ctrl_got >= queue->ctrl_sent || ctrl_make(queue, queue->ctrl_got, expected) != len ||
        memcmp(expected, bytes, len) != 0)
        traffic_wrong(queue->traffic, "control message %u of side %u is not what was sent",
                      queue->ctrl_got, queue->from);
    queue->ctrl_got++;
}

/* ---- channels ---- */

static bool is_quiet(const struct traffic_conn *conn, unsigned k)
{
    for (unsigned q = 2 * k; q < 2 * k + 2; q++)
        for (unsigned which = 0; which < 2; which++)
            if (conn->queue[q].ended[which] != conn->queue[q].next[which])
                return false;
    return true;
}

/* What this side has posted there ends before the call returns. */
static void close_channel(struct traffic_conn *conn, unsigned k, unsigned side)
{
    struct traffic *traffic = conn->traffic;

    conn->channels[k].closed[side] = true;
    traffic->ops.channel_close(conn->ep[side], conn->channels[k].id);
    for (unsigned q = 2 * k; q < 2 * k + 2; q++) {
        const struct traffic_queue *queue = &conn->queue[q];
        unsigned which = q % 2 != side;

        if (queue->ended[which] != queue->next[which])
            traffic_wrong(traffic, "side %u has closed channel %u, and requests have not ended",
                          side, conn->channels[k].id);
    }
}

static bool channel_turn(struct traffic_conn *conn, unsigned k, unsigned side)
{
    struct traffic *traffic = conn->traffic;
    struct traffic_channel *channel = &conn->channels[k];

    if (!channel->open[side]) {
        if (!chance(traffic, 8))
            return false;
        channel->open[side] = true;
        if (traffic->ops.channel_open(conn->ep[side], channel->id) != 0)
            traffic_wrong(traffic, "channel %u: %s", channel->id, sluice_last_error());
        return true;
    }
    if (!channel->closes || channel->closed[side] || !chance(traffic, traffic->close_in) ||
        (traffic->quiet_ends && !is_quiet(conn, k)))
        return false;
    close_channel(conn, k, side);
    return true;
}

unsigned traffic_channels(struct traffic *traffic, unsigned side)
{
    unsigned moved = 0;

    for (unsigned c = 0; c < traffic->conn_count; c++) {
        struct traffic_conn *conn = &traffic->conns[c];

        for (unsigned k = 1; k < conn->channel_count; k++)
            if (conn->ep[side] != NULL && conn->downs[side] == 0)
                moved += channel_turn(conn, k, side);
    }
    return moved;
}

unsigned traffic_side(struct traffic *traffic, unsigned side, unsigned post_in)
{
    unsigned moved = traffic_channels(traffic, side);

    for (unsigned c = 0; c < traffic->conn_count; c++)
        for (unsigned q = 0; q < queues_of(&traffic->conns[c]); q++) {
            struct traffic_queue *queue = &traffic->conns[c].queue[q];
            unsigned dir = q % 2;
            bool late = dir != side && traffic->conns[c].channels[q / 2].slow;

            while ((!late || chance(traffic, 12)) && sl_rng_chance(&traffic->rng, post_in) &&
                   traffic_post(queue, dir != side))
                moved++;
            if (dir == side && sl_rng_chance(&traffic->rng, 8))
                traffic_ctrl(queue);
        }
    return moved;
}

/* ---- connections ---- */

void traffic_on_down(void *arg, struct sl_ep *ep, int status, const char *why)
{
    struct traffic_conn *conn = ep->owner;
    unsigned side = ep == conn->ep[1];

    (void)arg;
    if (conn->left[side] || conn->downs[side]++ > 0) {
        traffic_wrong(conn->traffic, "the loss of side %u is told twice, or after its end", side);
        return;
    }
    if (status == -EPROTO || status == -EBADMSG)
        traffic_wrong(conn->traffic, "side %u ended as if its peer were of another kind: %s", side,
                      why);
    conn->down_status[side] = status;
    conn->down_ns[side] = sl_now(conn->traffic->clock);
    snprintf(conn->why[side], sizeof(conn->why[side]), "%s", why);
}

void traffic_connect(struct traffic *traffic)
{
    for (unsigned c = 0; c < traffic->conn_count; c++) {
        struct traffic_conn *conn = &traffic->conns[c];
        struct sl_addr addr[2];

        conn->traffic = traffic;
        for (unsigned side = 0; side < 2; side++) {
            if (traffic->ops.ep_create(traffic->iface[side], &conn->ep[side]) != 0 ||
                traffic->ops.ep_addr(conn->ep[side], &addr[side]) != 0) {
                traffic_wrong(traffic, "ep_create: %s", sluice_last_error());
                return;
            }
            conn->ep[side]->owner = conn;
            conn->ep[side]->peer = !side;
            conn->connect[side].status = SL_PENDING;
        }
        for (unsigned side = 0; side < 2; side++)
            if (traffic->ops.ep_connect(conn->ep[side], &addr[!side], &conn->connect[side]) != 0)
                traffic_wrong(traffic, "ep_connect: %s", sluice_last_error());
    }
}

bool traffic_connected(const struct traffic *traffic, int *status)
{
    *status = 0;
    for (unsigned c = 0; c < traffic->conn_count; c++)
        for (unsigned side = 0; side < 2; side++) {
            if (traffic->conns[c].connect[side].status == SL_PENDING)
                return false;
            if (traffic->conns[c].connect[side].status != 0)
                *status = traffic->conns[c].connect[side].status;
        }
    return true;
}

/* ---- the whole ---- */

static bool queue_over(const struct traffic_queue *queue)
{
    const struct traffic_channel *channel = &queue->conn->channels[queue->channel];

    for (unsigned which = 0; which < 2; which++) {
        unsigned side = which == 0 ? queue->from : !queue->from;
        bool gone = queue->conn->downs[side] > 0 || queue->conn->ep[side] == NULL;

        gone |= channel->closed[side];
        if (queue->ended[which] != queue->next[which] || (!gone && channel->closes) ||
            (!gone && queue->ended[which] != queue->count))
            return false;
    }
    return queue->conn->downs[0] + queue->conn->downs[1] > 0 || queue->conn->ep[0] == NULL ||
           queue->conn->ep[1] == NULL || queue->ctrl_got == queue->ctrl_count;
}

bool traffic_over(const struct traffic *traffic)
{
    for (unsigned c = 0; c < traffic->conn_count; c++)
        for (unsigned q = 0; q < queues_of(&traffic->conns[c]); q++)
            if (!queue_over(&traffic->conns[c].queue[q]))
                return false;
    return true;
}

void traffic_judge(struct traffic *traffic)
{
    for (unsigned c = 0; c < traffic->conn_count; c++)
        for (unsigned q = 0; q < queues_of(&traffic->conns[c]); q++) {
            const struct traffic_queue *queue = &traffic->conns[c].queue[q];

            for (unsigned i = 0; i < queue->count; i++)
                for (unsigned h = 0; h < 2; h++) {
                    const struct traffic_half *half = &queue->messages[i].half[h];

                    if (half->posted && !half->ended)
                        traffic_wrong(traffic, "%s never ended", name_of(half));
                }
            if (queue->ctrl_got > queue->ctrl_sent)
                traffic_wrong(traffic, "more control messages came than went");
        }
}
