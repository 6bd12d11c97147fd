/* SPDX-License-Identifier: Apache-2.0 */
/* The lanes' part of the control messages: which paths there are, and what each end of a flow has
 * to know of the other. */
#include "dpdk/config.h"
#include "dpdk/iface.h"
#include "dpdk/lane.h"

#include "core/log.h"
#include "multipath/conn.h"
#include "multipath/setup.h"

#include <string.h>

#define FRAME_SURE (14u + 1500u) /* passes through any network */
#define VERSION_LEAST 1u
#define OFFER_CRC 1u

/* sl_mp_offer.lane */
struct lane_offer {
    uint32_t number; /* of the flow, at the sender of the offer */
    uint8_t secret[8];
    uint8_t version_least, version_most;
    uint8_t flags;
    uint8_t routes; /* by which the sender sends; for people */
    uint8_t spare[4];
};
_Static_assert(sizeof(struct lane_offer) == sizeof(((struct sl_mp_offer *)0)->lane),
               "the same bytes");

static struct lane_offer lane_offer_of(const struct sl_mp_offer *offer)
{
    struct lane_offer out;

    memcpy(&out, offer->lane, sizeof(out));
    return out;
}

int sl_dpdk_control_check(const struct sl_mp_control *control)
{
    int err = 0;

    if (control->kind == SL_MP_CONTROL_OFFER || control->kind == SL_MP_CONTROL_ACCEPT) {
        struct lane_offer offer = lane_offer_of(&control->offer);

        if (offer.number == 0 || offer.routes == 0 || offer.routes > SL_DP_ROUTES_MAX)
            return sl_fail(-EBADMSG, "an offer names flow %u with %u routes", offer.number,
                           offer.routes);
        if (offer.version_least == 0 || offer.version_least > offer.version_most)
            return sl_fail(-EBADMSG, "an offer has the versions %u to %u", offer.version_least,
                           offer.version_most);
        return sl_dpdk_rail_info_check(&control->offer.rail);
    }
    if (control->kind != SL_MP_CONTROL_HELLO)
        return 0;
    for (unsigned i = 0; i < SL_MP_HELLO_RAILS && err == 0; i++)
        if ((control->hello.rails[i].usable & SL_MP_RAIL_USABLE) != 0)
            err = sl_dpdk_rail_info_check(&control->hello.rails[i]);
    return err;
}

/* ---- which paths ---- */

int sl_dpdk_plan(struct sl_mp_conn *conn, struct sl_mp_paths *out)
{
    const struct sl_dpdk_iface *iface = sl_dpdk_iface_of(&conn->iface->base);
    struct sl_mp_path_wishes wishes = sl_dpdk_path_wishes(iface->config);
    struct sl_mp_plan_ends ends = {
        .rails = {.local_rails = iface->mp.rail_count, .remote_rails = conn->peer.rail_count}};

    for (unsigned i = 0; i < ends.rails.local_rails; i++)
        for (unsigned j = 0; j < ends.rails.remote_rails; j++)
            ends.rails.reach[i][j] =
                (uint8_t)sl_dpdk_rail_reach(&iface->rails[i], &conn->peer.rails[j]);
    ends.rails.remote_far = conn->peer.far;
    return sl_mp_paths_plan(conn, &wishes, &ends, SL_LOG_DEBUG,
                            "it has no port on that wire or in that subnet, or none of that IP "
                            "version",
                            out);
}

/* ---- a flow ---- */

void sl_dpdk_offer(const struct sl_mp_path *path, struct sl_mp_offer *out)
{
    const struct sl_dpdk_lane *lane = (const struct sl_dpdk_lane *)path;
    struct lane_offer offer = {
        .number = lane->number,
        .version_least = VERSION_LEAST,
        .version_most = SL_DP_VERSION,
        .flags = sl_dpdk_config(lane->rail->iface->config)->crc == SL_ON ? OFFER_CRC : 0,
        .routes = (uint8_t)lane->route_count};

    memcpy(offer.secret, &lane->secret, sizeof(offer.secret));
    memcpy(out->lane, &offer, sizeof(offer));
}

/* Headers of a frame around a DATA packet's payload: Ethernet, IP, UDP, ours. */
static uint32_t headers_to(const struct sl_dpdk_address *peer)
{
    return (sl_dpdk_has_ip4(peer) ? SL_DPDK_WAY_BYTES : SL_DPDK_WAY6_BYTES) + SL_DP_HEAD_BYTES;
}

/* The largest frame that both ends and the protocol take, and of those that surely pass: on one
 * wire, all. */
static void agree_on_sizes(const struct sl_dpdk_lane *lane, const struct sl_dpdk_rail_info *remote,
                           struct sl_dp_ends *out)
{
    struct sl_dpdk_address peer = sl_dpdk_rail_towards(lane->rail, remote);
    uint32_t around = headers_to(&peer) + (out->crc ? SL_DP_CRC_BYTES : 0);
    uint32_t ours = lane->rail->info.frame_most, theirs = sl_dpdk_frame_most(remote);
    uint32_t most = ours < theirs ? ours : theirs, sure;

    if (most > SL_DP_PAYLOAD_MOST + around)
        most = SL_DP_PAYLOAD_MOST + around;
    sure = lane->is_direct || most < FRAME_SURE ? most : FRAME_SURE;
    out->payload_most = most - around;
    out->payload_least = sure - around;
}

int sl_dpdk_agree(const struct sl_dpdk_lane *lane, const struct sl_mp_offer *theirs,
                  struct sl_dp_ends *out)
{
    struct lane_offer offer = lane_offer_of(theirs);
    struct sl_dpdk_rail_info remote = sl_dpdk_rail_info_of(&theirs->rail);
    uint8_t version = offer.version_most < SL_DP_VERSION ? offer.version_most : SL_DP_VERSION;

    if (version < VERSION_LEAST || version < offer.version_least)
        return sl_fail(
            -EPROTO,
            "the peer speaks versions %u to %u of the protocol on %s, and this end %u to "
            "%u: both need Sluice of about the same age",
            offer.version_least, offer.version_most, lane->base.rail->name, VERSION_LEAST,
            SL_DP_VERSION);
    *out = (struct sl_dp_ends){
        .own_number = lane->number,
        .peer_number = offer.number,
        .own_secret = lane->secret,
        .version = version,
        .routes = (uint8_t)lane->route_count,
        .crc = (offer.flags & OFFER_CRC) != 0 ||
               sl_dpdk_config(lane->rail->iface->config)->crc == SL_ON,
    };
    memcpy(&out->peer_secret, offer.secret, sizeof(out->peer_secret));
    agree_on_sizes(lane, &remote, out);
    return 0;
}
