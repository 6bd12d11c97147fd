/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes and names of types and operators. */
#include "core/types.h"

static const char *const type_names[SLUICE_DTYPE_COUNT] = {
    [SLUICE_I8] = "i8",   [SLUICE_U8] = "u8",     [SLUICE_I32] = "i32", [SLUICE_U32] = "u32",
    [SLUICE_I64] = "i64", [SLUICE_U64] = "u64",   [SLUICE_F16] = "f16", [SLUICE_F32] = "f32",
    [SLUICE_F64] = "f64", [SLUICE_BF16] = "bf16",
};

static const char *const operators[SLUICE_OP_COUNT] = {
    [SLUICE_SUM] = "sum", [SLUICE_PROD] = "prod", [SLUICE_MAX] = "max",
    [SLUICE_MIN] = "min", [SLUICE_AVG] = "avg",
};

const uint8_t sl_dtype_sizes[SLUICE_DTYPE_COUNT] = {
    [SLUICE_I8] = 1,  [SLUICE_U8] = 1,  [SLUICE_I32] = 4, [SLUICE_U32] = 4, [SLUICE_I64] = 8,
    [SLUICE_U64] = 8, [SLUICE_F16] = 2, [SLUICE_F32] = 4, [SLUICE_F64] = 8, [SLUICE_BF16] = 2,
};

size_t sluice_dtype_size(enum sluice_dtype dtype)
{
    return (unsigned)dtype < SLUICE_DTYPE_COUNT ? sl_dtype_sizes[dtype] : 0;
}

const char *sluice_dtype_name(enum sluice_dtype dtype)
{
    return (unsigned)dtype < SLUICE_DTYPE_COUNT ? type_names[dtype] : "?";
}

const char *sluice_op_name(enum sluice_op op)
{
    return (unsigned)op < SLUICE_OP_COUNT ? operators[op] : "?";
}
