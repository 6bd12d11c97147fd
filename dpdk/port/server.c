/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Servers of memif, which stay until the process ends: stopped, once nobody uses them, and used
 * again by the next one who names them.
 *
 * When a socket's last server is removed, the driver (22.11 to 26.07) takes the socket's name away,
 * but neither closes its descriptor nor stops watching it, and frees what the watching thread uses.
 * A client that had connected just then waits for ever: nobody accepts it, and nobody closes it.
 * One that is stopped turns a client away, who comes again.
 */
#include "core/err.h"
#include "dpdk/port/inside.h"

#include <string.h>
#include <unistd.h>

static struct sl_dpdk_spec kept[SL_DPDK_PORTS_MAX];
static unsigned kept_count;
static pid_t keeper; /* a child of fork() has none of them */

static const struct sl_dpdk_spec *find(const char *name)
{
    for (unsigned i = 0; i < kept_count; i++) {
        if (strcmp(kept[i].name, name) == 0)
            return &kept[i];
    }
    return NULL;
}

bool sl_dpdk_server_stays(const struct sl_dpdk_port *port)
{
    if (!port->traits.is_gated || port->is_client)
        return false;
    if (find(port->spec.name) != NULL)
        return true;
    if (kept_count == SL_DPDK_PORTS_MAX)
        return false;
    kept[kept_count++] = port->spec;
    keeper = getpid();
    return true;
}

/* At the end of the process. */
__attribute__((destructor)) static void unname_all(void)
{
    for (unsigned i = 0; i < kept_count && keeper == getpid(); i++)
        sl_dpdk_memif_unname(&kept[i]);
}

/* A MAC that was drawn for it stands behind those that were asked for (driver.c). */
static bool is_same(const char *had, const char *wanted)
{
    size_t len = strlen(wanted);

    return strncmp(had, wanted, len) == 0 &&
           (had[len] == '\0' || strncmp(had + len, ",mac=", 5) == 0);
}

int sl_dpdk_server_check(const struct sl_dpdk_spec *spec)
{
    const struct sl_dpdk_spec *server = find(spec->name);

    if (server == NULL || is_same(server->args, spec->args))
        return 0;
    return sl_fail(
        -EBUSY,
        "DPDK port '%s' had the arguments %s before, and a memif server keeps them until "
        "the process ends: give it another name or another socket",
        spec->name, server->args);
}

bool sl_dpdk_servers_any(bool (*fits)(const struct sl_dpdk_spec *spec, const void *arg),
                         const void *arg)
{
    for (unsigned i = 0; i < kept_count; i++) {
        if (fits(&kept[i], arg))
            return true;
    }
    return false;
}
