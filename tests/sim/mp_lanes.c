/* SPDX-License-Identifier: Apache-2.0 */
/* Simulated lanes: their life, what is posted to them, and what they tell. mp_wire.c moves the
 * packets. */
#include "tests/sim/mp_lanes_inside.h"

#include "core/config.h"
#include "core/registry.h"
#include "multipath/conn.h"
#include "multipath/control_queue.h"
#include "multipath/message.h"
#include "multipath/setup.h"
#include "multipath/stats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STAGING_CHUNKS 4
#define MAGIC 0x5353u

static struct lanes *the;

static struct lanes_iface *iface_of(struct sl_mp_iface *iface)
{
    return (struct lanes_iface *)iface;
}

void lanes_wrong(struct lanes *lanes, const char *fmt, ...)
{
    va_list args;

    if (lanes->misuse[0] != '\0')
        return;
    va_start(args, fmt);
    vsnprintf(lanes->misuse, sizeof(lanes->misuse), fmt, args);
    va_end(args);
}

static bool is_lane(const struct lane *lane, unsigned side, uint32_t number)
{
    return lane != NULL && lane->open && lane->side == side && lane->number == number;
}

struct lane *lanes_find(struct lanes *lanes, unsigned side, uint32_t number)
{
    for (unsigned i = 0; i < lanes->lanes_end; i++)
        if (is_lane(lanes->lane[i], side, number))
            return lanes->lane[i];
    return NULL;
}

struct lane *lanes_peer(struct lane *lane)
{
    struct lanes *lanes = lane->lanes;

    if (is_lane(lanes->lane[lane->peer_place], !lane->side, lane->peer))
        return lanes->lane[lane->peer_place];
    for (unsigned i = 0; i < lanes->lanes_end; i++)
        if (is_lane(lanes->lane[i], !lane->side, lane->peer)) {
            lane->peer_place = i;
            return lanes->lane[i];
        }
    return NULL;
}

/* ---- receive buffers ---- */

int lanes_buffer_take(struct lanes_rail *rail)
{
    return rail->free_count == 0 ? -1 : (int)rail->free[--rail->free_count];
}

static void release(struct sl_mp_rail *base, uint32_t buffer)
{
    struct lanes_rail *rail = (struct lanes_rail *)base;

    if (buffer >= rail->buffer_count || !rail->taken[buffer])
        lanes_wrong(rail->iface->lanes, "buffer %u of %s comes back twice", buffer, base->name);
    rail->taken[buffer] = false;
    memset(rail->bytes + (size_t)buffer * rail->iface->mp.slot_bytes, 0xdd,
           rail->iface->mp.slot_bytes);
    rail->free[rail->free_count++] = buffer;
}

static bool is_short(const struct sl_mp_path *path)
{
    const struct lanes_rail *rail = (const struct lanes_rail *)path->rail;

    return rail->free_count < rail->buffer_count / 2;
}

/* ---- a lane's life ---- */

static int check(const struct sl_mp_control *control)
{
    if (control->kind == SL_MP_CONTROL_HELLO && control->hello.rails[0].address[0] != 'S')
        return sl_fail(-EBADMSG, "not a simulated rail");
    return 0;
}

static int provide(struct sl_mp_iface *iface, unsigned conns)
{
    (void)iface, (void)conns;
    return 0;
}

static int plan(struct sl_mp_conn *conn, struct sl_mp_paths *out)
{
    const struct lanes_iface *iface = iface_of(conn->iface);
    unsigned theirs = conn->peer.rail_count, ours = conn->iface->rail_count;
    unsigned most = ours > theirs ? ours : theirs;

    for (unsigned i = 0; i < most * iface->with.paths && out->count < SL_MP_PATHS_MAX; i++)
        out->pairs[out->count++] =
            (struct sl_mp_pair){(uint8_t)(i % ours), (uint8_t)((i + iface->with.shift) % theirs)};
    return 0;
}

/* Is it none of those that this side lists? */
static bool is_spare(const struct sl_mp_path *path)
{
    struct sl_mp_paths paths = {0};
    unsigned turn = path->turn;

    plan(path->conn, &paths);
    for (unsigned i = 0; i < paths.count; i++)
        if (paths.pairs[i].local == path->rail->idx && paths.pairs[i].remote == path->remote_rail &&
            turn-- == 0)
            return false;
    return path->conn->iface->settings.listed;
}

static void describe(const struct sl_mp_rail *rail, struct sl_mp_rail_info *out)
{
    *out = (struct sl_mp_rail_info){.address = {'S', (uint8_t)rail->idx}, .usable = rail->usable};
}

static int create(struct sl_mp_conn *conn, struct sl_mp_path **out)
{
    struct lanes *lanes = iface_of(conn->iface)->lanes;
    struct lane *lane = calloc(1, sizeof(*lane));
    unsigned i = 0;

    while (i < LANES_MAX && lanes->lane[i] != NULL)
        i++;
    sl_assert(lane != NULL && i < LANES_MAX);
    lanes->lane[i] = lane;
    lanes->lanes_end = i < lanes->lanes_end ? lanes->lanes_end : i + 1;
    lane->lanes = lanes;
    lane->side = iface_of(conn->iface)->side;
    lane->base.lanes = &lanes_table;
    lane->base.depth = 24;
    lane->stuck_ns = SL_NEVER;
    sl_list_init(&lane->out);
    sl_list_init(&lane->arrivals);
    *out = &lane->base;
    return 0;
}

static void packet_free(struct lane_packet *packet)
{
    free(packet->bytes);
    free(packet);
}

void lanes_packets_free(struct sl_node *list)
{
    struct sl_node *node;

    while ((node = sl_list_pop_front(list)) != NULL)
        packet_free(sl_container_of(node, struct lane_packet, link));
}

/* What was posted last never left; a part of the rest is on the wire, where nobody gets it back. */
void lanes_flush(struct lane *lane)
{
    unsigned leaves = (unsigned)sl_rng_below(&lane->lanes->rng, 6);
    struct sl_node *node;

    while (leaves-- > 0 && lane->connected && (node = sl_list_pop_front(&lane->out)) != NULL) {
        struct lane_packet *packet = sl_container_of(node, struct lane_packet, link);

        packet->to_side = !lane->side;
        packet->to = lane->peer;
        sl_list_push_back(&lane->lanes->wire, &packet->link);
    }
    lanes_packets_free(&lane->out);
}

static void forget(struct lane *lane)
{
    struct sl_node *node;

    lanes_packets_free(&lane->out);
    while ((node = sl_list_pop_front(&lane->arrivals)) != NULL) {
        struct lane_packet *packet = sl_container_of(node, struct lane_packet, link);

        if (packet->buffer >= 0)
            release(lane->base.rail, (uint32_t)packet->buffer);
        packet_free(packet);
    }
}

static void close_lane(struct sl_mp_path *path)
{
    struct lane *lane = (struct lane *)path;

    if (!lane->open)
        return;
    forget(lane);
    lane->open = lane->connected = false;
    lane->lanes->open_count--;
}

static void destroy(struct sl_mp_path *path)
{
    struct lane *lane = (struct lane *)path;

    close_lane(path);
    for (unsigned i = 0; i < lane->lanes->lanes_end; i++)
        if (lane->lanes->lane[i] == lane)
            lane->lanes->lane[i] = NULL;
    free(lane);
}

static bool is_refused(struct lanes_iface *iface)
{
    iface->refuse -= iface->refuse > 0;
    return iface->refuse > 0;
}

static int open_lane(struct sl_mp_path *path, const struct sl_mp_rail_info *remote,
                     const struct sl_mp_offer *theirs)
{
    struct lane *lane = (struct lane *)path;
    struct lanes_rail *rail = (struct lanes_rail *)path->rail;

    (void)theirs;
    close_lane(path);
    rail->iface->mp.opens -= rail->iface->mp.opens > 0;
    path->spare = is_spare(path) || path->rail->is_far;
    if (remote->address[0] != 'S' || remote->address[1] != path->remote_rail)
        lanes_wrong(lane->lanes, "a lane is opened to rail %u, described as %u", path->remote_rail,
                    remote->address[1]);
    if (is_refused(rail->iface) || rail->dead)
        return sl_fail(-ENOMEM, "%s has no lane left", path->rail->name);
    lane->number = ++lane->lanes->last_number;
    lane->open = true;
    lane->connected = lane->failed = lane->told = lane->stopped = false;
    lane->lost = LANES_NOTHING;
    lane->peer = lane->delivered = lane->acked = lane->shown = 0;
    lane->stuck_ns = SL_NEVER;
    lane->signalled = 0;
    lane->due_ns = SL_NEVER;
    lane->free_ns = 0;
    lane->tries = 0;
    lane->lanes->open_count++;
    return 0;
}

static void offer(const struct sl_mp_path *path, struct sl_mp_offer *out)
{
    const struct lane *lane = (const struct lane *)path;

    memcpy(out->lane, &lane->number, sizeof(lane->number));
}

static int connect_lane(struct sl_mp_path *path, const struct sl_mp_offer *theirs)
{
    struct lane *lane = (struct lane *)path;

    memcpy(&lane->peer, theirs->lane, sizeof(lane->peer));
    if (is_refused(((struct lanes_rail *)path->rail)->iface))
        return sl_fail(-EHOSTUNREACH, "%s has no route to the peer", path->rail->name);
    lane->connected = true;
    path->nominal_ps = 100;
    path->probe_bytes = LANES_PACKET;
    path->repeat_ns = lane->lanes->repeat_ns;
    return 0;
}

/* Some can, some not. */
static int route_lane(struct sl_mp_path *path)
{
    struct lane *lane = (struct lane *)path;

    if (!lane->open || !lane->connected || lane->stopped)
        lanes_wrong(lane->lanes, "a lane that is not connected is to take another route");
    return (lane->number + (unsigned)path->label) % 3 == 0 ? 0 : -ENOTSUP;
}

/* What arrived is told, even while completions are held; the sender hears no more from here. */
static void stop(struct sl_mp_path *path)
{
    struct lane *lane = (struct lane *)path;

    if (!lane->open || lane->stopped)
        return;
    lane->stopped = true;
    lanes_flush(lane);
    if (!((struct lanes_rail *)path->rail)->dead)
        while (lanes_show(lane, true))
            ;
    lane->told = true;
}

static unsigned poll_rail(struct sl_mp_path *path)
{
    return lanes_rail_show((struct lanes_rail *)path->rail, 64);
}

/* ---- posting ---- */

static struct lane_packet *packet_new(struct lane *lane, const uint8_t *bytes, uint32_t len,
                                      uint32_t target, bool signal)
{
    struct lane_packet *packet = calloc(1, sizeof(*packet));

    sl_assert(packet != NULL && lane->base.posted != 0);
    packet->bytes = malloc(len + 1);
    sl_assert(packet->bytes != NULL);
    memcpy(packet->bytes, bytes, len);
    packet->lent = bytes;
    packet->len = len;
    packet->number = lane->base.posted - 1;
    packet->imm = sl_mp_imm(packet->number, target);
    packet->buffer = -1;
    if (!lane->open || !lane->connected || lane->stopped)
        lanes_wrong(lane->lanes, "something is posted to a lane that is not connected");
    if (lane->base.posted - lane->base.retired > lane->base.depth)
        lanes_wrong(lane->lanes, "%u are posted to a lane of depth %u",
                    lane->base.posted - lane->base.retired, lane->base.depth);
    lane->signalled &= ~(UINT64_C(1) << packet->number % 64);
    lane->signalled |= (uint64_t)signal << packet->number % 64;
    if (lane->failed) {
        packet_free(packet); /* it is flushed, and its sender hears of the failure */
        return NULL;
    }
    sl_list_push_back(&lane->out, &packet->link);
    return packet;
}

static void post(struct sl_mp_path *path, const struct sl_mp_tx_frame *frame, bool signal)
{
    packet_new((struct lane *)path, frame->bytes, frame->len, 0, signal);
}

static void write_piece(struct sl_mp_path *path, const struct sl_mp_piece *piece)
{
    const struct sl_mp_cts *cts = &piece->cts->cts;
    struct lane_packet *packet =
        packet_new((struct lane *)path, sl_mp_piece_bytes(path, piece), piece->len, cts->id, true);

    if (piece->chunk != SL_MP_NO_CHUNK && path->conn->iface->everywhere != NULL)
        lanes_wrong(((struct lane *)path)->lanes, "a piece is copied though the lane reaches all");
    if (packet == NULL)
        return;
    packet->is_write = true;
    packet->addr = cts->addr + piece->off;
    packet->rkey = cts->rkeys[path->remote_rail];
}

static void name(const struct sl_mp_path *path, char *out, size_t cap)
{
    snprintf(out, cap, "%s > %u", path->rail->name, path->remote_rail);
}

const struct sl_mp_lanes lanes_table = {
    .check = check,
    .provide = provide,
    .plan = plan,
    .describe = describe,
    .create = create,
    .destroy = destroy,
    .open = open_lane,
    .offer = offer,
    .connect = connect_lane,
    .stop = stop,
    .route = route_lane,
    .close = close_lane,
    .post = post,
    .write = write_piece,
    .release = release,
    .is_short = is_short,
    .poll = poll_rail,
    .name = name,
};

/* ---- interfaces ---- */

static struct lanes_region *region_add(struct lanes_iface *iface, void *addr, size_t len)
{
    struct lanes_region *region = calloc(1, sizeof(*region));

    sl_assert(region != NULL);
    region->base.len = len;
    region->addr = addr;
    for (unsigned i = 0; i < LANES_RAILS; i++)
        region->base.rkeys[i] = ++iface->lanes->last_number * 16 + i;
    region->base.rails = (uint16_t)((1u << iface->with.rails) - 1);
    sl_list_push_back(&iface->regions, &region->link);
    return region;
}

static int user_reg(void *arg, const struct sl_mem *mem, void **out)
{
    *out = region_add(arg, mem->addr, mem->len);
    return 0;
}

static void user_dereg(void *arg, void *handle)
{
    struct lanes_region *region = handle;

    (void)arg;
    sl_list_remove(&region->link);
    free(region);
}

static int mr_reg(struct sl_iface *base, const struct sl_mem *mem, struct sl_mr **out,
                  struct sl_key *key)
{
    struct sl_mem_region *region;
    int err = sl_mem_cache_get_as(&sl_mp_iface_of(base)->mem, mem, &region);

    if (err != 0)
        return err;
    if (key != NULL)
        key->len = 0;
    *out = (struct sl_mr *)region;
    return 0;
}

static void mr_dereg(struct sl_iface *base, struct sl_mr *mr)
{
    sl_mem_cache_put(&sl_mp_iface_of(base)->mem, (struct sl_mem_region *)mr);
}

static void rail_open(struct lanes_iface *iface, unsigned i)
{
    struct lanes_rail *rail = &iface->rails[i];

    snprintf(rail->name, sizeof(rail->name), "%c%u", 'a' + iface->side, i);
    rail->base = (struct sl_mp_rail){.name = rail->name, .idx = i, .usable = true};
    rail->base.is_far = (iface->with.far >> i & 1) != 0;
    rail->iface = iface;
    rail->buffer_count = rail->free_count = iface->with.buffers;
    rail->bytes = malloc((size_t)rail->buffer_count * iface->mp.slot_bytes);
    sl_assert(rail->bytes != NULL && rail->buffer_count <= LANES_BUFFERS);
    for (uint32_t b = 0; b < rail->buffer_count; b++)
        rail->free[b] = b;
    iface->mp.rails[iface->mp.rail_count++] = &rail->base;
}

static int open_iface(struct sl_worker *worker, const struct sl_device *dev,
                      const struct sl_handler *handler, struct sl_iface **out)
{
    struct lanes_iface *iface = &the->iface[worker->rank];
    const struct sl_mem_device device = {.reg = user_reg, .dereg = user_dereg, .arg = iface};
    struct sl_handler side = sl_mp_sideband_handler(&iface->with.settings);
    size_t staging = (size_t)STAGING_CHUNKS * SL_MP_CHUNK_BYTES;

    (void)dev;
    iface->lanes = the;
    iface->side = (unsigned)worker->rank;
    iface->mp.base = (struct sl_iface){.ops = sl_transport_complete(&lanes_ops, &iface->ops),
                                       .worker = worker,
                                       .handler = *handler};
    iface->mp.lanes = &lanes_table;
    iface->mp.settings = iface->with.settings;
    iface->mp.settings.magic = MAGIC;
    iface->mp.eager_bytes = iface->with.eager_bytes;
    iface->mp.probe_bytes = LANES_PACKET;
    sl_list_init(&iface->regions);
    sl_mem_cache_init(&iface->mp.mem, &device, 0, 0);
    sl_mp_iface_init(&iface->mp);
    for (unsigned i = 0; i < iface->with.rails; i++)
        rail_open(iface, i);
    iface->mp.frame_bytes = malloc((size_t)iface->mp.slot_bytes * SL_MP_FRAME_PLACES);
    iface->mp.staging_bytes = malloc(staging);
    sl_assert(iface->mp.frame_bytes != NULL && iface->mp.staging_bytes != NULL);
    iface->staging = region_add(iface, iface->mp.staging_bytes, staging);
    iface->mp.staging_rails = iface->staging->base.rails;
    memcpy(iface->mp.staging_rkeys, iface->staging->base.rkeys, sizeof(iface->mp.staging_rkeys));
    iface->everywhere = iface->with.everywhere ? region_add(iface, NULL, SIZE_MAX) : NULL;
    iface->mp.everywhere = iface->everywhere != NULL ? &iface->everywhere->base : NULL;
    *out = &iface->mp.base;
    int err = loop_ops.open(worker, NULL, &side, &iface->mp.sideband);

    return err != 0 ? err : sl_mp_iface_open(&iface->mp, STAGING_CHUNKS);
}

static void close_iface(struct sl_iface *base)
{
    struct lanes_iface *iface = iface_of(sl_mp_iface_of(base));

    sl_mem_cache_fini(&iface->mp.mem);
    user_dereg(iface, iface->staging);
    if (iface->everywhere != NULL)
        user_dereg(iface, iface->everywhere);
    sl_mp_iface_fini(&iface->mp);
    if (iface->mp.sideband != NULL)
        iface->mp.sideband->ops->close(iface->mp.sideband);
    free(iface->mp.frame_bytes);
    free(iface->mp.staging_bytes);
    for (unsigned i = 0; i < iface->with.rails; i++)
        free(iface->rails[i].bytes);
}

static int progress(struct sl_iface *base, unsigned budget)
{
    struct lanes_iface *iface = iface_of(sl_mp_iface_of(base));
    struct sl_iface *sideband = iface->mp.sideband;
    unsigned moved = 0, first = (unsigned)sl_rng_below(&iface->lanes->rng, iface->with.rails);

    iface->mp.in_progress = true;
    iface->mp.opens = SL_MP_OPENS;
    for (unsigned i = 0; i < iface->with.rails; i++)
        moved += lanes_rail_show(&iface->rails[(first + i) % iface->with.rails], budget);
    moved += (unsigned)sl_mp_run(&iface->mp);
    moved += (unsigned)sideband->ops->progress(sideband, budget);
    sl_mp_run_timers(&iface->mp, sl_now(base->worker->clock));
    moved += (unsigned)sl_mp_run(&iface->mp);
    iface->mp.in_progress = false;
    return (int)moved;
}

const struct sl_transport_ops lanes_ops = {
    .abi = SL_TRANSPORT_ABI,
    .name = "lanes",
    .open = open_iface,
    .close = close_iface,
    .mr_reg = mr_reg,
    .mr_dereg = mr_dereg,
    .ep_create = sl_mp_ep_create,
    .ep_addr = sl_mp_ep_addr,
    .ep_connect = sl_mp_ep_connect,
    .ep_destroy = sl_mp_ep_destroy,
    .channel_open = sl_mp_channel_open,
    .channel_close = sl_mp_channel_close,
    .channel_traffic = sl_mp_channel_traffic,
    .channel_starves = sl_mp_channel_starves,
    .send = sl_mp_send,
    .recv = sl_mp_recv,
    .ctrl = sl_mp_ctrl,
    .progress = progress,
    .ep_describe = sl_mp_ep_describe,
    .ep_stats = sl_mp_ep_stats,
};

/* ---- the world ---- */

struct lanes *lanes_create(uint64_t seed, struct loop *loop)
{
    struct lanes *lanes = calloc(1, sizeof(*lanes));

    sl_assert(lanes != NULL);
    sl_rng_init(&lanes->rng, seed);
    lanes->loop = loop;
    lanes->retry_ns = 50 * SL_NS_PER_MS;
    sl_list_init(&lanes->wire);
    the = lanes;
    return lanes;
}

void lanes_destroy(struct lanes *lanes)
{
    lanes_packets_free(&lanes->wire);
    free(lanes);
    the = NULL;
}

void lanes_side(struct lanes *lanes, unsigned side, const struct lanes_side *with)
{
    lanes->iface[side].with = *with;
}

struct sl_mp_iface *lanes_iface(struct lanes *lanes, unsigned side)
{
    return &lanes->iface[side].mp;
}

unsigned lanes_live(const struct lanes *lanes)
{
    unsigned live = lanes->open_count;

    for (unsigned side = 0; side < 2; side++)
        for (unsigned i = 0; i < lanes->iface[side].with.rails; i++)
            live +=
                lanes->iface[side].rails[i].buffer_count - lanes->iface[side].rails[i].free_count;
    return live;
}

const char *lanes_misuse(const struct lanes *lanes)
{
    return lanes->misuse[0] != '\0' ? lanes->misuse : NULL;
}
