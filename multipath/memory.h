/* SPDX-License-Identifier: Apache-2.0 */
/* Frames and staging of an interface whose lanes need no registered memory. */
#ifndef SL_MULTIPATH_MEMORY_H
#define SL_MULTIPATH_MEMORY_H

#include "multipath/iface.h"

/* Takes both, which all rails carry, and opens the interface with them. After sl_mp_iface_init()
 * and when all rails are there. -ENOMEM; sl_mp_memory_close() takes what is there. */
int sl_mp_memory_open(struct sl_mp_iface *iface, unsigned chunks);
/* After sl_mp_iface_fini(). */
void sl_mp_memory_close(struct sl_mp_iface *iface);

#endif
