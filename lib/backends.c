/* SPDX-License-Identifier: Apache-2.0 */
/* Registers the transports that this build contains; the build system writes SL_BACKENDS. */
#include "lib/backends.h"

#include "core/err.h"
#include "core/registry.h"
#include "core/transport.h"
#include "lib/backends_list.h"

#include <pthread.h>

#define DECLARE(name) extern const struct sl_transport_ops sl_##name##_ops;
SL_BACKENDS(DECLARE)

static void register_all(void)
{
#define REGISTER(name) sl_assert(sl_transport_register(&sl_##name##_ops) == 0);
    SL_BACKENDS(REGISTER)
#undef REGISTER
}

void sl_backends_register(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, register_all);
}
