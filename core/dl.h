/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a library at run time and fills a table with its functions. */
#ifndef SL_CORE_DL_H
#define SL_CORE_DL_H

#include <stdbool.h>
#include <stddef.h>

/* One function of a table: where its pointer goes. */
struct sl_dl_symbol {
    const char *name;
    size_t offset; /* of the pointer in the table */
    bool optional; /* left NULL when the library has no such function */
};

/* Opens the first of names (NULL-terminated) that the linker finds, and fills table. The library
 * stays open for the life of the process: it may have left threads or handlers behind. -ENOTSUP:
 * not installed, or without a function that is not optional; the text names it. */
int sl_dl_open(const char *const *names, const struct sl_dl_symbol *symbols, size_t count,
               void *table);

/* Has this process that library open, through whomever? Opens nothing. */
bool sl_dl_is_loaded(const char *name);

/* How many libraries this process has loaded so far, those included that went again. Where it has
 * not changed, no library came that was not there. Some ten nanoseconds, and no system call. */
unsigned long long sl_dl_loads(void);

#endif
