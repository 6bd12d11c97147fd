/* SPDX-License-Identifier: Apache-2.0 */
/* Two interfaces, their endpoints and their messages, as every case of the contract test uses
 * them. */
#include "tests/contract/pair.h"

#include "core/err.h"
#include "tests/contract/stage.h"
#include "tests/util/bytes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

const struct sl_transport_ops *contract_ops;
bool contract_is_faulty;

static void on_ctrl(void *arg, struct sl_ep *ep, const void *bytes, size_t len)
{
    struct side *s = arg;

    assert_true(len <= SL_CTRL_MAX);
    s->ctrls++;
    s->ctrl_ep = ep;
    s->ctrl_len = len;
    memcpy(s->ctrl, bytes, len);
}

static void on_down(void *arg, struct sl_ep *ep, int status, const char *why)
{
    struct side *s = arg;

    s->downs++;
    s->down_ep = ep;
    s->down_status = status;
    s->ended_at_down = s->errors;
    assert_non_null(why);
    snprintf(s->why, sizeof(s->why), "%s", why);
}

void pair_open_side(struct pair *p, unsigned i)
{
    struct sl_handler handler = {.ctrl = on_ctrl, .down = on_down, .arg = &p->side[i]};

    if (contract_ops->open(stage_worker(i), NULL, &handler, &p->side[i].iface) != 0)
        fail_msg("open: %s", sluice_last_error());
    p->side[i].iface->ops = contract_ops;
    p->has[i] = true;
}

void pair_open(struct pair *p)
{
    memset(p, 0, sizeof(*p));
    stage_reset();
    pair_open_side(p, 0);
    pair_open_side(p, 1);
}

void pair_join(struct pair *p, struct sl_ep **a, struct sl_ep **b)
{
    struct sl_ep **ep[2] = {a, b};
    struct sl_addr addr[2];
    struct sl_req req[2] = {0};

    for (unsigned i = 0; i < 2; i++) {
        if (contract_ops->ep_create(p->side[i].iface, ep[i]) != 0)
            fail_msg("ep_create: %s", sluice_last_error());
        assert_ptr_equal((*ep[i])->iface, p->side[i].iface);
        (*ep[i])->peer = (int)!i;
        assert_int_equal(contract_ops->ep_addr(*ep[i], &addr[i]), 0);
        assert_in_range(addr[i].len, 1, SL_ADDR_MAX);
    }
    for (unsigned i = 0; i < 2; i++) {
        req[i].status = SL_PENDING;
        if (contract_ops->ep_connect(*ep[i], &addr[!i], &req[i]) < 0)
            fail_msg("ep_connect: %s", sluice_last_error());
    }
    PUMP_UNTIL(p, req[0].status != SL_PENDING && req[1].status != SL_PENDING);
    for (unsigned i = 0; i < 2; i++)
        if (req[i].status != 0)
            fail_msg("side %u: connect ended with %s", i, sluice_strerror(req[i].status));
}

void pair_connect(struct pair *p)
{
    pair_open(p);
    pair_join(p, &p->side[0].ep, &p->side[1].ep);
}

void pair_close(struct pair *p)
{
    for (unsigned i = 0; i < 2; i++) {
        if (!p->has[i])
            continue;
        contract_ops->ep_destroy(p->side[i].ep);
        p->side[i].ep = NULL;
    }
    for (unsigned i = 0; i < 2; i++)
        if (p->has[i])
            contract_ops->close(p->side[i].iface);
}

unsigned pair_progress(struct pair *p)
{
    unsigned moved = 0;

    for (unsigned i = 0; i < 2; i++) {
        int n = p->has[i] ? contract_ops->progress(p->side[i].iface, 64) : 0;

        if (n < 0)
            fail_msg("side %u: progress: %s", i, sluice_last_error());
        moved += (unsigned)n;
    }
    return moved;
}

void pair_pump(struct pair *p)
{
    if (pair_progress(p) == 0)
        stage_idle();
}

void pair_wait_begin(struct pair *p)
{
    p->since_ns = stage_now();
}

void pair_wait_check(struct pair *p, const char *cond, const char *file, int line)
{
    if (stage_now() - p->since_ns > STUCK_NS)
        fail_msg("%s:%d: waited %d s for: %s", file, line, (int)(STUCK_NS / SL_NS_PER_S), cond);
}

static void on_done(struct sl_req *req)
{
    struct msg *m = sl_container_of(req, struct msg, req);

    m->ended++;
    m->by_done = true;
    if (req->status != 0)
        m->side->errors++;
    if (m->then != NULL)
        m->then(m);
}

static void on_piece(const struct sl_sink *sink, const void *bytes, size_t off, size_t len)
{
    struct msg *m = (struct msg *)(uintptr_t)sl_container_of((uintptr_t)sink, struct msg, sink);

    assert_int_equal(m->ended, 0);
    assert_int_equal(off, m->taken);
    assert_true(off + len <= m->len);
    if (sink->granule > 1 && off + len != m->len)
        assert_int_equal(len % sink->granule, 0);
    memcpy(m->got + off, bytes, len);
    m->taken += len;
    m->pieces++;
}

static struct msg *msg_new(struct side *side, size_t len)
{
    struct msg *m = calloc(1, sizeof(*m));

    assert_non_null(m);
    m->req.done = on_done;
    m->req.arg = m;
    m->side = side;
    m->room = m->len = len;
    m->block = malloc(len + 2 * GUARD);
    assert_non_null(m->block);
    memset(m->block, 0xa5, len + 2 * GUARD);
    return m;
}

struct msg *msg_send(struct side *side, size_t len, uint64_t tag)
{
    struct msg *m = msg_new(side, len);

    bytes_fill(m->block + GUARD, len, tag);
    m->buf = (struct sl_buf){.addr = m->block + GUARD, .len = len};
    m->sink.tag = tag;
    return m;
}

struct msg *msg_recv(struct side *side, size_t len, uint64_t tag)
{
    struct msg *m = msg_new(side, len);

    m->sink = (struct sl_sink){.dst = m->block + GUARD, .len = len, .tag = tag};
    return m;
}

struct msg *msg_consume(struct side *side, size_t len, uint64_t tag, uint32_t granule,
                        bool with_dst)
{
    struct msg *m = msg_recv(side, len, tag);

    m->got = malloc(len + 1);
    assert_non_null(m->got);
    m->sink.consume = on_piece;
    m->sink.granule = granule;
    if (!with_dst)
        m->sink.dst = NULL;
    return m;
}

void msg_expect(struct msg *m, size_t len)
{
    assert_true(len <= m->room);
    m->sink.shorter = true;
    m->len = len;
}

struct msg *msg_on(struct msg *m, uint32_t channel)
{
    m->buf.channel = m->sink.channel = channel;
    return m;
}

void msg_register(struct msg *m)
{
    struct sl_mem mem = {.addr = m->block + GUARD, .len = m->room, .kind = SL_MEM_HOST, .fd = -1};

    if (m->room == 0 || contract_ops->mr_reg(m->side->iface, &mem, &m->mr, NULL) != 0)
        return;
    m->buf.mr = m->mr;
    m->sink.mr = m->sink.dst != NULL ? m->mr : NULL;
}

void msg_free(struct msg *m)
{
    if (m->mr != NULL)
        contract_ops->mr_dereg(m->side->iface, m->mr);
    free(m->block);
    free(m->got);
    free(m);
}

/* Keeps the three kinds of answer apart; an immediate end is an end too, without done(). */
#define STALE (-12345) /* the status of a request that served before */

static int posted(struct msg *m, int rc)
{
    assert_true(rc == 1 || rc == 0 || rc < 0);
    if (rc == 1) {
        assert_int_equal(m->ended, 0);
        assert_int_equal(m->req.status, 0);
        m->ended++;
    } else if (rc < 0) {
        assert_int_equal(m->ended, 0);
    } else {
        assert_int_equal(m->req.status, SL_PENDING);
    }
    return rc;
}

int try_send(struct msg *m, struct sl_ep *ep)
{
    m->req.status = STALE;
    return posted(m,
                  contract_ops->send(ep != NULL ? ep : m->side->ep, &m->buf, m->sink.tag, &m->req));
}

int try_recv(struct msg *m, struct sl_ep *ep)
{
    m->req.status = STALE;
    return posted(m, contract_ops->recv(ep != NULL ? ep : m->side->ep, &m->sink, &m->req));
}

static void check_post(int rc, const char *what)
{
    if (rc < 0)
        fail_msg("%s: %s: %s", what, sluice_strerror(rc), sluice_last_error());
}

void post_send(struct pair *p, struct msg *m, struct sl_ep *ep)
{
    int rc = -EAGAIN;

    PUMP_UNTIL(p, (rc = try_send(m, ep)) != -EAGAIN);
    check_post(rc, "send");
}

void post_recv(struct pair *p, struct msg *m, struct sl_ep *ep)
{
    int rc = -EAGAIN;

    PUMP_UNTIL(p, (rc = try_recv(m, ep)) != -EAGAIN);
    check_post(rc, "recv");
}

void msg_check_ended(const struct msg *m, int status)
{
    assert_int_equal(m->ended, 1);
    if (m->req.status != status)
        fail_msg("a message of %zu bytes ended with %s, not %s", m->len,
                 sluice_strerror(m->req.status), sluice_strerror(status));
}

void msg_check_received(const struct msg *m)
{
    const uint8_t *bytes = m->got != NULL ? m->got : m->block + GUARD;
    size_t behind = m->room + GUARD - m->len, i;
    uint8_t value;

    msg_check_ended(m, 0);
    assert_int_equal(m->req.len, m->len);
    assert_int_equal(m->req.tag, m->sink.tag);
    if (m->got != NULL)
        assert_int_equal(m->taken, m->len);
    i = bytes_check(bytes, m->len, m->sink.tag, &value);
    if (i < m->len)
        fail_msg("byte %zu of %zu (tag %llu) is 0x%02x, not 0x%02x", i, m->len,
                 (unsigned long long)m->sink.tag, bytes[i], value);
    assert_int_equal(bytes_other(m->block, GUARD, 0xa5), GUARD);
    i = bytes_other(m->block + GUARD + m->len, behind, 0xa5);
    if (i < behind)
        fail_msg("byte %zu is 0x%02x, behind a message of %zu bytes", m->len + i,
                 m->block[GUARD + m->len + i], m->len);
}
