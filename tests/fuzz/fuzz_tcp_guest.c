/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strangers, and a peer that misbehaves, at the port of a tcp interface with two endpoints:
 * connections that say hello whole, in parts, altered or not at all, in any order, before and after
 * the endpoints are told to connect, while the clock goes on and descriptors run out. Byte 0
 * chooses what is below, then four bytes a step.
 *
 * However it goes: an endpoint that nobody proved to be the peer of is neither connected nor lost;
 * places and descriptors are given back; and in the end the real peers connect, all strangers being
 * there still, and are heard.
 */
#include "core/err.h"
#include "core/log.h"
#include "tcp/proof.h"
#include "tcp/tcp.h"
#include "tests/unit/tcp/wire_peer.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cmocka.h>

#define STEPS_MAX 48
#define STEP_BYTES 4
#define GUESTS 6
#define VICTIMS 2
#define FDS_MAX 256
#define FEW_PLACES 4
#define DATA_LEN 100

/* Byte 0. */
#define OPT_FEW 1u   /* pending connections may be no more than FEW_PLACES */
#define OPT_URING 2u /* where there is one */
#define OPT_CRC 4u
#define OPT_SESSION 8u /* the job has a secret */
#define OPT_CONNS 16u  /* two data connections, not one */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct guest {
    int fd;
    unsigned said, heard; /* of hello and welcome */
    bool true_hello;
    unsigned victim, conn_idx;
    uint8_t hello[SL_TCP_HELLO_BYTES], welcome[SL_TCP_WELCOME_BYTES];
};

static struct wire wires[VICTIMS]; /* the second shares the interface of the first */
static struct guest guests[GUESTS];
static bool asked[VICTIMS];
static unsigned proofs[VICTIMS]; /* that guests gave */
static bool took_data[VICTIMS]; /* such a guest may have a data connection, which the real peer then
                                   misses */
static unsigned options;
static uint64_t now_ns, look_ns;
static uint8_t recorded[SL_DIGEST_BYTES]; /* a proof of another connection */
static const uint8_t peer_token[SL_TCP_TOKEN_BYTES], other_token[SL_TCP_TOKEN_BYTES] = {0x77};

static void no_log(void *arg, enum sl_log_level level, const char *area, const char *line)
{
    (void)arg, (void)level, (void)area, (void)line;
}

static uint64_t look_at_clock(const struct sl_clock *clock)
{
    (void)clock;
    now_ns += look_ns;
    return now_ns;
}

static struct sl_tcp_iface *iface(void)
{
    return sl_tcp_iface_of(wires[0].iface);
}

static struct sl_tcp_ep *ep_of(unsigned victim)
{
    return sl_tcp_ep_of(wires[victim].ep);
}

static unsigned data_conns(void)
{
    return (options & OPT_CONNS) != 0 ? 2 : 1;
}

/* ---- what must hold ---- */

static void check(void)
{
    const struct sl_pending_set *set = &iface()->pending_set;
    unsigned used = 0, by_source = 0;

    for (unsigned i = 0; i < SL_TCP_PENDING; i++)
        used += iface()->pending[i].used;
    for (unsigned i = 0; i < SL_PENDING_SOURCES; i++)
        by_source += set->by_source[i];
    sl_assert(used == set->count && by_source == used && used <= set->limit);
    for (unsigned v = 0; v < VICTIMS; v++) {
        const struct sl_tcp_ep *ep = ep_of(v);

        sl_assert(ep->state <= SL_TCP_EP_CONNECTING || proofs[v] > data_conns());
        sl_assert(asked[v] == (ep->state != SL_TCP_EP_NEW));
        sl_assert(ep->state != SL_TCP_EP_CONNECTING || wires[v].connect.status == SL_PENDING);
    }
}

static void progress(unsigned rounds)
{
    while (rounds-- > 0)
        sl_assert(wires[0].ops.progress(wires[0].iface, 16) >= 0);
    check();
}

static void descriptors(bool out[FDS_MAX])
{
    for (int fd = 0; fd < FDS_MAX; fd++)
        out[fd] = fcntl(fd, F_GETFD) >= 0;
}

/* ---- guests ---- */

/* Its close is a reset: nothing of it waits in the kernel for a minute. */
static int dial(int family)
{
    int fd = wire_dial(&wires[0], family);
    struct linger at_once = {.l_onoff = 1};

    sl_assert(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)) == 0);
    return fd;
}

static void open_guest(struct guest *g, bool v6)
{
    if (g->fd >= 0)
        return;
    *g = (struct guest){.fd = dial(v6 ? AF_INET6 : AF_INET)};
}

static void close_guest(struct guest *g)
{
    if (g->fd >= 0)
        close(g->fd);
    g->fd = -1;
}

static void send_some(const struct guest *g, const void *bytes, size_t len)
{
    if (g->fd >= 0)
        (void)!send(g->fd, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* b: bit 0 which endpoint, bits 1 and 2 which connection, then what is wrong. */
static void make_hello(struct guest *g, uint8_t b)
{
    struct sl_tcp_hello hello;
    unsigned wrong = b >> 3 & 7;

    g->victim = b & 1;
    g->conn_idx = b >> 1 & 3;
    g->true_hello = wrong == 0 && g->conn_idx <= data_conns();
    wire_hello(&wires[g->victim], &hello, g->conn_idx, data_conns(), (options & OPT_CRC) != 0);
    hello.nonce[0] = b;
    switch (wrong) {
    case 1: hello.to[b >> 6] ^= 1; break;
    case 2: hello.version++; break;
    case 3: hello.conn_count++; break;
    case 4: hello.crc = !hello.crc; break;
    case 5: hello.tls = true; break;
    default: break;
    }
    sl_tcp_hello_encode(&hello, g->hello);
    if (wrong == 6)
        g->hello[4 + (b >> 6) * 15] ^= 4;
    if (wrong == 7)
        g->hello[b >> 6] ^= 4;
}

/* The next part of its hello. */
static void say(struct guest *g, uint8_t a, uint8_t b)
{
    static const uint8_t lens[] = {SL_TCP_HELLO_BYTES, 1, 3, 4, 20, 63, 32, 10};
    size_t len = lens[a % 8];

    open_guest(g, (a & 0x80) != 0);
    if (g->said == 0)
        make_hello(g, b);
    if (len > SL_TCP_HELLO_BYTES - g->said)
        len = SL_TCP_HELLO_BYTES - g->said;
    send_some(g, g->hello + g->said, len);
    g->said += (unsigned)len;
}

static void say_garbage(const struct guest *g, uint8_t a, uint8_t b)
{
    uint8_t bytes[256];

    memset(bytes, a, sizeof(bytes));
    memcpy(bytes, "SLTH", (b & 1) != 0 ? 4 : 0);
    send_some(g, bytes, b + 1u);
}

/* What the welcome asks for: by the peer, by who knows less, and what was heard elsewhere. */
static void prove(struct guest *g, uint8_t a)
{
    const struct wire *w = &wires[g->victim];
    const uint8_t *listener = w->addr.bytes + 24;
    uint8_t key[SL_DIGEST_BYTES], mac[SL_DIGEST_BYTES];
    enum sl_tcp_proof what = (a & 7) == 2 ? SL_TCP_PROOF_LISTENER : SL_TCP_PROOF_DIALLER;
    ssize_t n =
        g->fd < 0 ? 0
                  : recv(g->fd, g->welcome + g->heard, sizeof(g->welcome) - g->heard, MSG_DONTWAIT);

    g->heard += n > 0 ? (unsigned)n : 0;
    if (g->fd < 0 || g->heard < sizeof(g->welcome))
        return;
    sl_assert(g->true_hello); /* nobody else is welcome */
    sl_assert(sl_tcp_link_key(&wires[0].worker, (a & 7) == 1 ? other_token : peer_token, listener,
                              key) == 0);
    sl_assert(sl_tcp_proof_make(key, what, g->hello, g->welcome, mac) == 0);
    if ((a & 7) == 3)
        send_some(g, recorded, sizeof(recorded));
    else if ((a & 7) == 4)
        send_some(g, mac, 1 + (a >> 3) % (sizeof(mac) - 1));
    else
        send_some(g, mac, sizeof(mac));
    if ((a & 7) == 0 || (a & 7) > 4) {
        proofs[g->victim]++;
        took_data[g->victim] |= g->conn_idx != 0;
        memcpy(recorded, mac, sizeof(mac));
    }
}

static void drop(struct guest *g, uint8_t a)
{
    if (g->fd >= 0 && a % 4 == 3)
        shutdown(g->fd, SHUT_WR);
    else
        close_guest(g);
}

/* ---- the rest of a sequence ---- */

static void ask(unsigned victim)
{
    if (asked[victim])
        return;
    asked[victim] = true;
    wire_connect_begin(&wires[victim], data_conns(), (options & OPT_CRC) != 0);
}

static void go_on(uint8_t a)
{
    static const unsigned spans_ms[] = {1, 10, 51, 500, 1001, 2500, 5001, 9000};

    now_ns += spans_ms[a % 8] * SL_NS_PER_MS;
}

static void without_descriptors(void)
{
    struct rlimit old, none;

    sl_assert(getrlimit(RLIMIT_NOFILE, &old) == 0);
    none = (struct rlimit){0, old.rlim_max};
    sl_assert(setrlimit(RLIMIT_NOFILE, &none) == 0);
    progress(3);
    sl_assert(setrlimit(RLIMIT_NOFILE, &old) == 0);
}

static void run_step(const uint8_t *s)
{
    struct guest *g = &guests[s[1] % GUESTS];

    switch (s[0] % 10) {
    case 0: open_guest(g, (s[2] & 1) != 0); break;
    case 1:
    case 2: say(g, s[2], s[3]); break;
    case 3: say_garbage(g, s[2], s[3]); break;
    case 4: prove(g, s[2]); break;
    case 5: drop(g, s[2]); break;
    case 6: ask(s[2] & 1); break;
    case 7: go_on(s[2]); break;
    case 8: without_descriptors(); break;
    default: progress(1 + s[2] % 8); break;
    }
}

/* ---- from the start to the end ---- */

static void open_victims(void)
{
    static const char *const settings[] = {"INTERFACE", "lo", "CONNECT_TIMEOUT_MS", "86400000",
                                           NULL};

    wire_open(&wires[0], (options & OPT_URING) != 0 ? "auto" : "epoll", settings);
    wires[0].worker.has_session = (options & OPT_SESSION) != 0;
    now_ns = sl_now(&sl_clock_monotonic);
    look_ns = SL_NS_PER_MS / 1000;
    wires[0].clock.now_ns = look_at_clock;
    if ((options & OPT_FEW) != 0) {
        iface()->pending_set.limit = FEW_PLACES;
        iface()->pending_set.share = 1;
    }
    wires[1] = wires[0];
    sl_assert(wires[0].ops.ep_create(wires[0].iface, &wires[1].ep) == 0);
    wires[1].ep->peer = 2;
    sl_assert(wires[0].ops.ep_addr(wires[1].ep, &wires[1].addr) == 0);
    sl_assert(sl_tcp_name_make(wires[1].addr.bytes + 24, wires[1].name) == 0);
}

/* A message of each kind arrives. */
static void check_heard(struct wire *w)
{
    bool crc = sl_tcp_ep_of(w->ep)->crc;
    uint8_t sent[DATA_LEN], got[DATA_LEN] = {0};
    struct sl_tcp_frame ctrl = {.type = SL_TCP_CTRL, .len = 4};
    struct sl_tcp_frame frame = {.type = SL_TCP_DATA, .len = DATA_LEN, .total = DATA_LEN, .tag = 5};
    struct sl_sink sink = {.dst = got, .len = DATA_LEN, .tag = 5};
    struct sl_req req = {0};
    int ctrls = wires[0].ctrls;

    memset(sent, 0xa5, sizeof(sent));
    sl_assert(w->ops.recv(w->ep, &sink, &req) == 0);
    wire_frame(w, 0, &ctrl, crc, "word");
    wire_frame(w, 1, &frame, crc, sent);
    WIRE_UNTIL(w, req.status != SL_PENDING && wires[0].ctrls > ctrls);
    sl_assert(req.status == 0 && memcmp(sent, got, sizeof(got)) == 0);
}

/* Strangers had their time; those that the kernel still keeps get theirs while the peer waits. */
static void serve_real_peers(void)
{
    look_ns = SL_NS_PER_MS / 5;
    for (unsigned v = 0; v < VICTIMS; v++)
        ask(v);
    now_ns += SL_PENDING_HEARD_MS * SL_NS_PER_MS;
    progress(4);
    for (unsigned v = 0; v < VICTIMS; v++) {
        if (ep_of(v)->state != SL_TCP_EP_CONNECTING || took_data[v])
            continue; /* guests were its peer */
        proofs[v] += data_conns() + 1;
        wire_connect_end(&wires[v], data_conns(), (options & OPT_CRC) != 0);
        check_heard(&wires[v]);
    }
    check();
}

/* Our ends go first, and then theirs by a reset. */
static void close_all(void)
{
    struct linger at_once = {.l_onoff = 1};

    for (unsigned v = 0; v < VICTIMS; v++)
        for (unsigned i = 0; i <= WIRE_CONNS; i++)
            if (wires[v].fds[i] >= 0)
                sl_assert(setsockopt(wires[v].fds[i], SOL_SOCKET, SO_LINGER, &at_once,
                                     sizeof(at_once)) == 0);
    wires[0].ops.ep_destroy(wires[1].ep);
    for (unsigned i = 0; i <= WIRE_CONNS; i++)
        if (wires[1].fds[i] >= 0)
            close(wires[1].fds[i]);
    wire_close(&wires[0]);
    for (unsigned i = 0; i < GUESTS; i++)
        close_guest(&guests[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bool before[FDS_MAX], after[FDS_MAX];

    options = size > 0 ? data[0] : 0;
    memset(asked, 0, sizeof(asked));
    memset(proofs, 0, sizeof(proofs));
    memset(took_data, 0, sizeof(took_data));
    for (unsigned i = 0; i < GUESTS; i++)
        guests[i] = (struct guest){.fd = -1};
    sl_log_set_sink(no_log, NULL);
    descriptors(before);
    open_victims();
    if (size > 0)
        data++, size--;
    for (unsigned i = 0; i < STEPS_MAX && size >= STEP_BYTES;
         i++, data += STEP_BYTES, size -= STEP_BYTES)
        run_step(data);
    progress(4);
    serve_real_peers();
    close_all();
    descriptors(after);
    sl_assert(memcmp(before, after, sizeof(before)) == 0);
    sl_log_set_sink(NULL, NULL);
    return 0;
}
