/* SPDX-License-Identifier: Apache-2.0 */
/* Fills the table of cuda_dl.h from the driver of this machine. */
#include "gdr/cuda_dl.h"

#include "core/dl.h"
#include "core/err.h"

#include <pthread.h>
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

    if (replaced)
        return cuda;
    if (!sl_dl_is_loaded(library[0]) || sl_cuda_get(&out) != 0)
        return NULL;
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
