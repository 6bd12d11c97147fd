/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Entry points of NCCL. Not the pncclX names: their callers ask for the library itself.
 * Nothing is taken unless SLUICE_PRELOAD_NCCL names calls: on a GPU NCCL's own kernels are faster
 * wherever the network is not what limits.
 */
#include "tools/preload/config.h"
#include "tools/preload/frame.h"
#include "tools/preload/nccl_calls.h"

#include <stdio.h>
#include <unistd.h>

#define X(call, ret, params, args) SL_PRELOAD_ENTRY(sl_preload_nccl, nccl##call, ret, params, args)
SL_NCCL_CALLS(X)
#undef X

#define X(call, ret, params, args) SL_PRELOAD_ROW(SL_NCCL_##call, nccl##call)
static const struct sl_preload_entry entries[] = {SL_NCCL_CALLS(X)};
#undef X

#define X(call, ret, params, args) "nccl" #call,
static const char *const calls[] = {SL_NCCL_CALLS(X)};
#undef X

static const char *module(const struct sl_preload_host *host, char *why, size_t cap)
{
    struct sl_preload_config config;

    (void)host;
    if (sl_preload_config_read(&config, environ) == 0 && config.nccl[0] != '\0')
        return "nccl";
    snprintf(why, cap, "SLUICE_PRELOAD_NCCL names no call to take");
    return NULL;
}

static const char *const prefixes[] = {"libnccl", NULL};
static struct sl_preload_count counts[SL_NCCL_CALL_COUNT];

struct sl_preload_family sl_preload_nccl = {
    .name = "nccl",
    .prefixes = prefixes,
    .probe = "pncclAllReduce",
    .calls = calls,
    .call_count = SL_NCCL_CALL_COUNT,
    .entries = entries,
    .entry_count = sizeof(entries) / sizeof(entries[0]),
    .counts = counts,
    .module = module,
};
