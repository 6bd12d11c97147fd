/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hostile peer of a shm connection: what it writes into the rings, and says over the socket,
 * between sends, receives and closes of ours, in any order and on several channels. A byte chooses
 * a step, seven more its values. Messages may be damaged by that, and the connection may end;
 * nothing outside of a receive is written, and each request ends at most once.
 */
#include "tests/unit/shm/side.h"
#include "shm/config.h"

#include <stdlib.h>
#include <sys/socket.h>

#define STEPS_MAX 64
#define STEP_BYTES 8
#define POSTS 8
#define MESSAGE_MAX 100000
#define GUARD 64
#define CHANNELS 4      /* and further numbers that only the peer says */
#define KEEP_MAX 200000 /* of a message that is kept: what the peer says may be any number */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
struct sl_kept *__real_sl_channel_keep(struct sl_channels *channels, struct sl_channel *channel,
                                       uint64_t tag, uint64_t len);
struct sl_kept *__wrap_sl_channel_keep(struct sl_channels *channels, struct sl_channel *channel,
                                       uint64_t tag, uint64_t len);

struct step {
    uint8_t what, a;
    uint16_t b;
    uint32_t c;
};

struct post {
    struct sl_sink sink;
    struct sl_req req;
    unsigned ended;
};

static struct {
    struct side side, peer;
    struct post sends[POSTS], recvs[POSTS];
    unsigned send_count, recv_count;
    uint8_t *bytes; /* MESSAGE_MAX, and a guard */
} us;

static uint64_t peer_pos; /* of the next cell that it writes */

/* As on a machine with little memory. */
struct sl_kept *__wrap_sl_channel_keep(struct sl_channels *channels, struct sl_channel *channel,
                                       uint64_t tag, uint64_t len)
{
    return len <= KEEP_MAX ? __real_sl_channel_keep(channels, channel, tag, len) : NULL;
}

static uint32_t channel_of(const struct step *s)
{
    return s->what >> 3 & (CHANNELS - 1);
}

static size_t length_of(uint32_t value)
{
    static const uint32_t lengths[] = {0,    1,     SHM_INLINE_MAX, SHM_INLINE_MAX + 1,
                                       4096, 10000, 50000,          MESSAGE_MAX};

    return lengths[value % 8];
}

static void on_end(struct sl_req *req)
{
    unsigned *count = req->arg;

    sl_assert(++*count == 1);
}

static void we_send(const struct step *s)
{
    struct post *p = &us.sends[us.send_count];
    struct sl_buf buf = {.addr = us.bytes, .len = length_of(s->b), .channel = channel_of(s)};

    if (us.send_count == POSTS)
        return;
    p->req = (struct sl_req){.status = SL_PENDING, .done = on_end, .arg = &p->ended};
    us.send_count += sl_shm_ops.send(us.side.ep, &buf, s->a % 4, &p->req) >= 0;
}

static void we_receive(const struct step *s)
{
    struct post *p = &us.recvs[us.recv_count];

    if (us.recv_count == POSTS)
        return;
    p->req = (struct sl_req){.status = SL_PENDING, .done = on_end, .arg = &p->ended};
    p->sink = (struct sl_sink){.dst = us.bytes,
                               .len = length_of(s->b),
                               .tag = s->a % 4,
                               .channel = channel_of(s),
                               .granule = 1 + (s->c & 3),
                               .shorter = (s->c & 4) != 0};
    us.recv_count += sl_shm_ops.recv(us.side.ep, &p->sink, &p->req) >= 0;
}

static void we_open_or_close(const struct step *s)
{
    if (s->a & 1)
        sl_shm_ops.channel_open(us.side.ep, channel_of(s));
    else
        sl_shm_ops.channel_close(us.side.ep, channel_of(s));
}

/* ---- the peer ---- */

static bool peer_lives(void)
{
    return inside(&us.peer)->state == SHM_UP;
}

/* A whole cell, in its turn or (rarely) out of it. */
static void peer_puts(const struct step *s)
{
    struct shm_lane *lane = &inside(&us.peer)->tx;
    uint64_t pos = peer_pos + (s->a >= 0xf8 ? s->a - 0xf8 : 0);
    struct shm_cell *cell = &lane->cells[pos & lane->cell_mask];
    unsigned kind = s->what & 0x80 ? SHM_CELL_WITHDRAWN + (s->a & 1) : s->a % 5;
    uint32_t channel = s->what & 0x40 ? s->c : channel_of(s);

    cell->tag = s->b % 4;
    if (kind != SHM_CELL_INLINE) {
        cell->len = s->a & 0x20 ? (uint64_t)s->c << 32 : length_of(s->b >> 2);
        if (kind == SHM_CELL_LENT)
            cell->addr = s->a & 0x40 ? s->c : (uintptr_t)us.bytes;
        else if (s->a & 0x40)
            cell->off = s->c, cell->piece = s->c * 2654435761u >> (s->b & 31);
        else
            cell->off = s->c % 64 * SL_CACHE_LINE,
            cell->piece = (uint32_t)length_of(s->b >> 5) % 8193;
    }
    atomic_store_explicit(&cell->head, shm_cell_head(pos, kind, s->b >> 8, channel),
                          memory_order_release);
    peer_pos++;
}

/* Eight bytes, anywhere in its cells. */
static void peer_scribbles(const struct step *s)
{
    struct shm_lane *lane = &inside(&us.peer)->tx;
    size_t len = ((size_t)lane->cell_mask + 1) * sizeof(*lane->cells), off = s->c % (len - 8);
    uint64_t value = (uint64_t)s->a << (s->b & 63);

    memcpy((uint8_t *)lane->cells + off, &value, sizeof(value));
}

static void peer_takes(const struct step *s)
{
    struct shm_lane *lane = &inside(&us.peer)->rx;
    uint64_t sent = inside(&us.side)->tx_pos;

    atomic_store(lane->taken, s->a & 1   ? sent
                              : s->a & 2 ? (uint64_t)s->c << s->b % 40
                                         : sent - s->b % 4);
}

static void peer_offers(const struct step *s)
{
    atomic_store(&inside(&us.peer)->rx.offer->reads, s->a & 4 ? s->c : s->a >> 3 & 1);
}

/* Over the socket: bytes of the step itself, as many as they are. */
static void peer_speaks(const struct step *s, const uint8_t *more, size_t len)
{
    size_t room = s->b % 160;
    ssize_t sent = send(inside(&us.peer)->source.fd, more, len < room ? len : room,
                        MSG_DONTWAIT | MSG_NOSIGNAL);

    (void)sent; /* a full queue is no matter */
}

/* ---- */

static void pass(unsigned rounds)
{
    for (unsigned i = 0; i < rounds; i++)
        sl_shm_ops.progress(us.side.iface, 64);
}

static void run_step(const struct step *s, const uint8_t *more, size_t len)
{
    if (s->what % 8 >= 2 && !peer_lives())
        return;
    switch (s->what % 8) {
    case 0: we_send(s); break;
    case 1: we_receive(s); break;
    case 2:
    case 3: peer_puts(s); break;
    case 4: peer_scribbles(s); break;
    case 5: peer_takes(s); break;
    case 6: s->b & 0x8000 ? peer_speaks(s, more, len) : peer_offers(s); break;
    default: s->what & 0x40 ? we_open_or_close(s) : pass(1 + s->a % 8); break;
    }
}

static void check(void)
{
    for (unsigned i = 0; i < us.recv_count; i++)
        sl_assert(us.recvs[i].req.status != 0 || us.recvs[i].req.len <= us.recvs[i].sink.len);
    for (size_t i = 0; i < GUARD; i++)
        sl_assert(us.bytes[MESSAGE_MAX + i] == 0xe5);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    memset(&us, 0, sizeof(us));
    us.bytes = malloc(MESSAGE_MAX + GUARD);
    sl_assert(us.bytes != NULL);
    memset(us.bytes, 1, MESSAGE_MAX);
    memset(us.bytes + MESSAGE_MAX, 0xe5, GUARD);
    peer_pos = 0;
    side_open(&us.side);
    side_open(&us.peer);
    sl_shm_config_edit(&us.side.config)->ring_bytes =
        sl_shm_config_edit(&us.peer.config)->ring_bytes = 1; /* the least there is */
    sides_connect(&us.side, &us.peer);
    for (uint32_t c = 1; c < CHANNELS - 1; c++)
        sl_assert(sl_shm_ops.channel_open(us.side.ep, c) == 0);
    for (unsigned i = 0; i < STEPS_MAX && size >= STEP_BYTES; i++) {
        struct step s = {.what = data[0], .a = data[1], .b = (uint16_t)(data[2] | data[3] << 8)};

        memcpy(&s.c, data + 4, sizeof(s.c));
        data += STEP_BYTES;
        size -= STEP_BYTES;
        run_step(&s, data, size);
    }
    pass(16);
    check();
    side_close(&us.side);
    side_close(&us.peer);
    free(us.bytes);
    return 0;
}
