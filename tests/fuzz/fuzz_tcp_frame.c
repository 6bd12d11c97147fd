/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hostile peer on open connections: the input is dealt to the control connection and two data
 * connections of an endpoint that awaits messages, on several channels. Nothing may be written
 * outside the receives' memory, nothing read of a send's that has ended, and every request must end
 * once.
 *
 * Input: packets of one byte (which connection; bit 7: put the header's sum right), one byte
 * length, and that many bytes. With bits 5 and 6 the first byte is an act of the endpoint's owner,
 * and the second says of which channel. Byte 0 of the input: bit 0 is crc.
 */
#include "tcp/tcp.h"

#include "core/clock.h"
#include "core/err.h"
#include "core/worker.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNS 3
#define RECVS 6
#define CHANNELS 3 /* that are open; one more may be */
#define ACTS 40
#define KEPT_MAX ((uint64_t)1 << 20)
#define ACT_BYTES 3000

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
static struct sl_worker worker = {.clock = &sl_clock_monotonic};
static struct sl_tcp_iface iface;
static struct sl_tcp_ep ep;
static struct sl_tcp_conn conns[CONNS];
static struct sl_tcp_queues queues;
static int ends[RECVS];
static uint64_t consumed;

/* A send or receive of the owner's. */
static struct act {
    struct sl_buf buf;
    struct sl_sink sink;
    struct sl_req req;
    uint8_t *memory;
} acts[ACTS];
static unsigned act_count;

struct sl_kept *__real_sl_channel_keep(struct sl_channels *channels, struct sl_channel *channel,
                                       uint64_t tag, uint64_t len);
struct sl_kept *__wrap_sl_channel_keep(struct sl_channels *channels, struct sl_channel *channel,
                                       uint64_t tag, uint64_t len);

/* Sanitizers call it an error to ask for more than there can be. */
struct sl_kept *__wrap_sl_channel_keep(struct sl_channels *channels, struct sl_channel *channel,
                                       uint64_t tag, uint64_t len)
{
    return len > KEPT_MAX ? NULL : __real_sl_channel_keep(channels, channel, tag, len);
}

static void on_done(struct sl_req *req)
{
    (*(int *)req->arg)++;
}

/* Its memory is the owner's again. */
static void on_act_done(struct sl_req *req)
{
    struct act *act = req->arg;

    sl_assert(act->memory != NULL);
    free(act->memory);
    act->memory = NULL;
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

    memset(&iface, 0, sizeof(iface));
    memset(&ep, 0, sizeof(ep));
    iface.base.worker = &worker;
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
    ep.queues = &queues;
    ep.tx = queues.tx;
    ep.tx_mask = SL_TCP_QUEUE - 1;
    ep.ctrl = queues.ctrl;
    ep.piece_bytes = 4096;
    if (sl_tcp_channels_init(&ep) != 0)
        abort();
    for (uint32_t id = 1; id < CHANNELS; id++)
        sl_assert(sl_tcp_channel_open(&ep.base, id) == 0);
    act_count = 0;
    for (unsigned i = 0; i < CONNS; i++) {
        uint8_t *ahead = conns[i].rx != NULL ? conns[i].rx : malloc(SL_TCP_RX_BYTES);
        int pair[2], little = 1;

        /* Little room, so that sends are under way for a while. */
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0 ||
            setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &little, sizeof(little)) != 0)
            abort();
        conns[i] =
            (struct sl_tcp_conn){.ep = &ep, .idx = (uint8_t)i, .state = SL_TCP_OPEN, .rx = ahead};
        conns[i].watch = (struct sl_tcp_watch){
            .fd = pair[0], .kind = SL_TCP_WATCH_CONN, .readable = true, .writable = true};
        peer[i] = pair[1];
    }
}

static void turn(void)
{
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < CONNS && !ep.is_failing; i++) {
            sl_tcp_conn_rx(&conns[i]);
            if (conns[i].watch.writable && !ep.is_failing)
                sl_tcp_conn_tx(&conns[i]);
        }
        sl_channels_settle(&ep.channels, 16);
    }
}

static void act(uint8_t what, uint8_t arg)
{
    uint32_t channel = arg % (CHANNELS + 1);
    struct act *a = &acts[act_count];
    int rc;

    if (what % 4 == 0)
        sl_tcp_channel_close(&ep.base, channel);
    if (what % 4 == 1)
        (void)sl_tcp_channel_open(&ep.base, channel);
    if (what % 4 < 2 || act_count == ACTS)
        return;
    *a = (struct act){.memory = malloc(ACT_BYTES), .req = {.done = on_act_done, .arg = a}};
    memset(a->memory, 0, ACT_BYTES);
    a->buf = (struct sl_buf){.addr = a->memory, .len = ACT_BYTES, .channel = channel};
    a->sink = (struct sl_sink){.dst = a->memory,
                               .len = arg / (CHANNELS + 1),
                               .tag = arg & 1,
                               .channel = channel,
                               .shorter = true};
    rc = what % 4 == 2 ? sl_tcp_recv(&ep.base, &a->sink, &a->req)
                       : sl_tcp_send(&ep.base, &a->buf, 0, &a->req);
    act_count += rc >= 0;
    if (rc != 0)
        free(a->memory);
    if (rc != 0)
        a->memory = NULL;
}

static void feed(const uint8_t *data, size_t size, const int peer[CONNS])
{
    while (size >= 2 && !ep.is_failing) {
        unsigned conn = (data[0] & 0x7f) % CONNS;
        bool fix = (data[0] & 0x80) != 0;
        size_t len = data[1] < size - 2 ? data[1] : size - 2;
        uint8_t bytes[256];

        if ((data[0] & 0x60) == 0x60) {
            act(data[0] & 0x1f, data[1]);
            turn();
            data += 2;
            size -= 2;
            continue;
        }
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
                                    .channel = i < 5 ? 0 : 1,
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
    sl_assert(ep.rx_open == 0 && ep.channels.wanting == 0);
    for (unsigned i = 0; i < act_count; i++)
        sl_assert(acts[i].memory == NULL);
    for (unsigned i = 0; i < CONNS; i++) {
        close(peer[i]);
        sl_tcp_conn_close(&conns[i]);
    }
    sl_tcp_channels_fini(&ep);
    free(ep.why);
    return 0;
}
