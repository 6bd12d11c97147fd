/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the kernel how often this thread had to give its core away. */
#include "core/load.h"

#include <sys/resource.h>

void sl_load_now(struct sl_load *out)
{
    struct rusage usage = {.ru_nivcsw = 0};

    getrusage(RUSAGE_THREAD, &usage);
    out->switches = (uint64_t)usage.ru_nivcsw;
}
