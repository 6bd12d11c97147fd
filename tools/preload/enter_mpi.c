/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Entry points of MPI. The PMPI_ names are taken too: Open MPI's Fortran bindings call those, and a
 * profiling tool that stands before the shim does. Which implementation is loaded is asked of
 * itself.
 */
#include "tools/preload/frame.h"
#include "tools/preload/mpi_calls.h"

#include <stdio.h>
#include <string.h>

#define X(call, params, args)                                                                      \
    SL_PRELOAD_ENTRY(sl_preload_mpi, MPI_##call, int, params, args)                                \
    SL_PRELOAD_ENTRY(sl_preload_mpi, PMPI_##call, int, params, args)
SL_MPI_CALLS(X)
#undef X

#define X(call, params, args)                                                                      \
    SL_PRELOAD_ROW(SL_MPI_##call, MPI_##call) SL_PRELOAD_ROW(SL_MPI_##call, PMPI_##call)
static const struct sl_preload_entry entries[] = {SL_MPI_CALLS(X)};
#undef X

#define X(call, params, args) "MPI_" #call,
static const char *const calls[] = {SL_MPI_CALLS(X)};
#undef X

#define VERSION_TEXT_MAX 8192 /* MPI_MAX_LIBRARY_VERSION_STRING of both is at most this */

static const char *module(const struct sl_preload_host *host, char *why, size_t cap)
{
    static const struct {
        const char *starts, *module;
    } known[] = {{"Open MPI v", "ompi"},
                 {"MPICH Version", "mpich"},
                 {"MVAPICH", "mpich"},
                 {"Intel(R) MPI", "mpich"}};
    int (*version)(char *, int *) =
        (int (*)(char *, int *))host->find(host, "PMPI_Get_library_version");
    static char text[VERSION_TEXT_MAX];
    int len = 0;

    if (version == NULL || version(text, &len) != 0) {
        snprintf(why, cap, "the MPI library does not say what it is");
        return NULL;
    }
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strncmp(text, known[i].starts, strlen(known[i].starts)) == 0)
            return known[i].module;
    snprintf(why, cap, "there is no module for this MPI library: %.80s", text);
    return NULL;
}

static struct sl_preload_count counts[SL_MPI_CALL_COUNT];

struct sl_preload_family sl_preload_mpi = {
    .name = "mpi",
    .prefixes = (const char *const[]){"libmpi", NULL},
    .probe = "PMPI_Get_library_version",
    .calls = calls,
    .call_count = SL_MPI_CALL_COUNT,
    .entries = entries,
    .entry_count = sizeof(entries) / sizeof(entries[0]),
    .counts = counts,
    .module = module,
};
