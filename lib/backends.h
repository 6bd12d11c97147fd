/* SPDX-License-Identifier: Apache-2.0 */
/* The transports that this build contains. */
#ifndef SL_LIB_BACKENDS_H
#define SL_LIB_BACKENDS_H

/* Registers them, once for the process: before its configuration is read. */
void sl_backends_register(void);

#endif
