/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Enhanced connection establishment: what two devices of one vendor can do beyond the standard, as
 * selective repeat, by bits that only their driver knows. OFFER has what this end's queue pair can;
 * the other end's takes what it can of that, and ACCEPT says what it took, before either is in RTR
 * with it. (docs/design/0034-queue-pair-attributes.md)
 */
#include "multipath/conn.h"
#include "verbs/config.h"
#include "verbs/iface.h"
#include "verbs/queue_pair.h"

#include "core/log.h"

void sl_verbs_ece_ask(struct sl_verbs_path *path)
{
    const struct sl_verbs_iface *iface = path->rail->iface;
    struct ibv_ece ece = {0};

    path->ece = ece;
    if (sl_verbs_config(iface->config)->ece == SL_VERBS_ECE_OFF || path->shuns_ece ||
        iface->ibv->ibv_query_ece == NULL || iface->ibv->ibv_set_ece == NULL)
        return;
    if ((iface->ibv->ibv_query_ece)(path->qp, &ece) == 0 && ece.options != 0)
        path->ece = (struct ibv_ece){.vendor_id = ece.vendor_id, .options = ece.options};
}

int sl_verbs_ece_set(struct sl_verbs_path *path, const struct sl_verbs_offer *theirs)
{
    struct ibv_ece ece = {.vendor_id = theirs->ece_vendor, .options = theirs->ece_options};
    bool suits = path->ece.options != 0 && path->ece.vendor_id == ece.vendor_id;
    int err;

    if (ece.options == 0 || (!suits && !path->base.leads)) {
        path->ece = (struct ibv_ece){0};
        return 0;
    }
    if (!suits)
        return sl_fail(-EPROTO, "the peer took ECE options of vendor 0x%x, which were not offered",
                       ece.vendor_id);
    path->ece = ece;
    err = (path->rail->iface->ibv->ibv_set_ece)(path->qp, &ece);
    return err == 0 ? 0
                    : sl_fail(-err, "%s does not take the peer's ECE options 0x%x: %s",
                              path->rail->port.name, ece.options, sluice_strerror(-err));
}

void sl_verbs_ece_settle(struct sl_verbs_path *path)
{
    struct ibv_ece ece = {0};

    if (path->ece.options == 0)
        return;
    if (!path->base.leads && (path->rail->iface->ibv->ibv_query_ece)(path->qp, &ece) == 0)
        path->ece.options = ece.options;
    if (path->ece.options == 0)
        path->ece.vendor_id = 0;
    sl_debug("verbs", "path %u to %s has the ECE options 0x%x of vendor 0x%x", path->base.idx,
             sl_ep_peer_name(&path->base.conn->base), path->ece.options, path->ece.vendor_id);
}
