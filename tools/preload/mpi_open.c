/* SPDX-License-Identifier: Apache-2.0 */
/* An MPI module's beginning: looks up what it calls and hands its functions to the shim. */
#include "core/err.h"
#include "tools/preload/config.h"
#include "tools/preload/mpi_module.h"

#include <stdio.h>
#include <unistd.h>

struct sl_mpi_module sl_mpi;

/* A variable that is wrong is not complained about here: the engine does, and then all ranks pass
 * calls on together. */
static void read_settings(void)
{
    struct sl_preload_config config;

    (void)sl_preload_config_read(&config, environ);
    sl_mpi.early_calls = config.mpi_early_calls;
}

SL_PRELOAD_EXPORT sl_preload_open_fn sl_preload_open;

int sl_preload_open(const struct sl_preload_host *host, void **take, unsigned count, char *why,
                    size_t cap)
{
    if (host->abi != SL_PRELOAD_ABI || count != SL_MPI_CALL_COUNT) {
        snprintf(why, cap, "the module is of another version of Sluice than the shim");
        return -EPROTO;
    }
    sl_mpi.host = host;
    read_settings();
#define X(name)                                                                                    \
    if ((sl_mpi.next.name = (__typeof__(PMPI_##name) *)host->find(host, "PMPI_" #name)) == NULL) { \
        snprintf(why, cap, "the MPI library has no PMPI_" #name);                                  \
        return -ENOTSUP;                                                                           \
    }
    SL_MPI_NEXT(X)
#undef X
    int err = sl_mpi_constants(host);

    if (err != 0) {
        snprintf(why, cap, "%s", sluice_last_error());
        return err;
    }
#define X(call, params, args) take[SL_MPI_##call] = (void *)sl_mpi_take_##call;
    SL_MPI_CALLS(X)
#undef X
    return 0;
}
