/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets that this process listens on for a rank 0 that is still to be made: by a unique id, or by
 * the parent that forked it. Found again by their port. */
#ifndef SL_LAUNCH_KEPT_H
#define SL_LAUNCH_KEPT_H

#include "launch/address.h"

#include <stdbool.h>

/* Keeps listeners, from any thread. -ENOMEM: too many are kept; they stay the caller's. */
int sl_kept_put(const struct sl_listeners *listeners);

/* Takes those of this port out again, from any thread. */
bool sl_kept_take(uint16_t port, struct sl_listeners *out);

#endif
