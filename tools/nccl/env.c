/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libnccl-env-sluice.so: gives NCCL its settings from one file, SLUICE_NCCL_ENV_FILE or /etc/sluice/nccl.env.
 *
 * A line is NAME=VALUE; what begins with # is a comment. What the environment holds counts more, so that one
 * run can differ. Needs libc alone. Texts live as long as the library, which NCCL's rules ask for.
 */
#include "tools/nccl/abi_env.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME "Sluice"
#define EXPORT __attribute__((visibility("default")))
#define DEFAULT_FILE "/etc/sluice/nccl.env"
#define SETTINGS_MAX 256
#define LINE_BYTES 4096

typedef enum sl_nccl_result result;

static struct {
    char *name, *value;
} settings[SETTINGS_MAX];
static unsigned count;

/* Before NCCL has a log: v1 brings no logger. */
static void complain(sl_nccl_logger *logger, const char *path, int line, const char *what)
{
    if (logger != NULL)
        logger(SL_NCCL_LOG_WARN, SL_NCCL_SUB_ENV, "sluice", line, "Sluice env: %s: %s", path, what);
    else
        fprintf(stderr, "Sluice env: %s:%d: %s\n", path, line, what);
}

static char *trim(char *text)
{
    size_t len;

    text += strspn(text, " \t");
    len = strlen(text);
    while (len > 0 && strchr(" \t\r\n", text[len - 1]) != NULL)
        text[--len] = '\0';
    return text;
}

/* NULL, or what is wrong with the line. */
static const char *take_line(char *line)
{
    char *name = trim(line), *equals = strchr(name, '=');
    unsigned at = 0;

    if (*name == '\0' || *name == '#')
        return NULL;
    if (equals == NULL || equals == name)
        return "not NAME=VALUE";
    *equals = '\0';
    name = trim(name);
    while (at < count && strcmp(settings[at].name, name) != 0)
        at++;
    if (at == SETTINGS_MAX)
        return "too many settings";
    char *value = strdup(trim(equals + 1)), *copy = at == count ? strdup(name) : settings[at].name;

    if (value == NULL || copy == NULL)
        return "no memory";
    if (at < count)
        free(settings[at].value);
    settings[at].name = copy;
    settings[at].value = value;
    count += at == count;
    return NULL;
}

static void read_settings(sl_nccl_logger *logger)
{
    const char *given = getenv("SLUICE_NCCL_ENV_FILE");
    bool asked = given != NULL && given[0] != '\0';
    const char *path = asked ? given : DEFAULT_FILE;
    FILE *file = fopen(path, "re");
    char line[LINE_BYTES];
    int number = 0;

    if (file == NULL) {
        if (asked)
            complain(logger, path, 0, "cannot be read");
        return;
    }
    while (fgets(line, sizeof(line), file) != NULL) {
        const char *wrong = strchr(line, '\n') == NULL && !feof(file) ? "a line is too long" : take_line(line);

        number++;
        if (wrong != NULL)
            complain(logger, path, number, wrong);
    }
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

    for (unsigned i = 0; own == NULL && i < count; i++)
        if (strcmp(settings[i].name, name) == 0)
            return settings[i].value;
    return own;
}

extern const struct sl_nccl_env_v1 ncclEnvPlugin_v1;
EXPORT const struct sl_nccl_env_v1 ncclEnvPlugin_v1 = {
    .name = NAME, .init = init_v1, .finalize = finalize, .get = get,
};

extern const struct sl_nccl_env_v2 ncclEnvPlugin_v2;
EXPORT const struct sl_nccl_env_v2 ncclEnvPlugin_v2 = {
    .name = NAME, .init = init_v2, .finalize = finalize, .get = get,
};
