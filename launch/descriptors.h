/* SPDX-License-Identifier: Apache-2.0 */
/* How many descriptors this process may open, while rank 0 has a connection to every rank. */
#ifndef SL_LAUNCH_DESCRIPTORS_H
#define SL_LAUNCH_DESCRIPTORS_H

#include <stdbool.h>
#include <sys/resource.h>

struct sl_descriptors {
    bool raised;
    struct rlimit before;
};

/* Makes room for count more, and some beside them, up to the hard limit. -EMFILE says how many are
 * needed where that is too low. */
int sl_descriptors_raise(unsigned count, struct sl_descriptors *out);

/* Puts the limit back; what is open stays open. */
void sl_descriptors_restore(const struct sl_descriptors *descriptors);

#endif
