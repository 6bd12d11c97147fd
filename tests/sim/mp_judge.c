/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/mp_judge.h"

#include "core/err.h"
#include "multipath/iface.h"

static void judge_channel(struct traffic *traffic, const struct sl_mp_channel *channel)
{
    if (channel->tx_oldest != channel->tx_next || channel->rx_oldest != channel->rx_known ||
        channel->early_count > 0 || channel->tx_cts > 0 || channel->rts_waiting > 0)
        traffic_wrong(traffic,
                      "channel %u has something left to do: %u of %u sends, %u of %u receives (%u "
                      "known), %u early, %u CTS, %u RTS",
                      channel->base.id, channel->tx_oldest, channel->tx_next, channel->rx_oldest,
                      channel->rx_next, channel->rx_known, channel->early_count, channel->tx_cts,
                      channel->rts_waiting);
}

static bool has_spare(const struct sl_mp_conn *conn)
{
    bool has = conn->peer.far != 0 || conn->iface->settings.reserve;

    for (unsigned i = 0; i < conn->path_count; i++)
        has |= conn->paths[i] != NULL && conn->paths[i]->spare;
    return has;
}

void mp_judge(struct traffic *traffic, const struct sl_mp_conn *conn, const struct sl_mp_conn *peer,
              bool full, bool calm)
{
    unsigned used = 0;

    for (unsigned i = 0; i < SL_MP_RX_CTS_MAX; i++)
        used += conn->rx_cts[i].used;
    used += conn->cts_count;
    if (conn->credits + peer->credits_owed != SL_MP_CREDITS)
        traffic_wrong(traffic, "rank %d has %u credits and is owed %u", peer->base.peer,
                      conn->credits, peer->credits_owed);
    if (used > 0)
        traffic_wrong(traffic, "rank %d has %u grants left", peer->base.peer, used);
    sl_list_foreach(&conn->all_channels, node)
    {
        judge_channel(traffic, sl_container_of(node, struct sl_mp_channel, all));
    }
    if (conn->held > 0 || conn->kept > 0 || conn->redo_count > 0 || !sl_list_empty(&conn->deal) ||
        !sl_list_empty(&conn->late) || !sl_list_empty(&conn->starved) || conn->unannounced > 0 ||
        conn->drops.count > 0 || (conn->control_count > 0 && !full) ||
        (!sl_list_empty(&conn->telling) && !full) || !sl_list_empty(&conn->repeat))
        traffic_wrong(traffic,
                      "rank %d has something left to do: %u held, %u kept, %u redo, %u deal, %u "
                      "late, %u starved, %u unannounced, %u drops, %u records",
                      peer->base.peer, conn->held, conn->kept, conn->redo_count,
                      !sl_list_empty(&conn->deal), !sl_list_empty(&conn->late),
                      !sl_list_empty(&conn->starved), conn->unannounced, conn->drops.count,
                      conn->control_count);
    /* Frames leave a spare one by its fence. */
    calm &= !has_spare(conn) && !has_spare(peer);
    for (unsigned i = 0; i < conn->path_count && calm; i++)
        if (conn->paths[i] != NULL && conn->paths[i]->stats.failures > 0)
            traffic_wrong(traffic, "path %u failed though nothing was done to it: %s", i,
                          conn->paths[i]->why);
}

static int wanted_status(const struct mp_outcome *outcome, const struct traffic_conn *conn,
                         unsigned side)
{
    int status = conn->downs[side] > 0 ? conn->down_status[side] : 0, wanted = 0;

    if (outcome->away && (outcome->goes_down || conn->lost || conn->downs[0] + conn->downs[1] > 0))
        wanted = -EHOSTUNREACH;
    else if (conn->left[!side])
        wanted = -ECONNRESET;
    /* There was no sideband for what the other end had to say. */
    if (wanted == -EHOSTUNREACH && status == -ECONNRESET && conn->lost &&
        conn->down_status[!side] == wanted)
        wanted = status;
    return wanted;
}

void mp_judge_ends(struct traffic *traffic, const struct mp_outcome *outcome)
{
    for (unsigned c = 0; c < traffic->conn_count; c++)
        for (unsigned side = 0; side < 2; side++) {
            const struct traffic_conn *conn = &traffic->conns[c];
            int status = conn->downs[side] > 0 ? conn->down_status[side] : 0;
            int wanted = wanted_status(outcome, conn, side);

            if (conn->refused[side][0] != '\0' && conn->downs[side] == 0 && !conn->left[side])
                traffic_wrong(traffic, "side %u of connection %u is up, but %s", side, c,
                              conn->refused[side]);
            if (outcome->any || conn->left[side] || status == wanted)
                continue;
            traffic_wrong(traffic,
                          "side %u of connection %u ended with %s, not %s: %s (the other: %s)",
                          side, c, sluice_strerror(status), sluice_strerror(wanted),
                          status != 0 ? conn->why[side] : "it is up", conn->why[!side]);
        }
}

static uint64_t ups(const struct sl_mp_conn *conn)
{
    uint64_t count = 0;

    for (unsigned i = 0; i < conn->path_count; i++)
        count += conn->paths[i] != NULL ? conn->paths[i]->stats.ups : 0;
    return count;
}

void mp_ups_note(struct traffic *traffic)
{
    for (unsigned c = 0; c < traffic->conn_count; c++)
        for (unsigned side = 0; side < 2; side++)
            if (traffic->conns[c].ep[side] != NULL)
                traffic->conns[c].ups_at_calm[side] =
                    ups(sl_mp_conn_of(traffic->conns[c].ep[side]));
}

void mp_judge_ups(struct traffic *traffic)
{
    for (unsigned c = 0; c < traffic->conn_count; c++)
        for (unsigned side = 0; side < 2; side++) {
            const struct traffic_conn *conn = &traffic->conns[c];
            const struct sl_mp_conn *end =
                conn->ep[side] != NULL ? sl_mp_conn_of(conn->ep[side]) : NULL;

            if (end != NULL && ups(end) > conn->ups_at_calm[side] + end->path_count)
                traffic_wrong(traffic,
                              "paths of side %u, connection %u, came up %u times though nothing "
                              "was carried",
                              side, c, (unsigned)(ups(end) - conn->ups_at_calm[side]));
        }
}
