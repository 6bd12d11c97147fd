/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hostile peer of a verbs connection, over fake NICs: what it sends are sequences of well-formed
 * and odd frames, grants, writes and control messages, between sends and receives of ours, in any
 * order. Two bytes choose a step and its first value, six more its other values. Byte 0 of the
 * input: bit 0 is SLUICE_VERBS_FALLBACK=tcp, with which frames and writes may come over the
 * sideband, too.
 *
 * However it goes: nothing outside of messages is read or written, each request ends at most once,
 * a connection that is torn down leaves nothing behind, and one that is up hears what comes over
 * the sideband.
 */
#include "core/err.h"
#include "verbs/config.h"
#include "core/log.h"
#include "tests/unit/verbs/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEPS_MAX 48
#define STEP_BYTES 8
#define SENDS 8
#define MESSAGE_MAX 200000
#define SECRET 0xe5 /* beside what is sent; no message holds it */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct step {
    uint8_t what, a;
    uint16_t b, c, d;
};

static struct {
    uint8_t *out, *in; /* of all messages, with room behind that nobody may touch */
    struct sl_buf bufs[SENDS];
    struct sl_sink sinks[SENDS];
    struct sl_req sends[SENDS], recvs[SENDS];
    unsigned ended[2 * SENDS];
    unsigned send_count, recv_count;
} us;

/* Lengths around what matters: nothing, eager, one piece, several. */
static size_t length_of(uint16_t value)
{
    static const uint32_t lengths[] = {0,          1, 4096, 4097, 65536, 100000, MESSAGE_MAX - 1,
                                       MESSAGE_MAX};

    return lengths[value % 8];
}

static bool fallback;

static void no_log(void *arg, enum sl_log_level level, const char *area, const char *line)
{
    (void)arg, (void)level, (void)area, (void)line;
}

static void on_end(struct sl_req *req)
{
    unsigned *count = req->arg;

    sl_assert(++*count == 1);
}

/* The channel that a step names: mostly 0. Channels 1 and 2 we open and close. */
static uint32_t channel_of(const struct step *s)
{
    static const uint32_t ids[16] = {[9] = 1, 1, 1, 2, 2, 3, UINT32_MAX};

    return ids[s->a >> 4];
}

/* What is pending there ends before we are back. */
static void we_close(const struct step *s)
{
    uint32_t channel = channel_of(s);

    if ((s->b & 1) != 0 && channel != 0)
        (void)sl_verbs_ops.channel_open(world[0].ep, channel);
    else if ((s->b & 6) == 0)
        sl_verbs_ops.channel_close(world[0].ep, channel);
    else
        return;
    for (unsigned i = 0; i < SENDS && (s->b & 1) == 0 && channel != 0; i++) {
        sl_assert(i >= us.send_count || us.bufs[i].channel != channel || us.sends[i].status <= 0);
        sl_assert(i >= us.recv_count || us.sinks[i].channel != channel || us.recvs[i].status <= 0);
    }
}

static void we_send(const struct step *s)
{
    unsigned i = us.send_count;

    if (i == SENDS)
        return;
    us.bufs[i] = (struct sl_buf){.addr = us.out, .len = length_of(s->b), .channel = channel_of(s)};
    us.sends[i] = (struct sl_req){.status = SL_PENDING, .done = on_end, .arg = &us.ended[i]};
    if (sl_verbs_ops.send(world[0].ep, &us.bufs[i], s->a % 4, &us.sends[i]) >= 0)
        us.send_count++;
}

static void we_receive(const struct step *s)
{
    unsigned i = us.recv_count;

    if (i == SENDS)
        return;
    us.sinks[i] = (struct sl_sink){.dst = us.in,
                                   .len = length_of(s->b),
                                   .tag = s->a % 4,
                                   .channel = channel_of(s),
                                   .granule = 1,
                                   .shorter = (s->c & 1) != 0};
    us.recvs[i] =
        (struct sl_req){.status = SL_PENDING, .done = on_end, .arg = &us.ended[SENDS + i]};
    if (sl_verbs_ops.recv(world[0].ep, &us.sinks[i], &us.recvs[i]) >= 0)
        us.recv_count++;
}

/* ---- the peer ---- */

static bool peer_lives(void)
{
    return world_ep(1)->state == SL_MP_CONN_UP && !world_ep(1)->failing;
}

/* A frame of that kind with the next number in order, or with an odd one. */
static struct sl_mp_frame *frame(uint8_t kind, const struct step *s, struct sl_mp_tx_frame **out)
{
    struct sl_mp_frame *header;

    *out = peer_lives() ? sl_mp_frame_new(world_ep(1), kind, channel_of(s), s->a % 16) : NULL;
    if (*out == NULL)
        return NULL;
    header = (struct sl_mp_frame *)(void *)(*out)->bytes;
    header->tag = s->b % 4;
    if ((s->d & 0xf000) == 0xf000)
        header->fseq += s->d & 0xff;
    if ((s->d & 0xf000) == 0xe000)
        header->credits = s->d & 0xff;
    return header;
}

/* ---- the peer, over the sideband ---- */

/* As docs/wire.md draws them. */
struct unit {
    uint32_t kind, len, grant, spare;
    uint64_t off;
};

#define UNIT_FRAME 1
#define UNIT_WRITE 2
#define UNIT_END 3
#define UNIT_HAVE 4
#define UNIT_TAG UINT64_C(0x756e6974)
#define BYTES_TAG UINT64_C(0x6279746573)
#define MESSAGES 256

/* What the sideband was given is lent to it until the end. */
static struct {
    struct sl_req req;
    void *bytes;
} messages[MESSAGES];
static unsigned message_count;

/* False: the sideband takes nothing more now. */
static bool message(const void *bytes, size_t len, uint64_t tag)
{
    struct sl_ep *sideband = peer_lives() ? world_ep(1)->sideband : NULL;
    unsigned i = message_count;

    /* Where it has control messages alone, nobody receives what else comes. */
    if (sideband == NULL || i == MESSAGES || sideband->iface->handler.ctrl_only)
        return false;
    messages[i].bytes = malloc(len + 1);
    sl_assert(messages[i].bytes != NULL);
    memcpy(messages[i].bytes, bytes, len);
    messages[i].req = (struct sl_req){.status = SL_PENDING};
    struct sl_buf buf = {.addr = messages[i].bytes, .len = len};

    message_count++;
    return sideband->iface->ops->send(sideband, &buf, tag, &messages[i].req) >= 0;
}

static bool unit(const struct unit *unit, const void *bytes)
{
    return message(unit, sizeof(*unit), UNIT_TAG) &&
           (unit->len == 0 || bytes == NULL || message(bytes, unit->len, BYTES_TAG));
}

static void frame_by_unit(struct sl_mp_tx_frame *tx, uint32_t len)
{
    (void)unit(&(struct unit){.kind = UNIT_FRAME, .len = len}, tx->bytes);
    sl_mp_frame_free(&world_iface(1)->mp, tx);
}

/* An id that was granted, in turn by n; or one that may have been. */
static uint32_t granted_id(unsigned n, uint64_t *len)
{
    const struct sl_mp_conn *ep = world_ep(0);
    uint32_t ids[SL_MP_RX_CTS_MAX], count = 0;

    *len = 4096;
    for (uint32_t i = 0; i < SL_MP_RX_CTS_MAX; i++)
        if (ep->rx_cts[i].used)
            ids[count++] = (uint32_t)ep->rx_cts[i].generation * SL_MP_RX_CTS_MAX + i;
    if (count == 0)
        return n;
    *len = ep->rx_cts[ids[n % count] % SL_MP_RX_CTS_MAX].len;
    return ids[n % count];
}

static void peer_writes_by_unit(const struct step *s)
{
    struct unit u = {.kind = UNIT_WRITE};
    uint64_t len;

    u.grant = granted_id(s->c & 7, &len) ^ (s->c >> 3 & 1 ? (uint32_t)s->c >> 4 : 0);
    uint64_t offs[] = {0, len / 2, len, len + 1, UINT64_MAX, UINT64_C(1) << 40, UINT64_MAX - len,
                       1};
    uint64_t lens[] = {len,        len / 2, len - len / 2, len + 1, 1, length_of(s->d >> 4),
                       UINT32_MAX, 0};

    u.off = offs[s->b % 8];
    u.len = (uint32_t)lens[s->d % 8];
    for (unsigned i = 0; i < 1u + (s->b >> 3 & 1); i++) /* the same once more */
        (void)unit(&u, u.len <= MESSAGE_MAX ? us.out : NULL);
}

/* Units, whole and half, in and out of order. */
static void peer_units(const struct step *s)
{
    struct unit u = {.kind = UNIT_FRAME, .len = (uint32_t)length_of(s->b)};

    switch (s->a % 8) {
    case 0:
        if ((s->b & 1) != 0)
            (void)unit(&(struct unit){.kind = UNIT_HAVE, .off = s->c % 8}, NULL);
        else
            (void)unit(&(struct unit){.kind = UNIT_END}, NULL);
        break;
    case 1:
    case 2:
    case 3: peer_writes_by_unit(s); break;
    case 4: (void)unit(&u, us.out); break; /* a frame of ones */
    case 5:
        u.kind = s->c;
        (void)unit(&u, (s->d & 1) != 0 ? us.out : NULL);
        break;
    case 6: (void)message(us.out, length_of(s->b), BYTES_TAG); break;
    default: (void)message(&u, s->c % (sizeof(u) + 1), s->d & 1 ? UNIT_TAG : s->d);
    }
}

/* By a path, or over the sideband. */
static void post(struct sl_mp_tx_frame *tx, uint32_t payload, const struct step *s)
{
    if (fallback && (s->d & 0x200) != 0)
        frame_by_unit(tx, SL_MP_FRAME_BYTES + payload);
    else
        sl_mp_frame_post(world_ep(1), tx, payload);
}

/* ---- the peer, in frames ---- */

static void peer_grants(const struct step *s)
{
    const struct sl_verbs_iface *iface = world_iface(1);
    struct sl_mp_cts told = {
        .addr = (uintptr_t)iface->staging.bytes,
        .id = s->d & 0xf,
        .keys = {.count = (uint8_t)iface->mp.rail_count, .rails = iface->mp.staging_rails}};
    struct sl_mp_tx_frame *tx;
    struct sl_mp_frame *header = frame(SL_MP_CTS, s, &tx);

    if (header == NULL)
        return;
    header->flags = (uint8_t)(s->d >> 4 & 7);
    told.keys.age = (uint8_t)(s->d >> 7 & 1);
    header->value = length_of(s->b >> 2);
    told.off = s->c % 4 == 3 ? UINT64_MAX - (s->c >> 2) : (uint64_t)(s->c >> 2) * 16;
    told.len = s->d >> 6 & 1 ? length_of(s->b >> 5) : (uint64_t)(s->b >> 5) * 64;
    if ((s->d >> 7 & 3) == 3) /* what honest peers say most */
        told.off = 0, told.len = header->value;
    for (unsigned i = 0; i < iface->mp.rail_count; i++)
        told.rkeys[i] = iface->staging.mr[i]->rkey;
    sl_mp_cts_write(&told, told.rkeys, tx->bytes + SL_MP_FRAME_BYTES);
    post(tx, (uint32_t)sl_mp_cts_size(told.keys.count), s);
}

static void peer_sends(const struct step *s)
{
    static const uint8_t kinds[] = {SL_MP_EAGER, SL_MP_RTS, SL_MP_DROP, SL_MP_CREDIT};
    struct sl_mp_tx_frame *tx;
    struct sl_mp_frame *header = frame(kinds[s->c % 4], s, &tx);
    uint32_t payload = 0;

    if (header == NULL)
        return;
    if (header->kind == SL_MP_EAGER) {
        payload = (uint32_t)length_of(s->b >> 2) % (world_iface(1)->mp.eager_bytes + 1);
        header->value = payload;
        memset(tx->bytes + SL_MP_FRAME_BYTES, 1, payload);
    } else {
        header->value = length_of(s->b >> 2);
        if ((s->b & 0x8000) != 0)
            header->value = (uint64_t)s->c << 40;
    }
    post(tx, payload, s);
}

/* A write to what we have granted, or have not, with any grant's number. */
static void peer_writes(const struct step *s)
{
    struct sl_mp_path *path = peer_lives() ? world_ep(1)->frame_path : NULL;
    struct sl_verbs_iface *ours = world_iface(0), *theirs = world_iface(1);

    if (path == NULL || path->rail == NULL || path->failing || !sl_mp_path_has_room(path))
        return;
    struct sl_verbs_rail *rail = sl_verbs_path_of(path)->rail;
    struct ibv_sge sge = {.addr = (uintptr_t)theirs->staging.bytes,
                          .length = (uint32_t)length_of(s->b),
                          .lkey = theirs->staging.mr[rail->base.idx]->lkey};
    struct ibv_send_wr wr = {.wr_id = 0,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
                             .send_flags = IBV_SEND_SIGNALED},
                       *bad;

    wr.imm_data = htobe32(sl_mp_imm(path->posted++ + (s->d == 0xffff), s->a));
    wr.wr.rdma.remote_addr = (uintptr_t)ours->staging.bytes + (s->c & 1 ? (size_t)s->c * 16 : 0);
    wr.wr.rdma.rkey = ours->staging.mr[path->remote_rail]->rkey;
    (void)ibv_post_send(sl_verbs_path_of(path)->qp, &wr, &bad);
}

/* A control message, by the sideband or in a frame. */
static void peer_records(const struct step *s, const uint8_t *more, size_t len)
{
    struct sl_mp_control record = {.kind = s->a % 15,
                                   .path = s->b & 7,
                                   .epoch = s->b >> 3 & 0xff,
                                   .seq = world_ep(0)->control_in + (s->b >> 11),
                                   .handled = s->c};
    struct sl_ep *sideband = world_ep(1)->sideband;
    struct sl_mp_tx_frame *tx = NULL;
    size_t size;

    if ((s->d & 1) != 0 && record.epoch < 256) /* the epoch that is now */
        record.epoch = world_ep(0)->path_count > 0 ? world_ep(0)->paths[0]->epoch : 0;
    if (record.kind == SL_MP_CONTROL_CALLER)
        record.epoch %= SL_CTRL_MAX + 2;
    if (record.kind == SL_MP_CONTROL_HELLO)
        record.hello = (struct sl_mp_hello){.version = SL_MP_VERSION,
                                            .eager_bytes = s->c,
                                            .nonce = s->d,
                                            .rail_count = s->d >> 8 & 31,
                                            .first = (uint8_t)(s->d >> 13 & 1) * SL_MP_HELLO_RAILS,
                                            .fallback = s->d & 1};
    else if (record.kind == SL_MP_CONTROL_CLOSE || record.kind == SL_MP_CONTROL_CLOSED) {
        record.close.channel = channel_of(s);
        record.close.count = s->c % 8 == 7 ? UINT64_MAX - s->c : s->c >> 3;
    } else if (record.kind == SL_MP_CONTROL_SIDEBAND_OVER) {
        record.sideband.before = s->c % 4;
        record.sideband.arrived = s->c >> 2 & 7;
    } else if (len > 0)
        memcpy(&record.offer, more, len < sizeof(record.offer) ? len : sizeof(record.offer));
    size = sl_mp_control_size(&record);
    if (sideband == NULL || size == 0 || size > sizeof(record) || !peer_lives())
        return;
    if ((s->d & 2) == 0) {
        (void)sideband->iface->ops->ctrl(sideband, &record, size);
        return;
    }
    struct sl_mp_frame *header = frame(SL_MP_CONTROL, s, &tx);

    if (header == NULL)
        return;
    world_ep(1)->fseq_out--; /* these have none */
    header->value = size;
    memcpy(tx->bytes + SL_MP_FRAME_BYTES, &record, size);
    post(tx, (uint32_t)size, s);
}

/* ---- */

static void pass(unsigned rounds, bool peer_too)
{
    for (unsigned i = 0; i < rounds; i++) {
        int n = 0;

        fake_ibv_run(world_fake, 3);
        n += world[0].iface->ops->progress(world[0].iface, 64);
        if (peer_too && peer_lives())
            n += world[1].iface->ops->progress(world[1].iface, 64);
        loop_pass(world_loop, n != 0 ? 2000 : 100000);
    }
}

/* Our ports go, or return, and the time passes after which data goes over the sideband. */
static void ports(const struct step *s)
{
    for (unsigned i = 0; i < 2; i++)
        fake_ibv_port_set(world_fake, i, 1, (s->a & 1) != 0 ? IBV_PORT_DOWN : IBV_PORT_ACTIVE);
    pass(1, false);
    loop_pass(world_loop, s->b % 8 * 100 * SL_NS_PER_MS);
    pass(1 + s->c % 64, (s->a & 2) != 0);
}

static void run_step(const struct step *s, const uint8_t *more, size_t len)
{
    switch (s->what % 11) {
    case 0: we_send(s); break;
    case 1: we_receive(s); break;
    case 2:
    case 3: peer_grants(s); break;
    case 4: peer_sends(s); break;
    case 5: peer_writes(s); break;
    case 6: peer_records(s, more, len); break;
    case 8: peer_units(s); break;
    case 9: ports(s); break;
    case 10: we_close(s); break;
    default: pass(1 + s->a % 32, false); break;
    }
}

static void check(void)
{
    const struct sl_verbs_iface *theirs = world_iface(1);

    sl_assert(memchr(theirs->staging.bytes, SECRET, theirs->staging.len) == NULL);
    for (unsigned i = 0; i < us.recv_count; i++)
        sl_assert(us.recvs[i].status != 0 || us.recvs[i].len <= us.sinks[i].len);
    for (size_t i = MESSAGE_MAX; i < MESSAGE_MAX + 64; i++)
        sl_assert(us.in[i] == SECRET);
}

static bool we_hear(void)
{
    const struct sl_mp_conn *ep = world_ep(0);

    return ep->state == SL_MP_CONN_UP && !ep->failing && !ep->left && ep->sideband_up &&
           ep->fallback != NULL;
}

/* Whatever came before: the end of units is answered, or could not come and ended all of it. */
static void check_hearing(void)
{
    const struct sl_mp_conn *ep = world_ep(0);
    uint32_t seq = ep->control_out;

    if (!we_hear() || !peer_lives() || !unit(&(struct unit){.kind = UNIT_END}, NULL))
        return;
    pass(64, false);
    while (seq != ep->control_out && ep->unhandled[seq % SL_MP_CONTROLS] != NULL &&
           ep->unhandled[seq % SL_MP_CONTROLS]->kind != SL_MP_CONTROL_SIDEBAND_DONE)
        seq++;
    sl_assert(!we_hear() || seq != ep->control_out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fallback = size > 0 && (data[0] & 1) != 0;
    message_count = 0;
    sl_log_set_sink(no_log, NULL);
    memset(&us, 0, sizeof(us));
    us.out = malloc(2 * MESSAGE_MAX);
    us.in = malloc(MESSAGE_MAX + 64);
    sl_assert(us.out != NULL && us.in != NULL);
    memset(us.out, 1, MESSAGE_MAX);
    memset(us.out + MESSAGE_MAX, SECRET, MESSAGE_MAX);
    memset(us.in, 0, MESSAGE_MAX);
    memset(us.in + MESSAGE_MAX, SECRET, 64);
    world_prepare(NULL);
    for (unsigned i = 0; i < 2 && fallback; i++)
        sl_verbs_config_edit(&world[i].config)->mp.fallback = SL_MP_FALLBACK_TCP;
    world_join();
    if (size > 0)
        data++, size--;
    for (unsigned i = 0; i < STEPS_MAX && size >= STEP_BYTES; i++) {
        struct step s = {data[0], data[1], (uint16_t)(data[2] | data[3] << 8),
                         (uint16_t)(data[4] | data[5] << 8), (uint16_t)(data[6] | data[7] << 8)};

        data += STEP_BYTES;
        size -= STEP_BYTES;
        run_step(&s, data, size);
    }
    pass(64, false);
    check_hearing();
    check();
    for (unsigned i = 0; i < 2; i++)
        world[i].iface->ops->ep_destroy(world[i].ep);
    for (unsigned i = 0; i < 2; i++)
        world[i].iface->ops->close(world[i].iface);
    sl_assert(loop_misuse(world_loop) == NULL);
    fake_ibv_destroy(world_fake);
    loop_destroy(world_loop);
    sl_ibv_replace(NULL, NULL);
    for (unsigned i = 0; i < message_count; i++)
        free(messages[i].bytes);
    sl_log_set_sink(NULL, NULL);
    free(us.out);
    free(us.in);
    return 0;
}
