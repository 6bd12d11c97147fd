/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Entry points of gloo, which PyTorch's CPU collectives are made of: in libgloo.so, or inside of
 * libtorch_cpu.so. Exceptions of the originals and of the module fly through these frames.
 */
#include "tools/preload/frame.h"
#include "tools/preload/gloo_calls.h"

#include <stdio.h>

#define X(call, symbol)                                                                            \
    SL_PRELOAD_ENTRY(sl_preload_gloo, symbol, void, SL_GLOO_PARAMS, SL_GLOO_ARGS)
SL_GLOO_CALLS(X)
#undef X

#define X(call, symbol) SL_PRELOAD_ROW(SL_GLOO_##call, symbol)
static const struct sl_preload_entry entries[] = {SL_GLOO_CALLS(X)};
#undef X

#define X(call, symbol) "gloo::" #call,
static const char *const calls[] = {SL_GLOO_CALLS(X)};
#undef X

static const char *module(const struct sl_preload_host *host, char *why, size_t cap)
{
    return "gloo";
}

static struct sl_preload_count counts[SL_GLOO_CALL_COUNT];

struct sl_preload_family sl_preload_gloo = {
    .name = "gloo",
    .prefixes = (const char *const[]){"libgloo.so", "libtorch_cpu.so", NULL},
    .probe = "_ZN4gloo9allreduceERKNS_16AllreduceOptionsE",
    .calls = calls,
    .call_count = SL_GLOO_CALL_COUNT,
    .entries = entries,
    .entry_count = sizeof(entries) / sizeof(entries[0]),
    .counts = counts,
    .module = module,
};
