/* SPDX-License-Identifier: Apache-2.0 */
/* The order of a start: transports, and with them their variables, are registered before the
 * environment is read. */
#include "lib/start.h"

#include "core/config.h"
#include "lib/backends.h"
#include "lib/config_others.h"

/* Variables of this tree's tools, and of transports that were not built: a process that lacks them
 * does not warn of their variables. The build system knows which. */
static const char *const others[] = {SL_CONFIG_OTHERS NULL};

int sl_start(struct sl_config *config, char *const *envp)
{
    sl_backends_register();
    sl_config_others(others);
    return sl_config_from_env(config, envp);
}
