/* SPDX-License-Identifier: Apache-2.0 */
/* For tests: the place of this process's events. */
#ifndef SL_NCCL_PROFILER_H
#define SL_NCCL_PROFILER_H

/* The file of events.h; "" before the first communicator that is profiled. */
const char *sl_nccl_profile_path(void);

#endif
