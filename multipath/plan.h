/* SPDX-License-Identifier: Apache-2.0 */
/* The path list of a connection: which rail to which, and by which route through the fabric.
 * Pure. */
#ifndef SL_MULTIPATH_PLAN_H
#define SL_MULTIPATH_PLAN_H

#include "multipath/pairs.h"
#include "multipath/path_list.h"

#include <stddef.h>
#include <stdint.h>

/* What this end's user asks for. */
struct sl_mp_path_wishes {
    const char *area;     /* of log lines */
    const char *variable; /* which has the list: "SLUICE_VERBS_PATHS" */
    const char *list;
    int64_t per_rail; /* of the variable that is called so with _PER_RAIL behind it */
};

/* One path, and the route of what this end sends by it. Rails are numbered as each end lists them;
 * the peer sees the same path with both swapped, and has a route of its own for it. */
struct sl_mp_path_spec {
    uint8_t local_rail, remote_rail;
    uint8_t turn;        /* among the paths between these rails, from 0 */
    uint8_t lag_port;    /* of the bond that a rail may be, from 1; 0: the driver's own choice */
    uint32_t flow_label; /* 0: the driver's own choice; SL_PATH_LABEL_OPEN: not chosen yet */
    uint8_t lid_bits;    /* InfiniBand's lanes' own; counts once a label is chosen */
};

/* What the two ends have. */
struct sl_mp_plan_ends {
    struct sl_mp_reaches rails;
    uint8_t lag_ports[SL_MP_RAILS_MAX]; /* of each local rail that is a bond, else 0 */
};

/*
 * The paths of a connection between those rails: those of the list in its order, or, with
 * auto, those of sl_mp_pairs(), each once before any twice, per_rail times
 * (0: once, or once for each port of the bond that a rail is, as far as there is room).
 *
 * Entries for rails that an end does not have are left out (a log line at info tells), since a port
 * may be missing on one host of many. -EINVAL: an entry cannot be read, or none is left, or there
 * are more than cap; the text names it.
 */
int sl_mp_plan(const struct sl_mp_path_wishes *wishes, const struct sl_mp_plan_ends *ends,
               struct sl_mp_path_spec *out, size_t cap, size_t *count);

/*
 * Chooses the route of specs[at], beside those of the others that have one, and another one than it
 * has. What the list says of the path, its turn-th entry for these rails, stays. A label that it
 * leaves open is drawn from seed; no two paths, nor any label of the list, have the same UDP source
 * port then. Paths of a bonded rail that name none of its lag_ports take them in turns, in the
 * order of specs. False: there is a list, and it does not have the path.
 */
bool sl_mp_plan_route(const struct sl_mp_path_wishes *wishes, unsigned lag_ports, uint64_t seed,
                      struct sl_mp_path_spec *specs, size_t count, size_t at);

/* The UDP source port of packets with that label. It is that of RoCE v2, as the kernel and
 * rdma-core derive it: so the two are set to the same on devices that take one, and on those that
 * take the other. */
uint16_t sl_mp_udp_sport(uint32_t flow_label);

#endif
