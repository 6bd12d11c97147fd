/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a library at run time and fills a table with its functions. */
#include "core/dl.h"

#include "core/err.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

static void *open_first(const char *const *names)
{
    void *handle = NULL;

    for (; *names != NULL && handle == NULL; names++)
        handle = dlopen(*names, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    return handle;
}

int sl_dl_open(const char *const *names, const struct sl_dl_symbol *symbols, size_t count,
               void *table)
{
    void *handle = open_first(names);

    if (handle == NULL) {
        const char *why = dlerror();

        return sl_fail(-ENOTSUP, "%s cannot be opened: %s", names[0],
                       why != NULL ? why : "not installed");
    }
    for (size_t i = 0; i < count; i++) {
        void *function = dlsym(handle, symbols[i].name);

        if (function == NULL && !symbols[i].optional)
            return sl_fail(-ENOTSUP, "%s has no function %s: it is too old", names[0],
                           symbols[i].name);
        memcpy((char *)table + symbols[i].offset, &function, sizeof(function));
    }
    return 0;
}

bool sl_dl_is_loaded(const char *name)
{
    void *handle = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);

    if (handle == NULL)
        return false;
    dlclose(handle); /* the count that NOLOAD raised */
    return true;
}

static int take_loads(struct dl_phdr_info *info, size_t size, void *out)
{
    if (size >= offsetof(struct dl_phdr_info, dlpi_adds) + sizeof(info->dlpi_adds))
        *(unsigned long long *)out = info->dlpi_adds;
    return 1; /* the first library says it for all */
}

unsigned long long sl_dl_loads(void)
{
    unsigned long long loads = 0;

    dl_iterate_phdr(take_loads, &loads);
    return loads;
}
