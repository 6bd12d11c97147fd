/* SPDX-License-Identifier: Apache-2.0 */
/* What a planner wants of paths while they carry, by the path table (docs/paths.md): weights, paths
 * to be avoided, labels. */
#ifndef SL_MULTIPATH_STEER_H
#define SL_MULTIPATH_STEER_H

#include <stdint.h>

struct sl_mp_iface;
struct sl_mp_path;

/* By the timers: looks whether the table has changed, and has it applied, to some connections at a
 * time. */
void sl_mp_steer(struct sl_mp_iface *iface, uint64_t now_ns);
/* A path is new: what the table says of it counts from the start. */
void sl_mp_steer_path(struct sl_mp_path *path);
/* Its lane has routes: what the table says of each. Events tell what is another. */
void sl_mp_steer_routes(struct sl_mp_path *path);

#endif
