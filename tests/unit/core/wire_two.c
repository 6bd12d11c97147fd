/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of one process that wire up; what their owners note; the fake transports. */
#include "wire_two.h"

#include "core/err.h"
#include "core/wireup_word.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

struct fake_ep {
    struct sl_ep base;
    bool used;
    uint32_t to; /* place of the peer's; UINT32_MAX: not connecting yet */
    struct sl_req *req;
};

struct side sides[RANKS];
struct sl_wireup_addr addrs[RANKS];
uint64_t now_ns;
char long_text[1901]; /* two of them fill most of an error */

static struct fake_ep eps[EPS_MAX];
static const char *const names[KINDS] = {"first", "second"};

/* ---- the fake transports ---- */

static struct side *side_of(const struct sl_iface *iface)
{
    return iface->handler.arg;
}

static enum fault fault_of(const struct sl_iface *iface)
{
    return side_of(iface)->faults[iface - side_of(iface)->ifaces];
}

static struct fake_ep *fake(struct sl_ep *ep)
{
    return sl_container_of(ep, struct fake_ep, base);
}

static bool lacks_memory(struct side *side)
{
    return side->lacks > 0 && side->lacks-- > 0;
}

static int fake_create(struct sl_iface *iface, struct sl_ep **out)
{
    unsigned at = 0;

    if (fault_of(iface) == NO_MEMORY || lacks_memory(side_of(iface)))
        return sl_fail(-ENOMEM, "no memory for an endpoint");
    if (fault_of(iface) == NO_CREATE)
        return sl_fail(-ENODEV, "no endpoint is to be had");
    if (fault_of(iface) == TALKS)
        return sl_fail(-ENODEV, "%s", long_text);
    while (at < EPS_MAX && eps[at].used)
        at++;
    assert_true(at < EPS_MAX);
    eps[at] = (struct fake_ep){.base = {.iface = iface}, .used = true, .to = UINT32_MAX};
    *out = &eps[at].base;
    return 0;
}

static int fake_addr(struct sl_ep *ep, struct sl_addr *out)
{
    uint32_t at = (uint32_t)(fake(ep) - eps);

    out->len = sizeof(at);
    memcpy(out->bytes, &at, sizeof(at));
    return 0;
}

static int fake_connect(struct sl_ep *ep, const struct sl_addr *addr, struct sl_req *req)
{
    if (fault_of(ep->iface) == NO_CONNECT)
        return sl_fail(-EPROTO, "its address is no address");
    assert_int_equal(addr->len, sizeof(uint32_t));
    memcpy(&fake(ep)->to, addr->bytes, sizeof(uint32_t));
    assert_true(fake(ep)->to < EPS_MAX);
    fake(ep)->req = req;
    return 0;
}

static void fake_destroy(struct sl_ep *ep)
{
    struct sl_req *req = fake(ep)->req;

    assert_true(fake(ep)->used);
    fake(ep)->used = false;
    fake(ep)->req = NULL;
    if (req != NULL && req->status == SL_PENDING)
        sl_req_end(req, -ECANCELED);
}

static const struct sl_transport_ops fake_ops = {
    .ep_create = fake_create,
    .ep_addr = fake_addr,
    .ep_connect = fake_connect,
    .ep_destroy = fake_destroy,
};

static void fake_progress(struct side *side)
{
    for (uint32_t at = 0; at < EPS_MAX; at++) {
        struct fake_ep *ep = &eps[at];
        struct sl_req *req = ep->req;

        if (!ep->used || side_of(ep->base.iface) != side || req == NULL)
            continue;
        switch (fault_of(ep->base.iface)) {
        case NO_LINK:
            sl_fail(-ETIMEDOUT, "the cable is cut");
            ep->req = NULL;
            sl_req_end(req, -ETIMEDOUT);
            break;
        case LOST: sl_wireup_lost(side->wireup, (uint32_t)ep->base.peer, "the device went"); break;
        default:
            if (eps[ep->to].used && eps[ep->to].to == at) {
                ep->req = NULL;
                sl_req_end(req, 0);
            }
        }
    }
}

/* ---- an owner ---- */

static const struct sl_wireup_addr *owner_addr(void *arg, uint32_t peer)
{
    const struct side *side = arg;

    return &addrs[side->numbered ? 1 - side->rank : peer];
}

static uint32_t owner_candidates(void *arg, uint32_t peer)
{
    (void)peer;
    return ((struct side *)arg)->candidates;
}

static bool owner_connected(void *arg, uint32_t peer)
{
    return ((struct side *)arg)->eps[peer] != NULL;
}

static const char *owner_name(void *arg, unsigned transport)
{
    (void)arg;
    return transport < KINDS ? names[transport] : "?";
}

static int owner_create(void *arg, unsigned transport, uint32_t peer, struct sl_ep **out)
{
    struct side *side = arg;
    int err = fake_ops.ep_create(&side->ifaces[transport], out);

    if (err == 0)
        (*out)->peer = (int)peer;
    return err;
}

static void owner_up(void *arg, uint32_t peer, struct sl_ep *ep)
{
    struct side *side = arg;

    assert_null(side->eps[peer]);
    side->eps[peer] = ep;
    side->ups++;
}

static void owner_failed(void *arg, uint32_t peer, int err, const char *why)
{
    struct side *side = arg;

    (void)peer;
    side->failures++;
    side->err = err;
    snprintf(side->why, sizeof(side->why), "%s", why);
    if (side->next >= 0)
        assert_int_equal(sl_wireup_connect(side->wireup, (uint32_t)side->next, false), 0);
}

static void owner_greet(void *arg, uint32_t peer, struct sl_wireup_hello *hello)
{
    (void)arg;
    hello->to = peer;
}

static int owner_awaited(void *arg, const struct sl_wireup_hello *hello, uint32_t *peer)
{
    if (!((struct side *)arg)->awaits)
        return -ECONNREFUSED;
    if (lacks_memory(arg))
        return sl_fail(-ENOMEM, "no memory for a connection");
    *peer = hello->to;
    return 0;
}

static void owner_left(void *arg, uint32_t peer)
{
    (void)peer;
    ((struct side *)arg)->lefts++;
}

static void owner_stranger(void *arg, const struct sl_wireup_hello *hello, const char *at)
{
    (void)hello;
    assert_non_null(strstr(at, "process"));
    ((struct side *)arg)->strangers++;
}

static unsigned owner_prefer(void *arg, uint32_t transports)
{
    (void)arg;
    return 31 - (unsigned)__builtin_clz(transports); /* the highest */
}

/* ---- all of them ---- */

static uint64_t read_clock(const struct sl_clock *clock)
{
    (void)clock;
    return now_ns;
}

/* As if the unix socket were not there. */
static int dial_tcp(struct sl_wire *wire, const struct sl_wireup_addr *to, unsigned n,
                    struct sl_pipe **out)
{
    return sl_wire_sockets.dial(wire, to, n + 1, out);
}

static void side_open(struct side *side, uint32_t rank, bool tcp, bool numbered)
{
    static const struct sl_clock clock = {.now_ns = read_clock};
    static struct sl_wire_ops over_tcp;
    struct sl_wireup_owner owner = {
        .arg = side,
        .rank = numbered ? UINT32_MAX : rank,
        .size = RANKS,
        .group = 99,
        .addr = owner_addr,
        .candidates = owner_candidates,
        .connected = owner_connected,
        .name = owner_name,
        .ep_create = owner_create,
        .up = owner_up,
        .failed = owner_failed,
    };

    if (numbered) {
        owner.greet = owner_greet;
        owner.awaited = owner_awaited;
        owner.left = owner_left;
        owner.stranger = owner_stranger;
        owner.prefer = owner_prefer;
    }
    over_tcp = sl_wire_sockets;
    over_tcp.dial = dial_tcp;
    *side = (struct side){.rank = rank,
                          .candidates = (1u << KINDS) - 1,
                          .next = -1,
                          .numbered = numbered,
                          .awaits = true};
    sl_config_defaults(&side->config);
    assert_int_equal(sl_config_set(&side->config, "INTERFACE", "lo"), 0);
    side->worker = (struct sl_worker){.clock = &clock, .config = &side->config, .rank = (int)rank};
    for (unsigned k = 0; k < KINDS; k++)
        side->ifaces[k] = (struct sl_iface){.ops = &fake_ops, .handler = {.arg = side}};
    assert_int_equal(sl_wireup_open(&side->worker, tcp ? &over_tcp : &sl_wire_sockets, !tcp, &owner,
                                    &addrs[rank], &side->wireup),
                     0);
}

static void open_all(bool tcp, bool numbered)
{
    memset(eps, 0, sizeof(eps));
    now_ns = 1000 * SL_NS_PER_S;
    for (uint32_t r = 0; r < RANKS; r++)
        side_open(&sides[r], r, tcp, numbered);
}

void sides_open(bool tcp)
{
    open_all(tcp, false);
}

void sides_open_numbered(bool tcp)
{
    open_all(tcp, true);
}

void side_close(struct side *side)
{
    for (uint32_t r = 0; r < RANKS; r++)
        if (side->eps[r] != NULL)
            fake_destroy(side->eps[r]);
    memset(side->eps, 0, sizeof(side->eps));
    sl_wireup_close(side->wireup);
    side->wireup = NULL;
}

void sides_close(void)
{
    for (uint32_t r = 0; r < RANKS; r++)
        side_close(&sides[r]);
    assert_int_equal(ep_count(), 0);
}

void pump_one(struct side *side)
{
    if (side->wireup == NULL)
        return;
    sl_wireup_progress(side->wireup, now_ns);
    fake_progress(side);
}

void pump(void)
{
    for (uint32_t r = 0; r < RANKS; r++)
        pump_one(&sides[r]);
    now_ns += TICK_NS;
}

bool are_connected(const struct side *a, const struct side *b)
{
    struct sl_ep *there = a->eps[b->rank], *back = b->eps[a->rank];

    return there != NULL && back != NULL && fake(there)->to == (uint32_t)(fake(back) - eps) &&
           fake(back)->to == (uint32_t)(fake(there) - eps) && a->ups == 1 && b->ups == 1;
}

unsigned ep_count(void)
{
    unsigned count = 0;

    for (unsigned i = 0; i < EPS_MAX; i++)
        count += eps[i].used;
    return count;
}

int transport_of(const struct side *side, uint32_t peer)
{
    return side->eps[peer] == NULL ? -1 : (int)(side->eps[peer]->iface - side->ifaces);
}
