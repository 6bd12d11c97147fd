/* SPDX-License-Identifier: Apache-2.0 */
/** Element types, operators and limits that every other public header uses. */
#ifndef SLUICE_TYPES_H
#define SLUICE_TYPES_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define SLUICE_API __attribute__((visibility("default")))
#else
#define SLUICE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/** Element types. The numbers are NCCL's, so that a binding may cast. */
enum sluice_dtype {
    SLUICE_I8 = 0,
    SLUICE_U8 = 1,
    SLUICE_I32 = 2,
    SLUICE_U32 = 3,
    SLUICE_I64 = 4,
    SLUICE_U64 = 5,
    SLUICE_F16 = 6, /**< IEEE binary16; reduced in f32 */
    SLUICE_F32 = 7,
    SLUICE_F64 = 8,
    SLUICE_BF16 = 9, /**< upper half of an f32; reduced in f32 */
    SLUICE_DTYPE_COUNT = 10
};

/** Reduction operators. The numbers are NCCL's. */
enum sluice_op {
    SLUICE_SUM = 0, /**< integers wrap around */
    SLUICE_PROD = 1,
    SLUICE_MAX = 2, /**< a NaN operand makes the result NaN */
    SLUICE_MIN = 3, /**< a NaN operand makes the result NaN */
    SLUICE_AVG = 4, /**< the sum divided by the number of ranks; integers round toward zero */
    SLUICE_OP_COUNT = 5
};

/** Bytes of one element, 0 when dtype is not one of the enum. */
SLUICE_API size_t sluice_dtype_size(enum sluice_dtype dtype);

/** "f32", "bf16", …; "?" when dtype is not one of the enum. Static storage. */
SLUICE_API const char *sluice_dtype_name(enum sluice_dtype dtype);

/** "sum", "avg", …; "?" when op is not one of the enum. Static storage. */
SLUICE_API const char *sluice_op_name(enum sluice_op op);

#ifdef __cplusplus
}
#endif
#endif
