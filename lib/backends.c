/* SPDX-License-Identifier: Apache-2.0 */
/* The list of transports that this build contains. */
#include "core/transport.h"

#include <stddef.h>
#include <string.h>

extern const struct sl_transport_ops sl_shm_ops, sl_tcp_ops;

static const struct sl_transport_ops *const *complete(void)
{
    static const struct sl_transport_ops *const given[] = {&sl_shm_ops, &sl_tcp_ops};
    static struct sl_transport_ops filled[sizeof(given) / sizeof(given[0])];
    static const struct sl_transport_ops *list[sizeof(given) / sizeof(given[0]) + 1];

    for (size_t i = 0; i < sizeof(given) / sizeof(given[0]); i++)
        list[i] = sl_transport_complete(given[i], &filled[i]);
    return list;
}

const struct sl_transport_ops *const *sl_transports(void)
{
    static const struct sl_transport_ops *const *list;

    if (list == NULL)
        list = complete();
    return list;
}

const struct sl_transport_ops *sl_transport_find(const char *name, size_t len)
{
    for (const struct sl_transport_ops *const *t = sl_transports(); *t != NULL; t++)
        if (strlen((*t)->name) == len && memcmp((*t)->name, name, len) == 0)
            return *t;
    return NULL;
}
