/* SPDX-License-Identifier: Apache-2.0 */
/* Stands in for json.c where json-c was not found at build time. */
#include "report.h"

#include "core/err.h"

int sb_json_write(const char *path, const struct sb_results *results)
{
    (void)results;
    return sl_fail(-ENOTSUP,
                   "cannot write %s: this build has no JSON, as json-c was missing; install "
                   "libjson-c-dev and build again, or use --csv",
                   path);
}
