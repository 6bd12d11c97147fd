/* SPDX-License-Identifier: Apache-2.0 */
/* The module of libsluice-preload.so for programs that use NCCL. */
#include "tools/preload/config.h"
#include "tools/preload/nccl/calls.h"
#include "tools/preload/nccl/gpu.h"
#include "tools/preload/nccl/next.h"
#include "tools/preload/nccl/rules.h"

#include "core/err.h"

#include <stdio.h>
#include <unistd.h>

struct nccl_next nccl;
const struct sl_preload_host *nccl_host;

SL_PRELOAD_EXPORT sl_preload_open_fn sl_preload_open;

/* By their second names: those are never anybody's wrapper. */
static void find_originals(const struct sl_preload_host *host)
{
#define FIND(call, ret, params, args) nccl.call = (ret(*) params)host->find(host, "pnccl" #call);
    SL_NCCL_CALLS(FIND)
#undef FIND
    nccl.CommCount =
        (enum nccl_result(*)(const struct nccl_comm *, int *))host->find(host, "pncclCommCount");
    nccl.CommUserRank =
        (enum nccl_result(*)(const struct nccl_comm *, int *))host->find(host, "pncclCommUserRank");
}

int sl_preload_open(const struct sl_preload_host *host, void **take, unsigned count, char *why,
                    size_t cap)
{
    struct sl_preload_config config;

    if (host->abi != SL_PRELOAD_ABI || count != SL_NCCL_CALL_COUNT) {
        snprintf(why, cap, "libsluice-preload.so and its module for NCCL are of different builds");
        return -EPROTO;
    }
    nccl_host = host;
    find_originals(host);
    if (nccl.AllGather == NULL || nccl.CommGetAsyncError == NULL || nccl.GroupEnd == NULL ||
        nccl.CommCount == NULL || nccl.CommUserRank == NULL) {
        snprintf(why, cap, "the NCCL of this process has no pnccl functions to go on to");
        return -ENOTSUP;
    }
    if (sl_preload_config_read(&config, environ) != 0 || nccl_rules_read(config.nccl) != 0 ||
        gpu_open() != 0) {
        snprintf(why, cap, "%s", sluice_last_error());
        return -ENOTSUP;
    }
    /* What this NCCL does not have stays missing. */
#define TAKE(call, ret, params, args)                                                              \
    if (nccl.call != NULL)                                                                         \
        take[SL_NCCL_##call] = (void *)shim_##call;
    SL_NCCL_CALLS(TAKE)
#undef TAKE
    return 0;
}
