/* SPDX-License-Identifier: Apache-2.0 */
/* The list of transports that this build contains; the build system writes SL_BACKENDS. */
#include "core/transport.h"

#include "lib/backends_list.h"

#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

#define DECLARE(name) extern const struct sl_transport_ops sl_##name##_ops;
#define POINT(name) &sl_##name##_ops,
SL_BACKENDS(DECLARE)

static const struct sl_transport_ops *const given[] = {SL_BACKENDS(POINT) NULL};
static struct sl_transport_ops filled[sizeof(given) / sizeof(given[0])];
static const struct sl_transport_ops *list[sizeof(given) / sizeof(given[0])];

static void complete(void)
{
    for (size_t i = 0; given[i] != NULL; i++)
        list[i] = sl_transport_complete(given[i], &filled[i]);
}

const struct sl_transport_ops *const *sl_transports(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, complete);
    return list;
}

const struct sl_transport_ops *sl_transport_find(const char *name, size_t len)
{
    for (const struct sl_transport_ops *const *t = sl_transports(); *t != NULL; t++)
        if (strlen((*t)->name) == len && strncasecmp((*t)->name, name, len) == 0)
            return *t;
    return NULL;
}
