/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/mp_judge.h"

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
    if (conn->tx_oldest != conn->tx_next || conn->rx_oldest != conn->rx_next || conn->held > 0 ||
        conn->redo_count > 0 || !sl_list_empty(&conn->deal) || conn->early_count > 0 ||
        conn->unannounced > 0 || conn->drops.count > 0 || (conn->control_count > 0 && !full) ||
        !sl_list_empty(&conn->repeat))
        traffic_wrong(
            traffic,
            "rank %d has something left to do: %u of %u sends, %u of %u receives, %u held, %u "
            "redo, "
            "%u deal, %u early, %u unannounced, %u drops, %u records",
            peer->base.peer, conn->tx_oldest, conn->tx_next, conn->rx_oldest, conn->rx_next,
            conn->held, conn->redo_count, !sl_list_empty(&conn->deal), conn->early_count,
            conn->unannounced, conn->drops.count, conn->control_count);
    for (unsigned i = 0; i < conn->path_count && calm; i++)
        if (conn->paths[i]->stats.failures > 0)
            traffic_wrong(traffic, "path %u failed though nothing was done to it: %s", i,
                          conn->paths[i]->why);
}
