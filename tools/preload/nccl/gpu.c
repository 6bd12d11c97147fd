/* SPDX-License-Identifier: Apache-2.0 */
/* What the shim needs of the CUDA driver, which the program has loaded already. */
#include "tools/preload/nccl/gpu.h"

#include "core/dl.h"
#include "core/err.h"

struct gpu gpu;

int gpu_open(void)
{
#define ROW(name, symbol, params) {symbol, offsetof(struct gpu, name), false},
    static const struct sl_dl_symbol symbols[] = {GPU_FUNCTIONS(ROW)};
#undef ROW
    static const char *const names[] = {"libcuda.so.1", NULL};

    return sl_dl_open(names, symbols, SL_ARRAY_LEN(symbols), &gpu);
}

int gpu_check(int result, const char *what)
{
    const char *text = NULL;

    if (result == 0)
        return 0;
    gpu.error_string(result, &text);
    return sl_fail(-EIO, "CUDA could not %s: %s (%d)", what, text != NULL ? text : "unknown error",
                   result);
}
