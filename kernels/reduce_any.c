/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of CPUs that have none of their own: plain C. */
#include "kernels/reduce_kernels.h"

static const char *lacks_nothing(void)
{
    return NULL;
}

const struct sl_kernels_choice sl_kernels_choices[] = {{SL_KERNEL_C, &sl_kernels_c, lacks_nothing}};
const size_t sl_kernels_choice_count = 1;
