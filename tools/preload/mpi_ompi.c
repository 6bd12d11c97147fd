/* SPDX-License-Identifier: Apache-2.0 */
/* Handles of Open MPI: addresses of its objects. */
#include "core/err.h"
#include "tools/preload/mpi_module.h"
#include "tools/preload/mpi_types.h"

int sl_mpi_constants(const struct sl_preload_host *host)
{
    unsigned n = 0;

    sl_mpi.world = host->object(host, "ompi_mpi_comm_world");
    sl_mpi.self = host->object(host, "ompi_mpi_comm_self");
    sl_mpi.none = host->object(host, "ompi_mpi_comm_null");
    sl_mpi.no_type = host->object(host, "ompi_mpi_datatype_null");
    sl_mpi.byte = host->object(host, "ompi_mpi_byte");
#define X(name, symbol, kind)                                                                      \
    sl_mpi.ops[n++] = (struct sl_mpi_op){host->object(host, #symbol), kind};
    SL_MPI_OPS(X)
#undef X
    for (unsigned i = 0; i < n; i++)
        if (sl_mpi.ops[i].handle == NULL)
            return sl_fail(-ENOTSUP,
                           "this Open MPI has not the objects that its version 3 to 5 have");
    if (sl_mpi.world == NULL || sl_mpi.self == NULL || sl_mpi.none == NULL ||
        sl_mpi.no_type == NULL || sl_mpi.byte == NULL)
        return sl_fail(-ENOTSUP, "this Open MPI has not the objects that its version 3 to 5 have");
#define X(name, symbol, kind) sl_mpi_type_add(host->object(host, #symbol), kind);
    SL_MPI_TYPES(X)
#undef X
    return 0;
}
