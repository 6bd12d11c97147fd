/* SPDX-License-Identifier: Apache-2.0 */
/* The first call of every program and plugin. */
#ifndef SL_LIB_START_H
#define SL_LIB_START_H

struct sl_config;

/* Registers the transports and loads modules, then reads the environment (as environ): what
 * sl_config_from_env() returns. A tool registers its own section of variables before. */
int sl_start(struct sl_config *config, char *const *envp);

#endif
