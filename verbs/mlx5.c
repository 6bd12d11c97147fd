/* SPDX-License-Identifier: Apache-2.0 */
/* What only NVIDIA's devices let us choose for a queue pair: its UDP source port, and the port of a
 * bond. */
#include "multipath/conn.h"
#include "verbs/iface.h"
#include "verbs/queue_pair.h"

#include "core/log.h"
#include "multipath/plan.h"

uint8_t sl_verbs_lag_ports(const struct sl_mlx5dv *mlx5dv, struct ibv_context *context)
{
    struct sl_mlx5dv_context attr = {.comp_mask = SL_MLX5DV_MASK_NUM_LAG_PORTS};

    if (mlx5dv == NULL || mlx5dv->mlx5dv_query_device == NULL ||
        mlx5dv->mlx5dv_modify_qp_lag_port == NULL ||
        mlx5dv->mlx5dv_query_device(context, &attr) != 0 ||
        (attr.comp_mask & SL_MLX5DV_MASK_NUM_LAG_PORTS) == 0)
        return 0;
    return attr.num_lag_ports > 1 ? attr.num_lag_ports : 0;
}

/* The source port itself, not only the label that it is made from. */
int sl_verbs_mlx5_sport(struct sl_verbs_path *path)
{
    const struct sl_mlx5dv *mlx5dv = path->rail->iface->mlx5dv;
    const struct sl_verbs_device *device = path->rail->device;
    uint16_t sport = sl_mp_udp_sport(path->flow_label);

    if (device == NULL || !device->is_mlx5 || mlx5dv == NULL || path->flow_label == 0 ||
        path->rail->port.link_layer != IBV_LINK_LAYER_ETHERNET ||
        mlx5dv->mlx5dv_modify_qp_udp_sport == NULL)
        return -ENOTSUP;
    int err = mlx5dv->mlx5dv_modify_qp_udp_sport(path->qp, sport);

    if (err == 0)
        return 0;
    sl_debug("verbs", "%s does not take UDP source port %u: %s", path->rail->port.name, sport,
             sluice_strerror(-err));
    return -ENOTSUP;
}

/* A port of the bond that is down has its queue pairs on another one: the driver tells which. */
static void set_lag_port(struct sl_verbs_path *path, const struct sl_mlx5dv *mlx5dv)
{
    uint8_t wanted = path->lag_port, chosen = 0, active = 0;

    path->lag_active = 0;
    if (path->rail->device->lag_ports == 0)
        return;
    if (wanted > path->rail->device->lag_ports)
        sl_warn("verbs",
                "%s is a bond of %u ports: path %u to %s asks for port %u, and takes whichever "
                "its driver chooses",
                path->rail->port.name, path->rail->device->lag_ports, path->base.idx,
                sl_ep_peer_name(&path->base.conn->base), wanted);
    else if (wanted != 0) {
        int err = mlx5dv->mlx5dv_modify_qp_lag_port(path->qp, wanted);

        if (err != 0)
            sl_warn("verbs", "%s does not let path %u take port %u of its bond: %s",
                    path->rail->port.name, path->base.idx, wanted, sluice_strerror(-err));
    }
    if (mlx5dv->mlx5dv_query_qp_lag_port == NULL ||
        mlx5dv->mlx5dv_query_qp_lag_port(path->qp, &chosen, &active) != 0)
        return;
    path->lag_active = active;
    sl_debug("verbs",
             "path %u to %s leaves by port %u of the bond %s, for which %u stands at present",
             path->base.idx, sl_ep_peer_name(&path->base.conn->base), chosen, path->rail->port.name,
             active);
}

void sl_verbs_mlx5_route(struct sl_verbs_path *path)
{
    const struct sl_mlx5dv *mlx5dv = path->rail->iface->mlx5dv;

    if (!path->rail->device->is_mlx5 || mlx5dv == NULL)
        return;
    (void)sl_verbs_mlx5_sport(path);
    set_lag_port(path, mlx5dv);
}
