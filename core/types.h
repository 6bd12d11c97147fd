/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes of types without a call, where the type is known to be valid. */
#ifndef SL_CORE_TYPES_H
#define SL_CORE_TYPES_H

#include <sluice/types.h>

#include <stdint.h>

extern const uint8_t sl_dtype_sizes[SLUICE_DTYPE_COUNT];

#endif
