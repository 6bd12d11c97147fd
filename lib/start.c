/* SPDX-License-Identifier: Apache-2.0 */
/* The order of a start: transports, those of modules too, and with them their variables, are
 * registered before the environment is read. */
#include "lib/start.h"

#include "core/config.h"
#include "core/module.h"
#include "lib/backends.h"
#include "lib/config_others.h"

#include <pthread.h>
#include <stdbool.h>
#include <sys/auxv.h>

/* Variables of this tree's tools, and of transports that were not built: a process that lacks them
 * does not warn of their variables. The build system knows which. */
static const char *const others[] = {SL_CONFIG_OTHERS NULL};

/* The first start of a process decides. Programs with rights that their user has not load nothing
 * from where he says. */
static void load_modules(char *const *envp)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static bool done;
    const char *dir = sl_config_row_env(sl_config_find("MODULES_DIR", NULL), envp);

    pthread_mutex_lock(&lock);
    if (!done)
        sl_modules_load(getauxval(AT_SECURE) != 0 ? NULL : dir);
    done = true;
    pthread_mutex_unlock(&lock);
}

int sl_start(struct sl_config *config, char *const *envp)
{
    sl_backends_register();
    load_modules(envp);
    sl_config_others(others);
    return sl_config_from_env(config, envp);
}
