/* SPDX-License-Identifier: Apache-2.0 */
/* DPDK for programs of the tests: one EAL without hugepages, PCI devices or files, and ports that
 * are configured with one queue each. */
#ifndef SL_TESTING_DPDK_EAL_H
#define SL_TESTING_DPDK_EAL_H

#include <stdint.h>

struct rte_mempool;

/* Bytes that a memif buffer holds: more than any frame, and no more than those of ports that the
 * switch hands it to (SL_DPDK_MEMIF_BUFFER in dpdk/port/ports.h). */
#define SL_EAL_FRAME 10240
#define SL_EAL_VDEVS 32 /* RTE_MAX_ETHPORTS */

/* vdevs: strings of --vdev, count of them. The calling thread stays on the cores that it may use
 * now. -EIO with a sentence. Once per process. */
int sl_eal_start(const char *const *vdevs, unsigned count, unsigned memory_mib);
/* Ends the process, and with it ports and DPDK. Neither closing ports nor rte_eal_cleanup(): both
 * take memory away that the thread of DPDK's interrupts still reads while peers go, too, and one of
 * eight ends was a SIGSEGV. */
_Noreturn void sl_eal_exit(int status);

/* A pool of frames of `room` bytes. -ENOMEM. */
int sl_eal_pool(const char *name, unsigned frames, unsigned room, struct rte_mempool **out);
/* Configures a port and starts it, with `ring` descriptors each way. -EAGAIN: nobody listens at the
 * other end yet (a memif client). */
int sl_eal_port(uint16_t port, struct rte_mempool *pool, unsigned ring);

#endif
