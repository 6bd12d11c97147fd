/* SPDX-License-Identifier: Apache-2.0 */
/* Variables of the preload shim and its modules: SLUICE_PRELOAD*. */
#include "tools/preload/config.h"

#include "core/err.h"

#define AT(field) offsetof(struct sl_preload_config, field)

static const struct sl_config_row rows[] = {
    SL_ROW_CHOICE(
        "PRELOAD", mode, "on", "on off report",
        "What libsluice-preload.so does with a program's MPI, gloo and NCCL collectives: on (takes "
        "those that it can), off (none) or report (on, and a line about it at exit)."),
    SL_ROW_INT(
        "PRELOAD_MPI_EARLY_CALLS", mpi_early_calls, "32", "calls", 0, INT64_MAX,
        "Under libsluice-preload.so: calls of each MPI communicator, but for MPI_COMM_WORLD, that "
        "MPI does itself before they are taken, as making ready for it takes milliseconds."),
    SL_ROW_SWITCH(
        "PRELOAD_EXACT", exact, "on",
        "libsluice-preload.so adds up what gloo would have in gloo's own order, so that results "
        "are the same to the last bit as without it: on; off (large reductions are faster)."),
    SL_ROW_TEXT(
        "PRELOAD_NCCL", nccl, "",
        "NCCL collectives that libsluice-preload.so takes: all, or allreduce, reduce, "
        "reduce_scatter, "
        "all_gather, broadcast, all_to_all, gather, scatter, each with sizes in bytes if wanted "
        "(allreduce:1M-64M), separated by commas. Empty: none. The same on all ranks."),
};

struct sl_config_section sl_preload_section = {.area = "PRELOAD",
                                               .rows = rows,
                                               .row_count = SL_ARRAY_LEN(rows),
                                               .size = sizeof(struct sl_preload_config)};

int sl_preload_config_read(struct sl_preload_config *out, char *const *envp)
{
    return sl_config_rows_read(rows, SL_ARRAY_LEN(rows), out, envp);
}
