/* SPDX-License-Identifier: Apache-2.0 */
/* Fills the table of cuda_dl.h from the driver of this machine. */
#include "gdr/cuda_dl.h"

#include "core/dl.h"
#include "core/err.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>

#define NEEDED(name, args) {#name, offsetof(struct sl_cuda, name), false},
#define OPTIONAL(name, args) {#name, offsetof(struct sl_cuda, name), true},

static const char *const library[] = {"libcuda.so.1", NULL};
static struct sl_cuda table;
static const struct sl_cuda *cuda;
static int cuda_error;
static char cuda_why[256];
static bool replaced;
static _Atomic bool is_loaded;
static _Atomic unsigned long long absent_at; /* libraries loaded when the driver was not there */

static void open_library(void)
{
    static const struct sl_dl_symbol symbols[] = {SL_CUDA_FUNCTIONS(NEEDED, OPTIONAL)};

    cuda_error = sl_dl_open(library, symbols, SL_ARRAY_LEN(symbols), &table);
    if (cuda_error == 0)
        cuda = &table;
    else
        snprintf(cuda_why, sizeof(cuda_why), "%s", sluice_last_error());
}

int sl_cuda_get(const struct sl_cuda **out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    if (!replaced)
        pthread_once(&once, open_library);
    if (cuda == NULL)
        return sl_fail(-ENOTSUP, "there is no CUDA driver to use: %s",
                       replaced ? "none is installed" : cuda_why);
    *out = cuda;
    return 0;
}

const struct sl_cuda *sl_cuda_loaded(void)
{
    const struct sl_cuda *out = NULL;
    unsigned long long loads;

    if (replaced || atomic_load_explicit(&is_loaded, memory_order_acquire))
        return cuda;
    loads = sl_dl_loads();
    if (loads != 0 && loads == atomic_load_explicit(&absent_at, memory_order_relaxed))
        return NULL;
    if (!sl_dl_is_loaded(library[0])) {
        atomic_store_explicit(&absent_at, loads, memory_order_relaxed);
        return NULL;
    }
    if (sl_cuda_get(&out) != 0)
        return NULL;
    atomic_store_explicit(&is_loaded, true, memory_order_release); /* it is never closed */
    return out;
}

int sl_cuda_fail(const struct sl_cuda *driver, int err, const char *call, int result)
{
    const char *name = NULL, *text = NULL;

    if (driver->cuGetErrorName(result, &name) != SL_CUDA_SUCCESS || name == NULL)
        name = "an unknown error";
    if (driver->cuGetErrorString(result, &text) != SL_CUDA_SUCCESS || text == NULL)
        text = "no text for it";
    return sl_fail(err, "%s failed: %s (%s)", call, name, text);
}

void sl_cuda_replace(const struct sl_cuda *given)
{
    replaced = true;
    cuda = given;
}
