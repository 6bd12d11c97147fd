/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/mp_judge.h"

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
    for (unsigned i = 0; i < conn->path_count && calm; i++)
        if (conn->paths[i]->stats.failures > 0)
            traffic_wrong(traffic, "path %u failed though nothing was done to it: %s", i,
                          conn->paths[i]->why);
}
