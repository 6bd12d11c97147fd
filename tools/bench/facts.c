/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a communicator for the head of a report. */
#include "facts.h"

#include "collectives/comm.h"
#include "core/registry.h"

#include <stdio.h>

/* "shm to 3 ranks, tcp to 4", as this rank reaches the others. */
static void describe_paths(const struct sluice_comm *comm, char *out, size_t cap)
{
    const struct sl_transport_ops *const *list = sl_transports();

    out[0] = '\0';
    for (; *list != NULL; list++) {
        unsigned count = 0;

        sl_peers_foreach(&comm->peers, rank)
        {
            const struct sl_ep *ep = sl_comm_peer(comm, rank)->ep;

            count += ep != NULL && ep->iface->ops->number == (*list)->number;
        }
        if (count > 0)
            sl_text_add(out, cap, "%s%s to %u rank%s", out[0] != '\0' ? ", " : "", (*list)->name,
                        count, count == 1 ? "" : "s");
    }
    if (out[0] == '\0')
        snprintf(out, cap, "none needed");
}

void sb_facts_fill(struct sb_facts *facts, const struct sluice_comm *comm,
                   const struct sb_options *options, char *paths)
{
    describe_paths(comm, paths, SB_PATHS_MAX);
    *facts = (struct sb_facts){
        .ranks = (int)comm->size,
        .hosts = (int)comm->host_count,
        .version = sluice_version_string(),
        .paths = paths,
        .algo = comm->config.algo[0] != '\0' ? comm->config.algo : "chosen by cost",
        .kernel = comm->kernels->name,
        .allocation = options->shared_buffers ? "sluice_alloc" : "malloc",
    };
}
