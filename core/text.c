/* SPDX-License-Identifier: Apache-2.0 */
/* Texts that grow: the part of core/err.h without any state, so that modules have it, too. */
#include "core/err.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void sl_text_set(char **text, const char *fmt, ...)
{
    char *fresh;
    va_list args;

    va_start(args, fmt);
    if (vasprintf(&fresh, fmt, args) < 0)
        fresh = NULL;
    va_end(args);
    free(*text);
    *text = fresh;
}

bool sl_text_add(char *out, size_t cap, const char *fmt, ...)
{
    size_t used = strlen(out);
    va_list args;

    if (used >= cap)
        return false;
    va_start(args, fmt);
    int len = vsnprintf(out + used, cap - used, fmt, args);
    va_end(args);
    return len >= 0 && (size_t)len < cap - used;
}
