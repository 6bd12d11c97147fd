/* SPDX-License-Identifier: Apache-2.0 */
/* The MPI calls that may be taken over, with what travels: the same list in the shim and in its MPI
 * modules. */
#ifndef SL_PRELOAD_MPI_CALLS_H
#define SL_PRELOAD_MPI_CALLS_H

#include <stdint.h>

/* Pointers, handles (pointers or ints) and ints, by number of parameters. */
#define SL_P1 (uintptr_t a)
#define SL_A1 (a)
#define SL_P5 (uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e)
#define SL_A5 (a, b, c, d, e)
#define SL_P6 (uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e, uintptr_t f)
#define SL_A6 (a, b, c, d, e, f)
#define SL_P7                                                                                      \
    (uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e, uintptr_t f, uintptr_t g)
#define SL_A7 (a, b, c, d, e, f, g)
#define SL_P8                                                                                      \
    (uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e, uintptr_t f, uintptr_t g,    \
     uintptr_t h)
#define SL_A8 (a, b, c, d, e, f, g, h)
#define SL_P9                                                                                      \
    (uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e, uintptr_t f, uintptr_t g,    \
     uintptr_t h, uintptr_t i)
#define SL_A9 (a, b, c, d, e, f, g, h, i)

/* X(call, parameters, arguments); all return int. */
#define SL_MPI_CALLS(X)                                                                            \
    X(Allreduce, SL_P6, SL_A6)                                                                     \
    X(Reduce, SL_P7, SL_A7)                                                                        \
    X(Bcast, SL_P5, SL_A5)                                                                         \
    X(Allgather, SL_P7, SL_A7)                                                                     \
    X(Allgatherv, SL_P8, SL_A8)                                                                    \
    X(Gather, SL_P8, SL_A8)                                                                        \
    X(Gatherv, SL_P9, SL_A9)                                                                       \
    X(Scatter, SL_P8, SL_A8)                                                                       \
    X(Scatterv, SL_P9, SL_A9)                                                                      \
    X(Alltoall, SL_P7, SL_A7)                                                                      \
    X(Alltoallv, SL_P9, SL_A9)                                                                     \
    X(Reduce_scatter, SL_P6, SL_A6)                                                                \
    X(Reduce_scatter_block, SL_P6, SL_A6)                                                          \
    X(Barrier, SL_P1, SL_A1)

#define SL_MPI_NUMBER(call, params, args) SL_MPI_##call,
enum sl_mpi_call { SL_MPI_CALLS(SL_MPI_NUMBER) SL_MPI_CALL_COUNT };
#undef SL_MPI_NUMBER

#endif
