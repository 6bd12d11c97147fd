/* SPDX-License-Identifier: Apache-2.0 */
/* Which ports are near this rank: SLUICE_VERBS_LOCALITY. */
#ifndef SL_VERBS_NEAR_H
#define SL_VERBS_NEAR_H

#include "core/locality.h"

#include <stdbool.h>

struct sl_config;
struct sl_verbs_port;

struct sl_verbs_near {
    struct sl_locality rank;
    bool matters, leaves_out; /* ports are held in reserve; are not used at all */
    struct sl_distance nearest;
};

/* Reads where this rank is. Far ports matter unless the settings say otherwise, or list paths, or,
 * with auto, name devices. */
void sl_verbs_near_begin(const struct sl_config *config, struct sl_verbs_near *out);
/* Fills in port->distance and port->node. counts: others are far, if they are farther than it. */
void sl_verbs_near_measure(struct sl_verbs_near *near, struct sl_verbs_port *port, bool counts);
/* Once all are measured: sets port->is_far, or says in port->why that it is left out. */
void sl_verbs_near_judge(const struct sl_verbs_near *near, struct sl_verbs_port *port);
/* "NUMA node 1 (far, in reserve)"; "": nothing is known. */
#define SL_VERBS_WHERE_MAX 80
void sl_verbs_near_text(const struct sl_verbs_port *port, char *out, size_t cap);

#endif
