/* SPDX-License-Identifier: Apache-2.0 */
/* Whether something else wants the core of this thread. */
#ifndef SL_CORE_LOAD_H
#define SL_CORE_LOAD_H

#include <stdint.h>

struct sl_load {
    /* times that another thread took the core while this one wanted it, since it began */
    uint64_t switches;
};

void sl_load_now(struct sl_load *out);

#endif
