/* SPDX-License-Identifier: Apache-2.0 */
/* A CUDA driver whose kernels are those of the emulation, and whose device memory is the host's. */
#ifndef SL_TESTS_EMULATED_DRIVER_H
#define SL_TESTS_EMULATED_DRIVER_H

struct emulated_driver {
    unsigned loaded, launches;
    int launch_result; /* what launches fail with, or 0 */
};

extern struct emulated_driver emulated_driver;

void emulated_driver_use(void);

/* Its calls, for a driver that has more of them. */
const struct sl_cuda *emulated_driver_table(void);

#endif
