/* SPDX-License-Identifier: Apache-2.0 */
/* What happens on the way: ends that do not run, routes that die, MTUs that shrink, and packets
 * that somebody else sends. */
#include "tests/sim/dp_swarm.h"

#include <string.h>

static struct sl_rng *rng(struct ds_run *run)
{
    return &run->rng;
}

void ds_watch(struct dp_wire *wire, struct dp_end *from, const void *bytes, size_t len)
{
    struct ds_run *run = wire->watch_arg;
    struct ds_old *old;

    if ((!run->forges && !run->is_hostile) || !sl_rng_chance(&run->rng, 20))
        return;
    old = &run->old[run->olds++ % DS_OLD];
    memcpy(old->bytes, bytes, len);
    old->len = len;
    old->end = (unsigned)(from->peer - wire->end);
}

/* ---- forged packets ---- */

static void seal(struct ds_old *packet)
{
    struct sl_dp_head head;

    memcpy(&head, packet->bytes, sizeof(head));
    sl_dp_head_seal(&head);
    memcpy(packet->bytes, &head, sizeof(head));
    if ((head.flags & SL_DP_FLAG_CRC) != 0 && packet->len >= sizeof(head) + SL_DP_CRC_BYTES) {
        size_t len = packet->len - sizeof(head) - SL_DP_CRC_BYTES;
        uint32_t sum = sl_dp_payload_crc(&head, packet->bytes + sizeof(head), len);

        memcpy(packet->bytes + sizeof(head) + len, &sum, sizeof(sum));
    }
}

static void change(struct ds_run *run, struct ds_old *packet, size_t from, size_t to)
{
    for (uint64_t left = sl_rng_range(rng(run), 1, 4); left > 0; left--)
        packet->bytes[sl_rng_range(rng(run), from, to - 1)] = (uint8_t)sl_rng_u64(rng(run));
}

static void forge(struct ds_run *run)
{
    static struct ds_old packet;
    struct dp_end *to;

    if (run->olds == 0)
        return;
    packet = run->old[sl_rng_below(rng(run), run->olds < DS_OLD ? run->olds : DS_OLD)];
    to = &run->wire.end[packet.end];
    run->forged++;
    switch (sl_rng_below(rng(run), run->is_hostile ? 5 : 4)) {
    case 0: /* anything */
        packet.len = sl_rng_below(rng(run), 200);
        for (size_t i = 0; i < packet.len; i++)
            packet.bytes[i] = (uint8_t)sl_rng_u64(rng(run));
        break;
    case 1: /* all but the secret is right, and the sums */
        change(run, &packet, 8, 16);
        change(run, &packet, 16, 30);
        packet.bytes[8] ^= 1;
        seal(&packet);
        if (sl_rng_chance(rng(run), 2))
            packet.len = sl_rng_range(rng(run), SL_DP_HEAD_BYTES, packet.len);
        {
            struct sl_dp_head head;

            memcpy(&head, packet.bytes, sizeof(head));
            if (head.secret == to->ends.own_secret)
                return;
        }
        break;
    case 2: /* an old one, once more */ run->replayed_ns = run->wire.now_ns; break;
    case 3: /* to another flow, as if that had the number of one that is over */
        to = &run->wire.end[sl_rng_below(rng(run), run->wire.ends)];
        if (to == &run->wire.end[packet.end])
            return;
        {
            struct sl_dp_head head;

            memcpy(&head, packet.bytes, sizeof(head));
            head.flow = to->ends.own_number;
            memcpy(packet.bytes, &head, sizeof(head));
        }
        seal(&packet);
        break;
    case 4: /* a peer that breaks the rules */
        if (sl_rng_chance(rng(run), 4))
            packet.len = sl_rng_range(rng(run), SL_DP_HEAD_BYTES, packet.len);
        change(run, &packet, 0, 4);
        packet.bytes[0] = (uint8_t)(sl_rng_range(rng(run), 1, 5) << 4 | SL_DP_VERSION);
        change(run, &packet, 16, 30);
        if (packet.len > SL_DP_HEAD_BYTES)
            change(run, &packet, SL_DP_HEAD_BYTES, packet.len < 80 ? packet.len : (size_t)80);
        seal(&packet);
        break;
    }
    dp_wire_inject(&run->wire, to, packet.bytes, packet.len);
}

/* ---- the rest ---- */

static struct dp_path *any_path(struct ds_run *run)
{
    struct dp_end *end = &run->wire.end[sl_rng_below(rng(run), run->wire.ends)];

    return &end->path[sl_rng_below(rng(run), run->ends.routes)];
}

void ds_faults(struct ds_run *run)
{
    if (run->sleeps && sl_rng_chance(rng(run), 50)) {
        struct dp_node *node = &run->wire.node[sl_rng_below(rng(run), 2)];

        node->asleep_ns = run->wire.now_ns +
                          sl_rng_below(rng(run), UINT64_C(1) << sl_rng_range(rng(run), 17, 26));
    }
    if (run->routes_die && sl_rng_chance(rng(run), 100)) {
        struct dp_path *path = any_path(run);

        path->is_dead = !path->is_dead;
    }
    if (run->mtu_shrinks && sl_rng_chance(rng(run), 200))
        any_path(run)->frame_most =
            SL_DP_HEAD_BYTES + SL_DP_CRC_BYTES +
            (uint32_t)sl_rng_range(rng(run), run->ends.payload_least, run->ends.payload_most);
    if ((run->forges || run->is_hostile) && sl_rng_chance(rng(run), 3))
        forge(run);
}

void ds_faults_end(struct ds_run *run)
{
    run->sleeps = run->routes_die = run->forges = false;
    for (unsigned i = 0; i < run->wire.nodes; i++)
        if (run->wire.node[i].asleep_ns > run->wire.now_ns)
            run->wire.node[i].asleep_ns = run->wire.now_ns;
    for (unsigned i = 0; i < run->wire.ends; i++)
        for (unsigned r = 0; r < run->ends.routes; r++) {
            struct dp_path *path = &run->wire.end[i].path[r];

            path->is_dead = false;
            path->loss_ppm = path->damage_ppm = path->payload_damage_ppm = 0;
            path->spike_ppm = path->double_ppm = path->reorder_ppm = 0;
            if (sl_rng_chance(rng(run), 2))
                path->frame_most = 0; /* else it stays small */
        }
}
