/* SPDX-License-Identifier: Apache-2.0 */
/* Handles of MPICH and those that share its ABI: numbers. */
#include "tools/preload/mpi_module.h"
#include "tools/preload/mpi_types.h"

int sl_mpi_constants(const struct sl_preload_host *host)
{
    unsigned n = 0;

    (void)host;
    sl_mpi.world = MPI_COMM_WORLD;
    sl_mpi.self = MPI_COMM_SELF;
    sl_mpi.none = MPI_COMM_NULL;
    sl_mpi.no_type = MPI_DATATYPE_NULL;
    sl_mpi.byte = MPI_BYTE;
#define X(name, symbol, kind) sl_mpi.ops[n++] = (struct sl_mpi_op){name, kind};
    SL_MPI_OPS(X)
#undef X
#define X(name, symbol, kind) sl_mpi_type_add(name, kind);
    SL_MPI_TYPES(X)
#undef X
    return 0;
}
