/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses between the engines. */
#include "tcp/engine.h"

#include "core/err.h"
#include "core/log.h"

#include <stdio.h>

extern const struct sl_tcp_engine_ops *const sl_tcp_engines[]; /* best first; engines_*.c */

int sl_tcp_engine_open(enum sl_tcp_engine_kind kind, const struct sl_tcp_engine_ops **ops,
                       void **engine)
{
    char why[SL_ERROR_TEXT_MAX] = "";
    int first = 0;

    for (size_t i = 0; sl_tcp_engines[i] != NULL; i++) {
        if (kind != SL_TCP_ENGINE_AUTO && kind != sl_tcp_engines[i]->kind)
            continue;
        int err = sl_tcp_engines[i]->open(engine);

        if (err == 0) {
            *ops = sl_tcp_engines[i];
            return 0;
        }
        sl_info("tcp", "the %s engine is out: %s", sl_tcp_engines[i]->name, sluice_last_error());
        if (first == 0) {
            /* It should have been that one: a lack of memory is not that io_uring is missing. */
            first = err;
            snprintf(why, sizeof(why), "%s", sluice_last_error());
        }
    }
    if (first == 0)
        return sl_fail(-ENOTSUP, "this build has no tcp engine 'uring' (liburing was not there)");
    return sl_fail_text(first, why);
}
