/* SPDX-License-Identifier: Apache-2.0 */
/* The wire under simulated lanes: what moves, what is lost, what is shown, and in which order. */
#include "multipath/conn.h"
#include "tests/sim/mp_lanes_inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct lanes_rail *rail_of(const struct lane *lane)
{
    return (struct lanes_rail *)lane->base.rail;
}

static uint64_t now(const struct lanes *lanes)
{
    return loop_now(lanes->loop);
}

void lanes_fail(struct lane *lane)
{
    if (!lane->open || lane->failed || lane->stopped)
        return;
    lane->failed = true;
    lanes_flush(lane);
}

/* ---- moving ---- */

static unsigned lost_of(const struct lane *lane)
{
    const struct lanes *lanes = lane->lanes;
    unsigned ours = lane->base.rail->idx, theirs = lane->base.remote_rail;
    unsigned a = lane->side == 0 ? ours : theirs, b = lane->side == 0 ? theirs : ours;
    bool down = !lanes->iface[0].rails[a].base.usable || !lanes->iface[1].rails[b].base.usable;

    return lane->lost | lanes->blocked[a][b][lane->side] | (down ? LANES_BOTH : LANES_NOTHING);
}

/* Nothing comes back for what was sent: the sender gives up in the end. */
static bool wait(struct lane *lane)
{
    if (lane->stuck_ns == SL_NEVER)
        lane->stuck_ns = now(lane->lanes);
    else if (now(lane->lanes) - lane->stuck_ns > lane->lanes->retry_ns)
        lanes_fail(lane);
    return false;
}

static struct lanes_region *region_of(struct lanes_iface *iface, uint32_t rkey, unsigned rail,
                                      uint64_t addr, uint32_t len)
{
    sl_list_foreach(&iface->regions, node)
    {
        struct lanes_region *region = sl_container_of(node, struct lanes_region, link);
        uint64_t start = (uintptr_t)region->addr;

        if (region->base.rkeys[rail] == rkey && addr >= start && len <= region->base.len &&
            addr - start <= region->base.len - len)
            return region;
    }
    return NULL;
}

/* Bytes reach the receiver's memory. cut: the lane ends in the middle of it. */
static void execute(struct lane *to, const struct lane_packet *packet, bool cut)
{
    struct lanes *lanes = to->lanes;
    uint32_t len = cut ? (uint32_t)sl_rng_below(&lanes->rng, packet->len + 1) : packet->len;

    if (region_of(&lanes->iface[to->side], packet->rkey, to->base.rail->idx, packet->addr,
                  packet->len) == NULL)
        lanes_wrong(lanes, "%u bytes are written where nothing is registered", packet->len);
    else
        memcpy((void *)(uintptr_t)packet->addr, packet->bytes, len);
}

/* At the other end: false while it has no buffer for it. */
static bool arrive(struct lane *to, struct lane_packet *packet)
{
    struct lanes_rail *rail = rail_of(to);

    if (packet->is_write) {
        execute(to, packet, false);
    } else {
        packet->buffer = lanes_buffer_take(rail);
        if (packet->buffer < 0)
            return false;
        rail->taken[packet->buffer] = true;
        memcpy(rail->bytes + (size_t)packet->buffer * rail->iface->mp.slot_bytes, packet->bytes,
               packet->len);
    }
    sl_list_remove(&packet->link);
    sl_list_push_back(&to->arrivals, &packet->link);
    return true;
}

bool lanes_takes(const struct lane *lane)
{
    return lane != NULL && lane->connected && !lane->stopped && !lane->failed;
}

bool lanes_deliver(struct lane *lane, struct lane *to)
{
    struct lane_packet *packet = sl_container_of(lane->out.next, struct lane_packet, link);

    if (memcmp(packet->bytes, packet->lent, packet->len) != 0)
        lanes_wrong(lane->lanes, "what lane %u sends was changed before it was over", lane->number);
    if (!arrive(to, packet))
        return false;
    lane->delivered++;
    return true;
}

static bool deliver(struct lane *lane)
{
    struct lane_packet *packet = sl_container_of(lane->out.next, struct lane_packet, link);
    struct lane *to = lanes_peer(lane);

    if ((lost_of(lane) & LANES_DATA) != 0 || !lanes_takes(to)) {
        /* The last try may get a part of it there. */
        if (packet->is_write && lanes_takes(to) && sl_rng_chance(&lane->lanes->rng, 64))
            execute(to, packet, true);
        return wait(lane);
    }
    return lanes_deliver(lane, to);
}

static bool acknowledge(struct lane *lane)
{
    if ((lost_of(lane) & LANES_ACKS) != 0)
        return wait(lane);
    lane->acked = lane->delivered;
    lane->stuck_ns = SL_NEVER;
    return true;
}

/* What a sender that has stopped had put on the wire. */
bool lanes_wire_step(struct lanes *lanes)
{
    struct lane_packet *packet = sl_container_of(lanes->wire.next, struct lane_packet, link);
    struct sl_node one;

    if (sl_list_empty(&lanes->wire))
        return false;
    struct lane *to = lanes_find(lanes, packet->to_side, packet->to);

    if (lanes_takes(to) && sl_rng_chance(&lanes->rng, 2) && arrive(to, packet))
        return true;
    sl_list_init(&one);
    sl_list_remove(&packet->link);
    sl_list_push_back(&one, &packet->link);
    /* One is lost: those behind it to the same lane are out of order now, which no lane shows. */
    sl_list_foreach(&lanes->wire, node)
    {
        struct lane_packet *other = sl_container_of(node, struct lane_packet, link);

        if (other->to_side == packet->to_side && other->to == packet->to) {
            sl_list_remove(node);
            sl_list_push_back(&one, node);
        }
    }
    lanes_packets_free(&one);
    return true;
}

bool lanes_step(struct lanes *lanes)
{
    unsigned first = (unsigned)sl_rng_below(&lanes->rng, lanes->lanes_end + 1);

    if (!sl_list_empty(&lanes->wire) && sl_rng_chance(&lanes->rng, 6))
        return lanes_wire_step(lanes);
    for (unsigned i = 0; i < lanes->lanes_end; i++) {
        struct lane *lane = lanes->lane[(first + i) % lanes->lanes_end];
        bool acks = lane != NULL && lane->acked != lane->delivered;

        if (!lanes_takes(lane) || (sl_list_empty(&lane->out) && !acks))
            continue;
        return acks && (sl_list_empty(&lane->out) || sl_rng_chance(&lanes->rng, 2))
                   ? acknowledge(lane)
                   : deliver(lane);
    }
    return false;
}

/* ---- showing ---- */

/* The number whose completion is shown next: one that asked for it. -1: there is none. */
static int64_t next_retired(struct lane *lane)
{
    bool latest = sl_rng_chance(&lane->lanes->rng, 2);
    int64_t found = -1;

    for (uint32_t n = lane->shown; n != lane->acked; n++)
        if ((lane->signalled >> n % 64 & 1) != 0 && (found < 0 || latest))
            found = n;
    return found;
}

static void show_arrival(struct lane *lane)
{
    struct sl_node one, *node = sl_list_pop_front(&lane->arrivals);
    const struct lane_packet *packet = sl_container_of(node, const struct lane_packet, link);
    const struct lanes_rail *rail = rail_of(lane);

    sl_list_init(&one);
    sl_list_push_back(&one, node);
    if (packet->is_write)
        sl_mp_written(&lane->base, packet->imm, packet->len);
    else
        sl_mp_arrived(&lane->base, packet->imm,
                      rail->bytes + (size_t)packet->buffer * rail->iface->mp.slot_bytes,
                      (uint32_t)packet->buffer, packet->len);
    lanes_packets_free(&one);
}

bool lanes_show(struct lane *lane, bool all)
{
    bool arrived = lane->open && !sl_list_empty(&lane->arrivals);
    int64_t retired = lane->open && !lane->told ? next_retired(lane) : -1;

    (void)all;
    if (arrived && (retired < 0 || sl_rng_chance(&lane->lanes->rng, 2))) {
        show_arrival(lane);
        return true;
    }
    if (retired >= 0) {
        lane->shown = (uint32_t)retired + 1;
        sl_mp_retired(&lane->base, (uint32_t)retired, now(lane->lanes));
        return true;
    }
    if (!lane->failed || lane->told || !lane->open || lane->stopped)
        return false;
    lane->told = true;
    sl_mp_failed(&lane->base, 7, "lane %u got no answer", lane->number);
    return true;
}

unsigned lanes_rail_show(struct lanes_rail *rail, unsigned budget)
{
    struct lanes *lanes = rail->iface->lanes;
    unsigned count = 0, first = (unsigned)sl_rng_below(&lanes->rng, lanes->lanes_end + 1);

    if (rail->held || rail->dead)
        return 0;
    for (unsigned i = 0; i < lanes->lanes_end && count < budget; i++) {
        struct lane *lane = lanes->lane[(first + i) % lanes->lanes_end];
        unsigned most = 1 + (unsigned)sl_rng_below(&lanes->rng, 4);

        if (lane == NULL || lane->base.rail != &rail->base || lane->side != rail->iface->side)
            continue;
        while (most-- > 0 && count < budget && lanes_show(lane, false))
            count++;
    }
    return count;
}

/* ---- faults ---- */

unsigned lanes_count(const struct lanes *lanes)
{
    return lanes->open_count;
}

static struct lane *any_lane(struct lanes *lanes, uint32_t pick)
{
    struct lane *chosen = NULL;
    unsigned seen = 0;

    for (unsigned i = 0; i < lanes->lanes_end; i++)
        if (lanes_takes(lanes->lane[i]) && pick % ++seen == 0)
            chosen = lanes->lane[i];
    return chosen;
}

void lanes_kill(struct lanes *lanes, uint32_t pick)
{
    struct lane *lane = any_lane(lanes, pick);

    if (lane != NULL)
        lanes_fail(lane);
}

void lanes_cut(struct lanes *lanes, uint32_t pick, enum lanes_lost what)
{
    struct lane *lane = any_lane(lanes, pick);

    if (lane != NULL)
        lane->lost |= what;
}

void lanes_block(struct lanes *lanes, unsigned rail_a, unsigned rail_b, enum lanes_lost there,
                 enum lanes_lost back)
{
    lanes->blocked[rail_a][rail_b][0] = there;
    lanes->blocked[rail_a][rail_b][1] = back;
}

static void fail_rail(struct lanes_rail *rail, const char *why)
{
    struct lanes *lanes = rail->iface->lanes;

    for (unsigned i = 0; i < lanes->lanes_end; i++) {
        struct lane *lane = lanes->lane[i];

        if (lane == NULL || !lane->open || lane->base.rail != &rail->base)
            continue;
        lanes_fail(lane);
        sl_mp_failed(&lane->base, 0, "%s", why);
    }
}

void lanes_rail(struct lanes *lanes, unsigned side, unsigned rail, bool usable)
{
    struct lanes_iface *iface = &lanes->iface[side];
    struct lanes_rail *r = &iface->rails[rail % iface->with.rails];

    if (r->dead || r->base.usable == usable)
        return;
    r->base.usable = usable;
    snprintf(r->base.why, sizeof(r->base.why), "%s", usable ? "" : "its cable is out");
    if (!usable)
        fail_rail(r, "its cable is out");
    sl_mp_rails_changed(&iface->mp, true);
}

static bool in_use(struct lanes_rail *rail)
{
    sl_mp_rail_vacate(&rail->iface->mp, &rail->base);
    sl_list_foreach(&rail->iface->mp.conns, node)
    {
        struct sl_mp_conn *conn = sl_container_of(node, struct sl_mp_conn, link);

        for (unsigned i = 0; i < conn->path_count; i++)
            if (conn->paths[i] != NULL && conn->paths[i]->rail == &rail->base &&
                ((struct lane *)conn->paths[i])->open)
                return true;
    }
    return rail->free_count != rail->buffer_count;
}

void lanes_rail_anew(struct lanes *lanes, unsigned side, unsigned rail)
{
    struct lanes_iface *iface = &lanes->iface[side];
    struct lanes_rail *r = &iface->rails[rail % iface->with.rails];
    unsigned idx = r->base.idx;

    if (r->dead || r->base.usable || in_use(r))
        return;
    sl_list_foreach(&iface->regions, node) sl_container_of(node, struct lanes_region, link)
        ->base.rkeys[idx] = ++lanes->last_number * 16 + idx;
    iface->mp.staging_rkeys[idx] = iface->staging->base.rkeys[idx];
    sl_mp_rail_renewed(&iface->mp, &r->base);
}

void lanes_hold(struct lanes *lanes, unsigned side, unsigned rail, bool held)
{
    lanes->iface[side].rails[rail % lanes->iface[side].with.rails].held = held;
}

void lanes_device_dies(struct lanes *lanes, unsigned side, unsigned rail)
{
    struct lanes_iface *iface = &lanes->iface[side];
    struct lanes_rail *r = &iface->rails[rail % iface->with.rails];

    r->dead = true;
    r->base.usable = false;
    snprintf(r->base.why, sizeof(r->base.why), "its device is gone");
    fail_rail(r, r->base.why);
    sl_mp_rails_changed(&iface->mp, false);
}

void lanes_path_table(struct lanes *lanes, unsigned side, const struct sl_path_rule *rules,
                      size_t count)
{
    struct sl_mp_iface *mp = &lanes->iface[side].mp;

    free(mp->table.rules);
    mp->table.rules = calloc(count + 1, sizeof(*rules));
    sl_assert(mp->table.rules != NULL);
    if (count > 0)
        memcpy(mp->table.rules, rules, count * sizeof(*rules));
    mp->table.count = count;
    mp->steered++;
    mp->is_steering = true;
}

void lanes_refuse(struct lanes *lanes, unsigned side, unsigned count)
{
    lanes->iface[side].refuse = count + 1;
}

void lanes_retry_ns(struct lanes *lanes, uint64_t ns)
{
    lanes->retry_ns = ns;
}

void lanes_heal(struct lanes *lanes)
{
    memset(lanes->blocked, 0, sizeof(lanes->blocked));
    for (unsigned i = 0; i < lanes->lanes_end; i++)
        if (lanes->lane[i] != NULL)
            lanes->lane[i]->lost = LANES_NOTHING;
    for (unsigned side = 0; side < 2; side++) {
        lanes->iface[side].refuse = 0;
        for (unsigned i = 0; i < lanes->iface[side].with.rails; i++) {
            lanes_hold(lanes, side, i, false);
            lanes_rail(lanes, side, i, true);
        }
    }
}
