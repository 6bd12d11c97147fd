/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hostile peer on open connections: the input is dealt to the control connection and two data
 * connections of an endpoint that awaits messages. Nothing may be written outside the receives'
 * memory, and every request must end once.
 *
 * Input: packets of one byte (which connection; bit 7: put the header's sum right), one byte
 * length, and that many bytes. Byte 0 of the input: bit 0 is crc.
 */
#include "tcp/tcp.h"

#include "core/err.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNS 3
#define RECVS 6

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int engine_add(void *engine, struct sl_tcp_watch *watch)
{
    (void)engine, (void)watch;
    return 0;
}

static void engine_del(void *engine, struct sl_tcp_watch *watch)
{
    (void)engine, (void)watch;
}

static const struct sl_tcp_engine_ops no_engine = {
    .name = "none", .add = engine_add, .del = engine_del};
static struct sl_tcp_iface iface;
static struct sl_tcp_ep ep;
static struct sl_tcp_conn conns[CONNS];
static struct sl_tcp_rx_slot rx[SL_TCP_QUEUE];
static struct sl_tcp_tx_slot tx[SL_TCP_QUEUE];
static struct sl_tcp_ctrl_msg ctrl[SL_TCP_CTRL_QUEUE];
static int ends[RECVS];
static uint64_t consumed;

static void on_done(struct sl_req *req)
{
    (*(int *)req->arg)++;
}

static void on_consume(const struct sl_sink *sink, const void *bytes, size_t off, size_t len)
{
    volatile uint8_t sum = 0;

    sl_assert(off == consumed && off + len <= sink->len);
    for (size_t i = 0; i < len; i++)
        sum = (uint8_t)(sum + ((const uint8_t *)bytes)[i]);
    consumed += len;
}

static void begin(bool crc, int peer[CONNS])
{
    uint8_t *staging = iface.staging != NULL
                           ? iface.staging
                           : aligned_alloc(4096, SL_TCP_STAGING_BYTES + SL_TCP_GRANULE_MAX);
    uint8_t *carry = ep.carry != NULL ? ep.carry : malloc(SL_TCP_GRANULE_MAX);

    memset(&iface, 0, sizeof(iface));
    memset(&ep, 0, sizeof(ep));
    iface.engine_ops = &no_engine;
    iface.staging = staging;
    iface.budget = INT32_MAX;
    sl_list_init(&iface.eps);
    sl_list_init(&iface.active);
    sl_list_init(&iface.ready);
    sl_list_init(&iface.news);
    ep.iface = &iface;
    ep.base.iface = &iface.base;
    ep.state = SL_TCP_EP_UP;
    ep.conns = conns;
    ep.data_conns = CONNS - 1;
    ep.crc = crc;
    ep.rx = rx;
    ep.tx = tx;
    ep.ctrl = ctrl;
    ep.carry = carry;
    ep.piece_bytes = 4096;
    for (unsigned i = 0; i < CONNS; i++) {
        uint8_t *ahead = conns[i].rx != NULL ? conns[i].rx : malloc(SL_TCP_RX_BYTES);
        int pair[2];

        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0)
            abort();
        conns[i] =
            (struct sl_tcp_conn){.ep = &ep, .idx = (uint8_t)i, .state = SL_TCP_OPEN, .rx = ahead};
        conns[i].watch =
            (struct sl_tcp_watch){.fd = pair[0], .kind = SL_TCP_WATCH_CONN, .readable = true};
        peer[i] = pair[1];
    }
}

static void turn(void)
{
    for (unsigned round = 0; round < 3; round++)
        for (unsigned i = 0; i < CONNS && !ep.is_failing; i++)
            sl_tcp_conn_rx(&conns[i]);
}

static void feed(const uint8_t *data, size_t size, const int peer[CONNS])
{
    while (size >= 2 && !ep.is_failing) {
        unsigned conn = (data[0] & 0x7f) % CONNS;
        bool fix = (data[0] & 0x80) != 0;
        size_t len = data[1] < size - 2 ? data[1] : size - 2;
        uint8_t bytes[256];

        memcpy(bytes, data + 2, len);
        if (fix && len >= SL_TCP_FRAME_BYTES) {
            uint32_t sum = sl_crc32c(0, bytes, 44);

            for (unsigned i = 0; i < 4; i++)
                bytes[44 + i] = (uint8_t)(sum >> 8 * i);
        }
        if (len > 0 && write(peer[conn], bytes, len) != (ssize_t)len)
            abort();
        turn();
        data += 2 + len;
        size -= 2 + len;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const size_t lens[RECVS] = {0, 8, 100, 1000, 70, 100};
    struct sl_sink sinks[RECVS];
    struct sl_req reqs[RECVS];
    uint8_t *places[RECVS];
    int peer[CONNS];

    if (size < 1)
        return 0;
    begin((data[0] & 1) != 0, peer);
    consumed = 0;
    for (unsigned i = 0; i < RECVS; i++) {
        places[i] = malloc(lens[i] + 1);
        ends[i] = 0;
        /* The fifth is consumed, without memory of its own. */
        sinks[i] = (struct sl_sink){.dst = i == 4 ? NULL : places[i],
                                    .len = lens[i],
                                    .tag = i,
                                    .granule = 8,
                                    .consume = i == 4 ? on_consume : NULL};
        reqs[i] = (struct sl_req){.done = on_done, .arg = &ends[i]};
        sl_assert(sl_tcp_recv(&ep.base, &sinks[i], &reqs[i]) == 0);
    }
    feed(data + 1, size - 1, peer);
    sl_tcp_cancel(&ep, -ECANCELED);
    for (unsigned i = 0; i < RECVS; i++) {
        sl_assert(ends[i] == 1);
        free(places[i]);
    }
    for (unsigned i = 0; i < CONNS; i++) {
        close(peer[i]);
        close(conns[i].watch.fd);
    }
    return 0;
}
