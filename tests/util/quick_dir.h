/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A folder for files that a test has synced a thousand times: in memory where that can be had. What
 * a killed process leaves there is what it leaves on a disk.
 */
#ifndef SL_TESTS_UTIL_QUICK_DIR_H
#define SL_TESTS_UTIL_QUICK_DIR_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* False: neither /dev/shm nor /tmp will have it. The caller removes it. */
static inline bool quick_dir(char *out, size_t cap, const char *name)
{
    static const char *const places[] = {"/dev/shm", "/tmp"};

    for (unsigned i = 0; i < 2; i++) {
        snprintf(out, cap, "%s/%s-XXXXXX", places[i], name);
        if (mkdtemp(out) != NULL)
            return true;
    }
    return false;
}

#endif
