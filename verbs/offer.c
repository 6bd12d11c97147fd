/* SPDX-License-Identifier: Apache-2.0 */
/* The lanes' side of making a path: which paths, from which GID to which, and what the peer has to
 * know. */
#include "verbs/offer.h"

#include "core/log.h"
#include "core/rng.h"
#include "multipath/conn.h"
#include "multipath/setup.h"
#include "verbs/config.h"
#include "verbs/iface.h"
#include "verbs/pkey.h"
#include "verbs/lid.h"
#include "verbs/queue_pair.h"
#include "verbs/rate.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#define LID_MAX 0xbfff /* above are those of groups */

_Static_assert(sizeof(struct sl_verbs_rail_info) == sizeof(struct sl_mp_rail_info) &&
                   offsetof(struct sl_verbs_rail_info, usable) ==
                       offsetof(struct sl_mp_rail_info, usable) &&
                   offsetof(struct sl_verbs_rail_info, keys) ==
                       offsetof(struct sl_mp_rail_info, keys),
               "the same bytes");
_Static_assert(sizeof(struct sl_verbs_offer) == sizeof(struct sl_mp_offer) &&
                   offsetof(struct sl_verbs_offer, rail) == offsetof(struct sl_mp_offer, rail),
               "the same bytes");

struct sl_verbs_rail_info sl_verbs_rail_info_of(const struct sl_mp_rail_info *info)
{
    struct sl_verbs_rail_info out;

    memcpy(&out, info, sizeof(out));
    return out;
}

struct sl_verbs_offer sl_verbs_offer_of(const struct sl_mp_offer *offer)
{
    struct sl_verbs_offer out;

    memcpy(&out, offer, sizeof(out));
    return out;
}

/* ---- what the peer says ---- */

static int check_rail(const struct sl_mp_rail_info *info)
{
    struct sl_verbs_rail_info rail = sl_verbs_rail_info_of(info);

    if (rail.mtu < IBV_MTU_256 || rail.mtu > IBV_MTU_4096)
        return sl_fail(-EBADMSG, "a rail has the unknown MTU code %u", rail.mtu);
    if (rail.rate != IBV_RATE_MAX && sl_verbs_rate_speed(rail.rate) == 0)
        return sl_fail(-EBADMSG, "a rail has the unknown rate code %u", rail.rate);
    if (rail.gid_type > SL_VERBS_GID_ROCE_V2)
        return sl_fail(-EBADMSG, "a rail has a GID of the unknown type %u", rail.gid_type);
    if (rail.gid_type == SL_VERBS_GID_IB && (rail.lid == 0 || rail.lid > LID_MAX))
        return sl_fail(-EBADMSG, "a rail has the LID %u, which is none of a port", rail.lid);
    if ((rail.pkey & SL_VERBS_PKEY_PARTITION) == 0)
        return sl_fail(-EBADMSG, "a rail has the P_Key 0x%04x, which is none", rail.pkey);
    return 0;
}

int sl_verbs_control_check(const struct sl_mp_control *control)
{
    int err = 0;

    if (control->kind == SL_MP_CONTROL_OFFER || control->kind == SL_MP_CONTROL_ACCEPT) {
        struct sl_verbs_offer offer = sl_verbs_offer_of(&control->offer);

        if (offer.qpn > 0xffffff)
            return sl_fail(-EBADMSG, "an offer names queue pair 0x%x", offer.qpn);
        if ((offer.ece_vendor == 0) != (offer.ece_options == 0))
            return sl_fail(-EBADMSG, "an offer has the ECE options 0x%x of vendor 0x%x",
                           offer.ece_options, offer.ece_vendor);
        return check_rail(&control->offer.rail);
    }
    if (control->kind != SL_MP_CONTROL_HELLO)
        return 0;
    for (unsigned i = 0; i < SL_MP_HELLO_RAILS && err == 0; i++)
        if ((control->hello.rails[i].usable & SL_MP_RAIL_USABLE) != 0)
            err = check_rail(&control->hello.rails[i]);
    return err;
}

/* ---- rails ---- */

static int provide(struct sl_mp_iface *base, unsigned conns)
{
    struct sl_verbs_iface *iface = sl_verbs_iface_of(&base->base);
    int err = 0;

    for (unsigned i = 0; i < base->rail_count && err == 0; i++) {
        err = iface->rails[i].is_lost ? 0 : sl_verbs_rail_provide(&iface->rails[i], conns);
        if (err != 0 && sl_verbs_rail_is_gone(&iface->rails[i]))
            err = 0;
    }
    return err;
}

static void describe(const struct sl_mp_rail *base, struct sl_mp_rail_info *out)
{
    const struct sl_verbs_rail *rail = (const struct sl_verbs_rail *)base;
    struct sl_verbs_rail_info info = {
        .lid = rail->port.lid,
        .usable = base->usable,
        .mtu = rail->port.mtu,
        .rate = sl_verbs_rate_of(rail->port.speed),
        .gid_type = rail->gid.type,
        .prefix_len = rail->gid.prefix_len,
        .pkey = base->usable ? rail->pkey.key : 0, /* a link that comes up may bring others */
    };

    memcpy(info.gid, &rail->gid.gid, sizeof(info.gid));
    memcpy(out, &info, sizeof(info));
}

static uint8_t link_layer_of(const struct sl_verbs_rail_info *info)
{
    return info->gid_type == SL_VERBS_GID_IB ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET;
}

static void info_to_gid(const struct sl_verbs_rail_info *info, struct sl_verbs_gid *out)
{
    static const uint8_t v4_prefix[12] = {[10] = 0xff, [11] = 0xff};

    *out = (struct sl_verbs_gid){.type = info->gid_type, .prefix_len = info->prefix_len};
    memcpy(&out->gid, info->gid, sizeof(info->gid));
    out->is_v4 = memcmp(info->gid, v4_prefix, sizeof(v4_prefix)) == 0;
    out->is_link_local = (info->gid[0] == 0xfe && (info->gid[1] & 0xc0) == 0x80) ||
                         (out->is_v4 && info->gid[12] == 169 && info->gid[13] == 254);
}

/* What is known of the way from a rail to one of the peer's, which says what address it has even
 * while it has no link. */
static enum sl_mp_reach reach_of(const struct sl_verbs_rail *rail,
                                 const struct sl_mp_rail_info *remote)
{
    static const uint8_t no_gid[16];
    struct sl_verbs_rail_info info = sl_verbs_rail_info_of(remote);
    struct sl_verbs_gid ours, theirs;
    struct sl_verbs_pkey pkey;

    if (rail->port.gid_count == 0 || memcmp(info.gid, no_gid, sizeof(no_gid)) == 0)
        return SL_MP_REACH_UNKNOWN;
    info_to_gid(&info, &theirs);
    if (link_layer_of(&info) != rail->port.link_layer ||
        sl_verbs_gid_choose_for(rail->iface->config, &rail->port, &theirs, &ours) != 0)
        return SL_MP_REACH_NEVER;
    if (rail->base.usable &&
        sl_verbs_pkey_choose_for(rail->iface->config, &rail->port, info.pkey, &pkey) != 0)
        return SL_MP_REACH_NEVER;
    return sl_verbs_gid_reach(&ours, &theirs);
}

/* Where all InfiniBand has the prefix that it comes with, one subnet may be several fabrics. */
static bool tells_subnets(const struct sl_mp_conn *conn)
{
    static const uint8_t common[8] = {0xfe, 0x80};
    const struct sl_verbs_iface *iface = sl_verbs_iface_of(&conn->iface->base);

    for (unsigned i = 0; i < iface->mp.rail_count; i++)
        if (iface->rails[i].port.link_layer == IBV_LINK_LAYER_INFINIBAND &&
            memcmp(iface->rails[i].gid.gid.raw, common, sizeof(common)) == 0)
            return false;
    return true;
}

static void ends_of(const struct sl_mp_conn *conn, struct sl_mp_plan_ends *out)
{
    const struct sl_verbs_iface *iface = sl_verbs_iface_of(&conn->iface->base);

    *out = (struct sl_mp_plan_ends){
        .rails = {.local_rails = iface->mp.rail_count, .remote_rails = conn->peer.rail_count}};
    for (unsigned i = 0; i < out->rails.local_rails; i++) {
        const struct sl_verbs_device *device = iface->rails[i].device;

        out->lag_ports[i] = device != NULL ? device->lag_ports : 0;
        for (unsigned j = 0; j < out->rails.remote_rails; j++)
            out->rails.reach[i][j] = (uint8_t)reach_of(&iface->rails[i], &conn->peer.rails[j]);
    }
    if (!tells_subnets(conn))
        return;
    for (unsigned i = 0; i < out->rails.local_rails; i++)
        out->rails.local_far |= (uint16_t)(iface->rails[i].base.is_far << i);
    out->rails.remote_far = conn->peer.far;
}

static int plan(struct sl_mp_conn *conn, struct sl_mp_paths *out)
{
    const struct sl_verbs_iface *iface = sl_verbs_iface_of(&conn->iface->base);
    struct sl_mp_path_wishes wishes = sl_verbs_path_wishes(iface->config);
    struct sl_mp_plan_ends ends;

    ends_of(conn, &ends);
    return sl_mp_paths_plan(conn, &wishes, &ends, SL_LOG_INFO,
                            "it has no rail of that subnet and partition, or none is listed", out);
}

/* ---- a path ---- */

/* What labels are drawn from: another row for each connection, direction, path and try. The nonces
 * are drawn by each process for each of its connections, so ranks that share a device, or reach the
 * same one, do not draw alike. */
static uint64_t route_seed(const struct sl_mp_conn *conn, const struct sl_mp_path *path)
{
    struct sl_rng rng;

    sl_rng_init(&rng, conn->nonce);
    sl_rng_init(&rng, sl_rng_u64(&rng) ^ conn->peer.nonce);
    sl_rng_init(&rng, sl_rng_u64(&rng) ^ (uint64_t)path->idx << 16 ^ path->misses);
    return sl_rng_u64(&rng);
}

/* What people see of it. Soft-RoCE takes no label. */
static void show_route(struct sl_verbs_path *path)
{
    bool has_port = path->flow_label != 0 && !path->rail->is_soft &&
                    path->rail->port.link_layer == IBV_LINK_LAYER_ETHERNET;

    path->base.shown.label = path->flow_label;
    path->base.shown.source_port = has_port ? sl_mp_udp_sport(path->flow_label) : 0;
}

/* By which route this end sends: the path table says, or its own settings, or a draw that other
 * paths, peers and ranks have no part in. */
static void choose_route(struct sl_verbs_path *path)
{
    const struct sl_mp_conn *conn = path->base.conn;
    const struct sl_verbs_iface *iface = path->rail->iface;
    struct sl_mp_path_wishes wishes = sl_verbs_path_wishes(iface->config);
    struct sl_mp_path_spec specs[SL_MP_PATHS_MAX];
    size_t count = 0, at = 0;

    for (unsigned i = 0; i < conn->path_count; i++) {
        const struct sl_verbs_path *other = (const struct sl_verbs_path *)conn->paths[i];

        if (other == NULL || other->rail == NULL)
            continue;
        if (other == path)
            at = count;
        specs[count++] = (struct sl_mp_path_spec){
            .local_rail = (uint8_t)other->rail->base.idx,
            .remote_rail = other->base.remote_rail,
            .turn = other->base.turn,
            .flow_label = other->has_route ? other->flow_label : SL_PATH_LABEL_OPEN,
            .lid_bits = other->lid_bits};
    }
    path->lid_bits =
        sl_verbs_lid_bits(path->rail->port.lmc, route_seed(conn, &path->base), specs, count, at);
    path->base.spare =
        !sl_mp_plan_route(&wishes, path->rail->device != NULL ? path->rail->device->lag_ports : 0,
                          route_seed(conn, &path->base), specs, count, at);
    path->base.spare |= path->base.rail->is_far;
    path->flow_label = specs[at].flow_label;
    path->lag_port = specs[at].lag_port;
    path->has_route = true;
    path->route_misses = path->base.misses;
    path->route_label = path->base.label;
    if (path->base.label != SL_PATH_TABLE_UNSAID)
        path->flow_label = (uint32_t)path->base.label;
    show_route(path);
    sl_debug("verbs", "path %u to %s sends with flow label 0x%x", path->base.idx,
             sl_ep_peer_name(&conn->base), path->flow_label);
}

/* The subnet manager may have given the port other LIDs since, or fewer. */
static uint16_t lid_of(const struct sl_verbs_path *path)
{
    const struct sl_verbs_port *port = &path->rail->port;

    return (uint16_t)(port->lid + path->lid_bits % (1u << port->lmc));
}

/* Queue pair and GID of this end, for the peer's rail. */
static int open_lane(struct sl_mp_path *base, const struct sl_mp_rail_info *remote,
                     const struct sl_mp_offer *theirs)
{
    (void)theirs;
    struct sl_verbs_path *path = sl_verbs_path_of(base);
    struct sl_verbs_rail_info info = sl_verbs_rail_info_of(remote);
    struct sl_verbs_gid gid;
    int err;

    path->rail = (struct sl_verbs_rail *)base->rail;
    err = sl_verbs_rail_wake(path->rail);
    if (err != 0)
        return err;
    if (!path->has_route || path->route_misses != base->misses || path->route_label != base->label)
        choose_route(path);
    path->lid = lid_of(path);
    if (link_layer_of(&info) != path->rail->port.link_layer)
        return sl_fail(-EHOSTUNREACH, "%s and the peer's rail %u are of different link layers",
                       path->rail->port.name, base->remote_rail);
    info_to_gid(&info, &gid);
    err = sl_verbs_gid_choose_for(path->rail->iface->config, &path->rail->port, &gid, &path->gid);
    if (err == 0)
        err = sl_verbs_pkey_choose_for(path->rail->iface->config, &path->rail->port, info.pkey,
                                       &path->pkey);
    if (err == 0)
        err = sl_verbs_rail_use(path->rail);
    if (err == 0)
        err = sl_verbs_path_make(path);
    if (err == 0)
        sl_verbs_ece_ask(path);
    return err;
}

static void fill_offer(const struct sl_mp_path *base, struct sl_mp_offer *out)
{
    const struct sl_verbs_path *path = (const struct sl_verbs_path *)base;
    struct sl_verbs_offer offer = sl_verbs_offer_of(out);

    offer.qpn = path->qp->qp_num;
    offer.psn = path->psn;
    offer.flow_label = path->flow_label;
    offer.ece_vendor = path->ece.vendor_id;
    offer.ece_options = path->ece.options;
    memcpy(offer.rail.gid, &path->gid.gid, sizeof(offer.rail.gid));
    offer.rail.gid_type = path->gid.type;
    offer.rail.pkey = path->pkey.key;
    offer.rail.lid = path->lid;
    memcpy(out, &offer, sizeof(offer));
}

static int connect_lane(struct sl_mp_path *base, const struct sl_mp_offer *theirs)
{
    struct sl_verbs_offer offer = sl_verbs_offer_of(theirs);

    return sl_verbs_path_connect(sl_verbs_path_of(base), &offer);
}

static int route_lane(struct sl_mp_path *base)
{
    struct sl_verbs_path *path = sl_verbs_path_of(base);
    uint32_t before = path->flow_label;

    choose_route(path);
    if (path->flow_label == before || sl_verbs_mlx5_sport(path) == 0)
        return 0;
    path->flow_label = before; /* as its queue pair still sends */
    path->has_route = false;
    show_route(path);
    return -ENOTSUP;
}

static void stop(struct sl_mp_path *base)
{
    sl_verbs_path_stop(sl_verbs_path_of(base));
}

static void close_lane(struct sl_mp_path *base)
{
    sl_verbs_path_unmake(sl_verbs_path_of(base));
}

static void release(struct sl_mp_rail *rail, uint32_t buffer)
{
    sl_verbs_slot_put((struct sl_verbs_rail *)rail, buffer);
}

static bool is_short(const struct sl_mp_path *path)
{
    return sl_verbs_few_receives((const struct sl_verbs_path *)path);
}

static unsigned poll_rail(struct sl_mp_path *path)
{
    return sl_verbs_rail_poll((struct sl_verbs_rail *)path->rail, 64);
}

/* "rxe0:1 > 198.51.100.2", "mlx5_bond_0:1@2 > 198.51.100.2": the peer's rail as it said last. */
static void name(const struct sl_mp_path *base, char *out, size_t cap)
{
    const struct sl_verbs_path *path = (const struct sl_verbs_path *)base;
    struct sl_verbs_rail_info info =
        sl_verbs_rail_info_of(&base->conn->peer.rails[base->remote_rail]);
    union ibv_gid gid;
    char remote[INET6_ADDRSTRLEN] = "?";

    memcpy(&gid, info.gid, sizeof(info.gid));
    if (IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)(const void *)gid.raw))
        inet_ntop(AF_INET, gid.raw + 12, remote, sizeof(remote));
    else
        inet_ntop(AF_INET6, gid.raw, remote, sizeof(remote));
    if (path->lag_active != 0)
        snprintf(out, cap, "%.70s@%u > %s", base->rail->name, path->lag_active, remote);
    else
        snprintf(out, cap, "%.70s > %s", base->rail->name, remote);
}

const struct sl_mp_lanes sl_verbs_lanes = {
    .check = sl_verbs_control_check,
    .provide = provide,
    .plan = plan,
    .describe = describe,
    .create = sl_verbs_path_create,
    .destroy = sl_verbs_path_destroy,
    .open = open_lane,
    .offer = fill_offer,
    .connect = connect_lane,
    .stop = stop,
    .route = route_lane,
    .close = close_lane,
    .post = sl_verbs_path_post,
    .write = sl_verbs_path_write,
    .release = release,
    .is_short = is_short,
    .poll = poll_rail,
    .name = name,
};
