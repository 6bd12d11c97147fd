/* SPDX-License-Identifier: Apache-2.0 */
/* The list of transports: a new version of it for each that is registered, so that readers need no
 * lock. */
#include "core/registry.h"

#include "core/config.h"
#include "core/err.h"
#include "core/event.h"
#include "core/module.h"
#include "core/transport.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <strings.h>

typedef const struct sl_transport_ops *transport_list[SL_TRANSPORTS_MAX + 1];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of who registers */
static struct sl_transport_ops filled[SL_TRANSPORTS_MAX];
static transport_list versions[SL_TRANSPORTS_MAX + 1]; /* versions[n] has n transports */
static _Atomic unsigned current;

static int check(const struct sl_transport_ops *ops)
{
    if (ops->name == NULL || ops->name[0] == '\0')
        return sl_fail(-EINVAL, "a transport without a name cannot be registered");
    if (ops->abi != SL_TRANSPORT_ABI)
        return sl_fail(-ENOTSUP,
                       "transport %s was built for version %u of Sluice's transports, and this is "
                       "version %u",
                       ops->name, ops->abi, SL_TRANSPORT_ABI);
    if (ops->number == 0 || ops->number >= SL_TRANSPORT_NUMBERS)
        return sl_fail(-EINVAL, "transport %s has number %u, but must have one from 1 to %u",
                       ops->name, ops->number, SL_TRANSPORT_NUMBERS - 1);
    for (const struct sl_transport_ops *const *t = sl_transports(); *t != NULL; t++) {
        if (strcasecmp((*t)->name, ops->name) == 0)
            return sl_fail(-EEXIST, "there is a transport %s already", ops->name);
        if ((*t)->number == ops->number)
            return sl_fail(-EEXIST, "transport %s has number %u, which is that of %s", ops->name,
                           ops->number, (*t)->name);
    }
    return 0;
}

/* Behind those that have no higher place. */
static void insert(transport_list out, const transport_list old, unsigned count,
                   const struct sl_transport_ops *ops)
{
    unsigned at = 0;

    while (at < count && old[at]->place <= ops->place)
        at++;
    memcpy(out, old, at * sizeof(out[0]));
    out[at] = ops;
    memcpy(out + at + 1, old + at, (count - at) * sizeof(out[0]));
    out[count + 1] = NULL;
}

int sl_transport_register(const struct sl_transport_ops *ops)
{
    pthread_mutex_lock(&lock);
    unsigned count = atomic_load(&current);
    int err = check(ops);

    if (err == 0 && count == SL_TRANSPORTS_MAX)
        err = sl_fail(-ENOSPC, "transport %s is one more than the %d that there is room for",
                      ops->name, SL_TRANSPORTS_MAX);
    if (err == 0 && ops->config != NULL)
        err = sl_config_register(ops->config);
    if (err == 0 && ops->events != NULL)
        err = sl_event_register(ops->events);
    if (err == 0) {
        insert(versions[count + 1], versions[count], count,
               sl_transport_complete(ops, &filled[count]));
        atomic_store(&current, count + 1);
    }
    pthread_mutex_unlock(&lock);
    return err;
}

const struct sl_transport_ops *const *sl_transports(void)
{
    return versions[atomic_load(&current)];
}

const struct sl_transport_ops *sl_transport_find(const char *name, size_t len)
{
    for (const struct sl_transport_ops *const *t = sl_transports(); *t != NULL; t++)
        if (strlen((*t)->name) == len && strncasecmp((*t)->name, name, len) == 0)
            return *t;
    return NULL;
}

const struct sl_transport_ops *sl_transport_with(uint32_t traits)
{
    for (const struct sl_transport_ops *const *t = sl_transports(); *t != NULL; t++)
        if (((*t)->traits & traits) == traits)
            return *t;
    return NULL;
}

static int list_all(const struct sl_transport_ops **out, unsigned cap, unsigned *count)
{
    for (const struct sl_transport_ops *const *t = sl_transports(); *t != NULL; t++) {
        if (*count == cap)
            return sl_fail(-EINVAL,
                           "there are more than %u transports: SLUICE_TRANSPORT must name those to "
                           "use",
                           cap);
        out[(*count)++] = *t;
    }
    return *count != 0 ? 0 : sl_fail(-ENODEV, "this build has no transport");
}

/* A module of that name may be here and not fit. */
static int refuse_name(const char *name, int len)
{
    const char *module, *why;

    for (unsigned i = 0; (module = sl_module_refused(i, &why)) != NULL; i++)
        if (strlen(module) == (size_t)len && strncasecmp(module, name, (size_t)len) == 0)
            return sl_fail(-ENODEV, "there is no transport '%.*s': %s", len, name, why);
    return sl_fail(-ENODEV, "there is no transport '%.*s' in this build; see sluice-bench --list",
                   len, name);
}

int sl_transport_list(const char *list, const struct sl_transport_ops **out, unsigned cap,
                      unsigned *count)
{
    *count = 0;
    if (strcasecmp(list, "auto") == 0)
        return list_all(out, cap, count);
    while (*list != '\0') {
        size_t len = strcspn(list, ",");

        if (*count == cap)
            return sl_fail(-EINVAL, "SLUICE_TRANSPORT lists more than %u transports", cap);
        out[*count] = sl_transport_find(list, len);
        if (out[*count] == NULL)
            return refuse_name(list, (int)len);
        (*count)++;
        list += len + (list[len] == ',');
    }
    return *count != 0 ? 0 : sl_fail(-EINVAL, "SLUICE_TRANSPORT names no transport");
}
