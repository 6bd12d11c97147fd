/* SPDX-License-Identifier: Apache-2.0 */
/* Stands in for json.c where json-c was not found at build time. */
#include "report.h"

#include "core/err.h"

static int absent(const char *path)
{
    return sl_fail(-ENOTSUP,
                   "cannot write %s: this build has no JSON, as json-c was missing; install "
                   "libjson-c-dev and build again, or use --csv",
                   path);
}

int sb_json_write(const char *path, const struct sb_results *results)
{
    (void)results;
    return absent(path);
}

int sb_json_write_list(const char *path, const char *version, const struct sb_transport *transports,
                       size_t count)
{
    (void)version, (void)transports, (void)count;
    return absent(path);
}
