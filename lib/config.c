/* SPDX-License-Identifier: Apache-2.0 */
/* struct sluice_config over the environment: the settings of a communicator. */
#include "lib/api.h"
#include "lib/start.h"

#include "core/log.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

extern char **environ;

/* The first structure had no version. None will be as large as the second figure: a size beyond it
 * was never set. */
#define FIRST_BYTES offsetof(struct sluice_config, version)
#define LARGEST_BYTES 4096

_Static_assert(FIRST_BYTES == 64, "the first structure stays as it was");
_Static_assert(sizeof(struct sluice_config) ==
                   offsetof(struct sluice_config, reserved) + sizeof(int),
               "no padding at the end: a later field would lie in it, unset or not");

void sluice_config_init_sized(struct sluice_config *config, size_t size, int version)
{
    struct sluice_config known = {
        .struct_size = size, .rank = -1, .size = -1, .timeout_ms = -1, .version = version};
    size_t both = size < sizeof(known) ? size : sizeof(known);

    memcpy(config, &known, both);
    memset((unsigned char *)config + both, 0, size - both);
}

/* The symbol of programs that were compiled before sluice_config_init() was inline: they have room
 * for the first structure alone. */
SLUICE_API void sl_config_init_first(struct sluice_config *config) __asm__("sluice_config_init");

void sl_config_init_first(struct sluice_config *config)
{
    sluice_config_init_sized(config, FIRST_BYTES, 0);
}

/* A field is set that lies behind those that this library knows. */
static int needs_newer(const struct sluice_config *given, size_t at)
{
    int version = given->version;

    if (version <= SLUICE_VERSION)
        return sl_fail(-EINVAL,
                       "struct sluice_config is set at byte %zu, where Sluice %s has no field; a "
                       "newer version is needed",
                       at, sluice_version_string());
    return sl_fail(-EINVAL,
                   "struct sluice_config is set at byte %zu, where Sluice %s has no field; the "
                   "program was compiled for %d.%d.%d, and that version is needed",
                   at, sluice_version_string(), version / 10000, version / 100 % 100,
                   version % 100);
}

/* *out: the caller's settings, in this library's structure. */
static int adopt(const struct sluice_config *given, struct sluice_config *out)
{
    const unsigned char *bytes = (const unsigned char *)given;
    size_t size = given->struct_size;

    if (size < FIRST_BYTES || size > LARGEST_BYTES || size % sizeof(int64_t) != 0)
        return sl_fail(-EINVAL, "struct sluice_config was not set by sluice_config_init()");
    sluice_config_init_sized(out, sizeof(*out), 0);
    memcpy(out, given, size < sizeof(*out) ? size : sizeof(*out));
    for (size_t i = offsetof(struct sluice_config, reserved); i < size; i++)
        if (bytes[i] != 0)
            return needs_newer(out, i);
    return 0;
}

static int set_text(char *field, const char *name, const char *value)
{
    if (value == NULL)
        return 0;
    if (strlen(value) >= SL_TEXT_MAX)
        return sl_fail(-EINVAL, "%s is longer than %d bytes", name, SL_TEXT_MAX - 1);
    strcpy(field, value);
    return 0;
}

/* A number that the caller set, or -1; the bounds are those of its variable. */
static int set_number(int64_t *field, const char *name, const char *variable, int64_t value)
{
    const struct sl_config_row *row = sl_config_find(variable, NULL);

    if (value == -1)
        return 0;
    int64_t min = row->min < 0 ? 0 : row->min;

    if (value < min || value > row->max)
        return sl_fail(
            -EINVAL,
            "%s of struct sluice_config is %lld, but must be from %lld to %lld, or -1 for the "
            "environment's",
            name, (long long)value, (long long)min, (long long)row->max);
    *field = value;
    return 0;
}

static int set_place(const struct sluice_config *given, struct sl_config *out)
{
    int err = set_number(&out->rank, "rank", "RANK", given->rank);

    err = err ?: set_number(&out->size, "size", "SIZE", given->size);
    if (err == 0 && (given->rank >= 0 || given->size >= 0) && out->rank >= out->size)
        err = sl_fail(
            -EINVAL, "struct sluice_config has rank %d and size %d%s: a rank is from 0 to size - 1",
            given->rank, given->size,
            given->rank < 0 || given->size < 0 ? ", -1 standing for the environment" : "");
    return err;
}

int sl_config_merge(const struct sluice_config *caller, struct sl_config *out)
{
    struct sluice_config own, *given = &own;
    int err = sl_start(out, environ);

    err = err ?: sl_log_configure(out->log);
    err = err ?: sl_config_check(out);
    if (err != 0 || caller == NULL)
        return err;
    err = adopt(caller, given);
    err = err ?: set_place(given, out);
    err = err ?: set_number(&out->timeout_ms, "timeout_ms", "TIMEOUT_MS", given->timeout_ms);
    err = err ?: set_text(out->root, "root", given->root);
    err = err ?: set_text(out->job, "job", given->job);
    err = err ?: set_text(out->secret, "secret", given->secret);
    err = err ?: set_text(out->transport, "transport", given->transport);
    err = err ?: set_text(out->algo, "algo", given->algo);
    return err;
}
