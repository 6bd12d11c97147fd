/* SPDX-License-Identifier: Apache-2.0 */
/* The order of a start: transports are registered before their configuration is read. */
#include "lib/start.h"

#include "core/config.h"
#include "lib/backends.h"

int sl_start(struct sl_config *config, char *const *envp)
{
    sl_backends_register();
    return sl_config_from_env(config, envp);
}
