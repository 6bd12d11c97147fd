/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the codecs' kernels by what the CPU has. */
#include "compress/kernels.h"

#include "core/err.h"

#include <stdatomic.h>
#include <string.h>

/* Written with the same value by whoever comes first. */
static _Atomic(const struct sl_codec_kernels *) chosen;

static const struct sl_codec_kernels *best(void)
{
    size_t i = 0;

    while (sl_codec_kernels_choices[i].lacks() != NULL)
        i++;
    return sl_codec_kernels_choices[i].kernels;
}

const struct sl_codec_kernels *sl_codec_kernels(void)
{
    const struct sl_codec_kernels *kernels = atomic_load_explicit(&chosen, memory_order_relaxed);

    if (SL_UNLIKELY(kernels == NULL)) {
        kernels = best();
        atomic_store_explicit(&chosen, kernels, memory_order_relaxed);
    }
    return kernels;
}

int sl_codec_kernels_force(const char *name)
{
    if (name == NULL) {
        atomic_store_explicit(&chosen, best(), memory_order_relaxed);
        return 0;
    }
    for (size_t i = 0; i < sl_codec_kernels_choice_count; i++) {
        const struct sl_codec_kernels_choice *choice = &sl_codec_kernels_choices[i];

        if (strcmp(choice->kernels->name, name) != 0)
            continue;
        if (choice->lacks() != NULL)
            return sl_fail(-ENOTSUP, "this CPU cannot run the %s codecs: it lacks %s", name,
                           choice->lacks());
        atomic_store_explicit(&chosen, choice->kernels, memory_order_relaxed);
        return 0;
    }
    return sl_fail(-ENOTSUP, "this build has no %s codecs", name);
}
