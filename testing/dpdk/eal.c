/* SPDX-License-Identifier: Apache-2.0 */
/* Starts DPDK for programs of the tests. */
#include "testing/dpdk/eal.h"

#include "core/err.h"

#include <errno.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

#define ARGS_MAX 96

/* "0@(2,3)": the thread that starts EAL, on all cores that it may use. */
static void cores(char *out, size_t cap)
{
    cpu_set_t set;
    int len = snprintf(out, cap, "--lcores=0@(");
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof(set), &set);
    for (int cpu = 0, first = 1; cpu < CPU_SETSIZE && (size_t)len + 8 < cap; cpu++)
        if (CPU_ISSET(cpu, &set)) {
            len += snprintf(out + len, cap - (size_t)len, first ? "%d" : ",%d", cpu);
            first = 0;
        }
    snprintf(out + len, cap - (size_t)len, ")");
}

int sl_eal_start(const char *const *vdevs, unsigned count, unsigned memory_mib)
{
    char places[512], memory[16], names[SL_EAL_VDEVS][256];
    char *args[ARGS_MAX] = {
        "sluice",         "--no-huge",     "--no-pci", "--no-shconf", "--no-telemetry",
        "--iova-mode=va", "--log-level=2", "-m",       memory,        places};
    int n = 10;
    if (count > SL_EAL_VDEVS)
        return sl_fail(-EINVAL, "more than %d virtual devices", SL_EAL_VDEVS);
    cores(places, sizeof(places));
    snprintf(memory, sizeof(memory), "%u", memory_mib);
    for (unsigned i = 0; i < count; i++) {
        snprintf(names[i], sizeof(names[i]), "--vdev=%s", vdevs[i]);
        args[n++] = names[i];
    }
    if (rte_eal_init(n, args) < 0)
        return sl_fail(-EIO, "DPDK does not start: %s", rte_strerror(rte_errno));
    if (rte_eth_dev_count_avail() != count)
        return sl_fail(-EIO, "DPDK has %u of %u ports", rte_eth_dev_count_avail(), count);
    return 0;
}

void sl_eal_exit(int status)
{
    fflush(NULL);
    _exit(status);
}

int sl_eal_pool(const char *name, unsigned frames, unsigned room, struct rte_mempool **out)
{
    *out = rte_pktmbuf_pool_create(name, frames, 256, 0, (uint16_t)room, SOCKET_ID_ANY);
    if (!*out)
        return sl_fail(-ENOMEM, "no memory for %u frames of %u bytes: %s", frames, room,
                       rte_strerror(rte_errno));
    return 0;
}

int sl_eal_port(uint16_t port, struct rte_mempool *pool, unsigned ring)
{
    struct rte_eth_conf conf = {0};
    struct rte_eth_dev_info info;
    if (rte_eth_dev_info_get(port, &info) < 0)
        return sl_fail(-EIO, "port %u does not tell what it can", port);
    conf.txmode.offloads = info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
    int rc = rte_eth_dev_configure(port, 1, 1, &conf);
    if (rc == 0)
        rc = rte_eth_rx_queue_setup(port, 0, (uint16_t)ring, SOCKET_ID_ANY, NULL, pool);
    if (rc == 0)
        rc = rte_eth_tx_queue_setup(port, 0, (uint16_t)ring, SOCKET_ID_ANY, NULL);
    if (rc < 0)
        return sl_fail(rc, "port %u cannot be configured: %s", port, rte_strerror(-rc));
    if (rte_eth_dev_start(port) < 0)
        return sl_fail(-EAGAIN, "port %u does not start: nobody listens at its other end", port);
    return 0;
}
