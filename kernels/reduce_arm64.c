/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of 64-bit ARM. NEON belongs to what Linux asks of such a CPU, so nothing is asked
 * here. */
#include "core/err.h"

#include "kernels/reduce_kernels.h"

static const char *lacks_nothing(void)
{
    return NULL;
}

const struct sl_kernels_choice sl_kernels_choices[] = {
    {SL_KERNEL_NEON, &sl_kernels_neon, lacks_nothing},
    {SL_KERNEL_C, &sl_kernels_c, lacks_nothing},
};
const size_t sl_kernels_choice_count = SL_ARRAY_LEN(sl_kernels_choices);
