/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What NVML says of this host's GPUs, as records (monitor/gpu.h) written into a pipe: the life of a
 * child process, which its parent ends when it is silent. NVML is opened when the child runs; to
 * build nothing of it is needed.
 */
#ifndef SL_MONITOR_NVML_H
#define SL_MONITOR_NVML_H

/* Reads all GPUs, writes, waits, until nobody reads any more. The child's exit status. */
int sl_mon_nvml_run(const char *library, int fd, unsigned period_ms);

#endif
