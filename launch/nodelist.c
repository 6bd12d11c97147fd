/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the first host out of Slurm's list of hosts. */
#include "launch/nodelist.h"

#include "core/err.h"

#include <stdbool.h>
#include <string.h>

static bool is_name(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '_' || c == '.';
}

static int fail_list(const char *list)
{
    return sl_fail(-EINVAL,
                   "Slurm's list of hosts '%.100s' could not be understood; set "
                   "SLUICE_ROOT=host:port for the host of rank 0",
                   list);
}

int sl_nodelist_first(const char *list, char *out, size_t cap)
{
    char host[256];
    size_t len = 0;
    const char *at = list;

    while (*at != '\0' && *at != ',') {
        bool bracket = *at == '[';
        size_t run = 0;

        at += bracket;
        /* In brackets, the first number ends at the range's dash or the next item. */
        while (bracket ? at[run] >= '0' && at[run] <= '9' : is_name(at[run]))
            run++;
        if (run == 0 || len + run >= sizeof(host))
            return fail_list(list);
        memcpy(host + len, at, run);
        len += run;
        at += run;
        if (bracket) {
            size_t rest = strspn(at, "0123456789-,");

            if (at[rest] != ']')
                return fail_list(list);
            at += rest + 1;
        }
    }
    if (len == 0 || len >= cap)
        return fail_list(list);
    host[len] = '\0';
    memcpy(out, host, len + 1);
    return 0;
}
