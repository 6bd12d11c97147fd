/* SPDX-License-Identifier: Apache-2.0 */
/* Reading the GIDs of a port; what is done with them stands in device.h. */
#ifndef SL_VERBS_GID_H
#define SL_VERBS_GID_H

#include "verbs/device.h"

/* Fills gids of a port whose other fields are there, from a table of that length. Empty entries are
 * left out, and what is beyond the room of the structure. */
void sl_verbs_gids_read(const struct sl_ibv *ibv, struct ibv_context *context, unsigned table_len,
                        struct sl_verbs_port *port);

#endif
