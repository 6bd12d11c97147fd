/* SPDX-License-Identifier: Apache-2.0 */
/* Predefined types and operators of MPI, and what Open MPI calls the objects behind them. */
#ifndef SL_PRELOAD_MPI_TYPES_H
#define SL_PRELOAD_MPI_TYPES_H

/* Kinds: i signed, u unsigned, f floating point, c complex (a pair of f), x anything else, which is
 * only moved. */
#define SL_MPI_TYPES(X)                                                                            \
    X(MPI_CHAR, ompi_mpi_char, 'x')                                                                \
    X(MPI_BYTE, ompi_mpi_byte, 'x')                                                                \
    X(MPI_PACKED, ompi_mpi_packed, 'x')                                                            \
    X(MPI_WCHAR, ompi_mpi_wchar, 'x')                                                              \
    X(MPI_C_BOOL, ompi_mpi_c_bool, 'x')                                                            \
    X(MPI_LONG_DOUBLE, ompi_mpi_long_double, 'x')                                                  \
    X(MPI_SIGNED_CHAR, ompi_mpi_signed_char, 'i')                                                  \
    X(MPI_SHORT, ompi_mpi_short, 'i')                                                              \
    X(MPI_INT, ompi_mpi_int, 'i')                                                                  \
    X(MPI_LONG, ompi_mpi_long, 'i')                                                                \
    X(MPI_LONG_LONG, ompi_mpi_long_long_int, 'i')                                                  \
    X(MPI_INT8_T, ompi_mpi_int8_t, 'i')                                                            \
    X(MPI_INT16_T, ompi_mpi_int16_t, 'i')                                                          \
    X(MPI_INT32_T, ompi_mpi_int32_t, 'i')                                                          \
    X(MPI_INT64_T, ompi_mpi_int64_t, 'i')                                                          \
    X(MPI_AINT, ompi_mpi_aint, 'i')                                                                \
    X(MPI_OFFSET, ompi_mpi_offset, 'i')                                                            \
    X(MPI_COUNT, ompi_mpi_count, 'i')                                                              \
    X(MPI_UNSIGNED_CHAR, ompi_mpi_unsigned_char, 'u')                                              \
    X(MPI_UNSIGNED_SHORT, ompi_mpi_unsigned_short, 'u')                                            \
    X(MPI_UNSIGNED, ompi_mpi_unsigned, 'u')                                                        \
    X(MPI_UNSIGNED_LONG, ompi_mpi_unsigned_long, 'u')                                              \
    X(MPI_UNSIGNED_LONG_LONG, ompi_mpi_unsigned_long_long, 'u')                                    \
    X(MPI_UINT8_T, ompi_mpi_uint8_t, 'u')                                                          \
    X(MPI_UINT16_T, ompi_mpi_uint16_t, 'u')                                                        \
    X(MPI_UINT32_T, ompi_mpi_uint32_t, 'u')                                                        \
    X(MPI_UINT64_T, ompi_mpi_uint64_t, 'u')                                                        \
    X(MPI_FLOAT, ompi_mpi_float, 'f')                                                              \
    X(MPI_DOUBLE, ompi_mpi_double, 'f')                                                            \
    X(MPI_C_FLOAT_COMPLEX, ompi_mpi_c_float_complex, 'c')                                          \
    X(MPI_C_DOUBLE_COMPLEX, ompi_mpi_c_double_complex, 'c')                                        \
    X(MPI_CHARACTER, ompi_mpi_character, 'x')                                                      \
    X(MPI_LOGICAL, ompi_mpi_logical, 'x')                                                          \
    X(MPI_INTEGER, ompi_mpi_integer, 'i')                                                          \
    X(MPI_INTEGER1, ompi_mpi_integer1, 'i')                                                        \
    X(MPI_INTEGER2, ompi_mpi_integer2, 'i')                                                        \
    X(MPI_INTEGER4, ompi_mpi_integer4, 'i')                                                        \
    X(MPI_INTEGER8, ompi_mpi_integer8, 'i')                                                        \
    X(MPI_REAL, ompi_mpi_real, 'f')                                                                \
    X(MPI_REAL4, ompi_mpi_real4, 'f')                                                              \
    X(MPI_REAL8, ompi_mpi_real8, 'f')                                                              \
    X(MPI_DOUBLE_PRECISION, ompi_mpi_dblprec, 'f')                                                 \
    X(MPI_COMPLEX, ompi_mpi_cplex, 'c')                                                            \
    X(MPI_DOUBLE_COMPLEX, ompi_mpi_dblcplex, 'c')

#define SL_MPI_OPS(X)                                                                              \
    X(MPI_SUM, ompi_mpi_op_sum, SLUICE_SUM)                                                        \
    X(MPI_PROD, ompi_mpi_op_prod, SLUICE_PROD)                                                     \
    X(MPI_MAX, ompi_mpi_op_max, SLUICE_MAX)                                                        \
    X(MPI_MIN, ompi_mpi_op_min, SLUICE_MIN)

#endif
