/* SPDX-License-Identifier: Apache-2.0 */
/* The hand-made peer. */
#include "wire_peer.h"

#include "core/crc.h"
#include "core/err.h"
#include "tcp/proof.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

static uint64_t skewed_now(const struct sl_clock *clock)
{
    return sl_now(&sl_clock_monotonic) +
           sl_container_of((uintptr_t)clock, struct wire, clock)->skew_ns;
}

static void on_down(void *arg, struct sl_ep *ep, int status, const char *why)
{
    struct wire *w = arg;

    (void)ep;
    w->downs++;
    w->down_status = status;
    snprintf(w->down_why, sizeof(w->down_why), "%s", why);
}

static void on_ctrl(void *arg, struct sl_ep *ep, const void *msg, size_t len)
{
    (void)ep, (void)msg, (void)len;
    ((struct wire *)arg)->ctrls++;
}

void wire_open(struct wire *w, const char *engine, const char *const *settings)
{
    struct sl_handler handler = {.ctrl = on_ctrl, .down = on_down, .arg = w};

    memset(w, 0, sizeof(*w));
    for (unsigned i = 0; i <= WIRE_CONNS; i++)
        w->fds[i] = -1;
    w->clock.now_ns = skewed_now;
    sl_config_defaults(&w->config);
    assert_int_equal(sl_config_set(&w->config, "TCP_ENGINE", engine), 0);
    for (; settings != NULL && settings[0] != NULL; settings += 2)
        assert_int_equal(sl_config_set(&w->config, settings[0], settings[1]), 0);
    w->worker = (struct sl_worker){.clock = &w->clock,
                                   .config = &w->config,
                                   .rank = 0,
                                   .has_session = w->config.secret[0] != '\0'};
    if (w->worker.has_session)
        assert_int_equal(sl_session_derive(w->config.secret, w->worker.session), 0);
    sl_transport_complete(&sl_tcp_ops, &w->ops);
    assert_int_equal(w->ops.open(&w->worker, NULL, &handler, &w->iface), 0);
    assert_int_equal(w->ops.ep_create(w->iface, &w->ep), 0);
    w->ep->peer = 1;
    assert_int_equal(w->ops.ep_addr(w->ep, &w->addr), 0);
    assert_int_equal(sl_tcp_name_make(w->addr.bytes + 24, w->name), 0);
}

void wire_close(struct wire *w)
{
    w->ops.ep_destroy(w->ep);
    w->ops.close(w->iface);
    for (unsigned i = 0; i <= WIRE_CONNS; i++)
        if (w->fds[i] >= 0)
            close(w->fds[i]);
}

struct sl_tcp_frame wire_piece(uint32_t seq, uint64_t tag, size_t total, size_t off, size_t len)
{
    return (struct sl_tcp_frame){.type = SL_TCP_DATA,
                                 .len = (uint32_t)len,
                                 .seq = seq,
                                 .tag = tag,
                                 .total = total,
                                 .off = off};
}

void wire_post(struct wire *w, struct sl_sink *sink, struct sl_req *req, void *dst, size_t len,
               uint64_t tag)
{
    *sink = (struct sl_sink){.dst = dst, .len = len, .tag = tag};
    *req = (struct sl_req){0};
    assert_int_equal(w->ops.recv(w->ep, sink, req), 0);
}

void wire_progress(struct wire *w)
{
    assert_true(w->ops.progress(w->iface, 16) >= 0);
}

int wire_dial(struct wire *w, int family)
{
    uint16_t port = (uint16_t)(w->addr.bytes[4] | w->addr.bytes[5] << 8);
    struct sockaddr_in in = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in6 in6 = {
        .sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int one = 1, fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    if (family == AF_INET)
        assert_int_equal(connect(fd, (struct sockaddr *)&in, sizeof(in)), 0);
    else
        assert_int_equal(connect(fd, (struct sockaddr *)&in6, sizeof(in6)), 0);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    return fd;
}

void wire_write(struct wire *w, int fd, const void *bytes, size_t len)
{
    size_t done = 0;

    while (done < len) {
        ssize_t n = send(fd, (const char *)bytes + done, len - done, MSG_DONTWAIT | MSG_NOSIGNAL);

        if (n > 0)
            done += (size_t)n;
        else
            assert_true(n < 0 && errno == EAGAIN);
        wire_progress(w);
    }
}

void wire_read(struct wire *w, int fd, void *bytes, size_t len)
{
    size_t done = 0;
    ssize_t n = 0;

    while (done < len) {
        WIRE_UNTIL(w, (n = recv(fd, (char *)bytes + done, len - done, MSG_DONTWAIT)) > 0);
        done += (size_t)n;
    }
}

bool wire_is_closed(struct wire *w, int fd)
{
    char bytes[256];
    ssize_t n = 1;

    WIRE_UNTIL(w, (n = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT)) == 0 ||
                      (n < 0 && errno == ECONNRESET));
    return true;
}

void wire_hello(struct wire *w, struct sl_tcp_hello *out, unsigned idx, unsigned count, bool crc)
{
    *out = (struct sl_tcp_hello){.version = SL_TCP_WIRE_VERSION,
                                 .conn_idx = (uint8_t)idx,
                                 .conn_count = (uint8_t)count,
                                 .crc = crc,
                                 .rank = 1};
    memcpy(out->to, w->name, sizeof(out->to));
}

void wire_greet(struct wire *w, int fd, const struct sl_tcp_hello *hello, const uint8_t *token)
{
    uint8_t bytes[SL_TCP_HELLO_BYTES], welcome[SL_TCP_WELCOME_BYTES], key[SL_DIGEST_BYTES];
    uint8_t mac[SL_DIGEST_BYTES];
    struct sl_tcp_answer answer;

    sl_tcp_hello_encode(hello, bytes);
    wire_write(w, fd, bytes, sizeof(bytes));
    wire_read(w, fd, welcome, sizeof(welcome));
    assert_int_equal(sl_tcp_answer_decode(welcome, &answer), 0);
    assert_int_equal(answer.verdict, SL_TCP_WELCOME);
    assert_int_equal(sl_tcp_link_key(&w->worker, token, w->addr.bytes + 24, key), 0);
    assert_int_equal(sl_tcp_proof_make(key, SL_TCP_PROOF_LISTENER, bytes, welcome, mac), 0);
    assert_memory_equal(mac, welcome + SL_TCP_ANSWER_BYTES + SL_TCP_NONCE_BYTES, sizeof(mac));
    assert_int_equal(sl_tcp_proof_make(key, SL_TCP_PROOF_DIALLER, bytes, welcome, mac), 0);
    wire_write(w, fd, mac, sizeof(mac));
}

void wire_connect_begin(struct wire *w, unsigned data_conns, bool crc)
{
    struct sl_addr peer = w->addr;

    assert_true(data_conns <= WIRE_CONNS);
    peer.bytes[6] = crc;
    peer.bytes[7] = (uint8_t)data_conns;
    memset(peer.bytes + 24, 0, SL_TCP_TOKEN_BYTES);
    assert_int_equal(w->ops.ep_connect(w->ep, &peer, &w->connect), 0);
}

void wire_connect(struct wire *w, unsigned data_conns, bool crc)
{
    wire_connect_begin(w, data_conns, crc);
    wire_connect_end(w, data_conns, crc);
}

void wire_connect_end(struct wire *w, unsigned data_conns, bool crc)
{
    static const uint8_t token[SL_TCP_TOKEN_BYTES];

    for (unsigned i = 0; i <= data_conns; i++) {
        struct sl_tcp_hello hello;

        w->fds[i] = wire_dial(w, AF_INET);
        wire_hello(w, &hello, i, data_conns, crc);
        wire_greet(w, w->fds[i], &hello, token);
    }
    WIRE_UNTIL(w, w->connect.status != SL_PENDING);
    assert_int_equal(w->connect.status, 0);
}

void wire_frame(struct wire *w, unsigned conn, const struct sl_tcp_frame *frame, bool crc,
                const void *payload)
{
    struct sl_tcp_frame copy = *frame;
    uint8_t bytes[SL_TCP_FRAME_BYTES];

    if (crc && payload != NULL && copy.crc == 0)
        copy.crc = sl_crc32c(0, payload, copy.len);
    sl_tcp_frame_encode(&copy, crc, bytes);
    wire_write(w, w->fds[conn], bytes, sizeof(bytes));
    if (payload != NULL)
        wire_write(w, w->fds[conn], payload, copy.len);
}
