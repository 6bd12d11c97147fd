/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libnccl-env-sluice.so: gives NCCL its settings from one file, SLUICE_NCCL_ENV_FILE or
 * /etc/sluice/nccl.env.
 *
 * A line is NAME=VALUE; what begins with # is a comment. What the environment holds counts more, so
 * that one run can differ. Needs libc alone. Texts live as long as the library, which NCCL's rules
 * ask for.
 */
#include "core/stderr_line.h"
#include "tools/nccl/abi_env.h"
#include "tools/nccl/settings.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#define NAME "Sluice"
#define EXPORT __attribute__((visibility("default")))
#define DEFAULT_FILE "/etc/sluice/nccl.env"

typedef enum sl_nccl_result result;

static struct sl_nccl_settings settings;

struct listener {
    sl_nccl_logger *logger;
    const char *path;
};

/* Before NCCL has a log: v1 brings no logger. */
static void complain(void *arg, int line, const char *what)
{
    const struct listener *to = arg;

    if (to->logger != NULL)
        to->logger(SL_NCCL_LOG_WARN, SL_NCCL_SUB_ENV, "sluice", line, "Sluice env: %s: %s",
                   to->path, what);
    else
        sl_stderr_line("Sluice env: %s:%d: %s", to->path, line, what);
}

static void read_settings(sl_nccl_logger *logger)
{
    const char *given = getenv("SLUICE_NCCL_ENV_FILE");
    bool asked = given != NULL && given[0] != '\0';
    struct listener to = {.logger = logger, .path = asked ? given : DEFAULT_FILE};
    FILE *file = fopen(to.path, "re");

    if (file != NULL)
        sl_nccl_settings_read(&settings, file, complain, &to);
    if (file != NULL ? ferror(file) : asked) /* a folder can be opened */
        complain(&to, 0, "cannot be read");
    if (file != NULL)
        fclose(file);
}

static result init_v2(uint8_t major, uint8_t minor, uint8_t patch, const char *suffix,
                      sl_nccl_logger *logger)
{
    (void)major, (void)minor, (void)patch, (void)suffix;
    read_settings(logger);
    return SL_NCCL_SUCCESS;
}

static result init_v1(uint8_t major, uint8_t minor, uint8_t patch, const char *suffix)
{
    return init_v2(major, minor, patch, suffix, NULL);
}

/* At exit: what others may still hold stays valid. */
static result finalize(void)
{
    return SL_NCCL_SUCCESS;
}

static const char *get(const char *name)
{
    const char *own = getenv(name);

    return own != NULL ? own : sl_nccl_settings_get(&settings, name);
}

extern const struct sl_nccl_env_v1 ncclEnvPlugin_v1;
EXPORT const struct sl_nccl_env_v1 ncclEnvPlugin_v1 = {
    .name = NAME,
    .init = init_v1,
    .finalize = finalize,
    .get = get,
};

extern const struct sl_nccl_env_v2 ncclEnvPlugin_v2;
EXPORT const struct sl_nccl_env_v2 ncclEnvPlugin_v2 = {
    .name = NAME,
    .init = init_v2,
    .finalize = finalize,
    .get = get,
};
