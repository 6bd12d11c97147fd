/* SPDX-License-Identifier: Apache-2.0 */
/* The path list of a connection: which rail to which, and by which route through the fabric.
 * Pure. */
#ifndef SL_VERBS_PLAN_H
#define SL_VERBS_PLAN_H

#include "verbs/pairs.h"
#include "verbs/path_list.h"

#include <stddef.h>
#include <stdint.h>

struct sl_config;

#define SL_VERBS_LAG_PORTS_MAX SL_PATH_LAG_PORTS_MAX
#define SL_VERBS_FLOW_LABEL_MAX SL_PATH_LABEL_MAX
#define SL_VERBS_LMC_MAX 7

/* One path, and the route of what this end sends by it. Rails are numbered as each end lists them;
 * the peer sees the same path with both swapped, and has a route of its own for it. */
struct sl_verbs_path_spec {
    uint8_t local_rail, remote_rail;
    uint8_t turn;        /* among the paths between these rails, from 0 */
    uint8_t lag_port;    /* of the bond that a rail may be, from 1; 0: the driver's own choice */
    uint32_t flow_label; /* 0: the driver's own choice; SL_PATH_LABEL_OPEN: not chosen yet */
    uint8_t lid_bits;    /* the lower bits of the LID that it sends from; counts once a label is */
};

/* What the two ends have. */
struct sl_verbs_plan_ends {
    struct sl_verbs_reaches rails;
    uint8_t lag_ports[SL_MP_RAILS_MAX]; /* of each local rail that is a bond, else 0 */
};

/*
 * The paths of a connection between those rails: those of SLUICE_VERBS_PATHS in its order, or, with
 * auto, those of sl_verbs_pairs(), each once before any twice, SLUICE_VERBS_PATHS_PER_RAIL times
 * (0: once, or once for each port of the bond that a rail is, as far as there is room).
 *
 * Entries for rails that an end does not have are left out (a log line at info tells), since a port
 * may be missing on one host of many. -EINVAL: an entry cannot be read, or none is left, or there
 * are more than cap; the text names it.
 */
int sl_verbs_plan(const struct sl_config *config, const struct sl_verbs_plan_ends *ends,
                  struct sl_verbs_path_spec *out, size_t cap, size_t *count);

/*
 * Chooses the route of specs[at], beside those of the others that have one, and another one than it
 * has. What the list says of the path, its turn-th entry for these rails, stays. A label that it
 * leaves open is drawn from seed; no two paths, nor any label of the list, have the same UDP source
 * port then. Paths of a bonded rail that name none of its lag_ports take them in turns, in the
 * order of specs. False: there is a list, and it does not have the path.
 */
bool sl_verbs_plan_route(const struct sl_config *config, unsigned lag_ports, uint64_t seed,
                         struct sl_verbs_path_spec *specs, size_t count, size_t at);

/*
 * The lower bits of the LID that specs[at] is to have at this end, of a port with 2^lmc LIDs
 * (InfiniBand: a subnet manager lays a route to each). Those that the fewest other paths between
 * these rails have, but not the path's own of before; of several, seed chooses.
 */
uint8_t sl_verbs_plan_lid_bits(unsigned lmc, uint64_t seed, const struct sl_verbs_path_spec *specs,
                               size_t count, size_t at);

/* The UDP source port of RoCE v2 packets with that label, as the kernel and rdma-core derive it: so
 * the two are set to the same on devices that take one, and on those that take the other. */
uint16_t sl_verbs_udp_sport(uint32_t flow_label);

#endif
