/* SPDX-License-Identifier: Apache-2.0 */
/* What a connection tells of itself and its paths: operations of core/transport.h. */
#ifndef SL_MULTIPATH_STATS_H
#define SL_MULTIPATH_STATS_H

#include "core/transport.h"

size_t sl_mp_ep_stats(const struct sl_ep *ep, struct sl_state_path *out, size_t cap);
void sl_mp_ep_describe(const struct sl_ep *ep, char *out, size_t cap);

#endif
