/* SPDX-License-Identifier: Apache-2.0 */
/* The library's version. */
#include <sluice/error.h>
#include <sluice/types.h>

#include "lib/commit.h"

#include <stdio.h>

int sluice_version(void)
{
    return SLUICE_VERSION_MAJOR * 10000 + SLUICE_VERSION_MINOR * 100 + SLUICE_VERSION_PATCH;
}

const char *sluice_version_string(void)
{
    static char text[64];

    if (text[0] == '\0')
        snprintf(text, sizeof(text), "%d.%d.%d (%s)", SLUICE_VERSION_MAJOR, SLUICE_VERSION_MINOR,
                 SLUICE_VERSION_PATCH, SL_COMMIT);
    return text;
}
