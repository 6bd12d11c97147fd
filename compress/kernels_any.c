/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of processors that have no wide ones here. */
#include "compress/kernels.h"

static const char *c_lacks(void)
{
    return NULL;
}

const struct sl_codec_kernels_choice sl_codec_kernels_choices[] = {{&sl_codec_kernels_c, c_lacks}};
const size_t sl_codec_kernels_choice_count = 1;
