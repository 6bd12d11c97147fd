/* SPDX-License-Identifier: Apache-2.0 */
/* struct sluice_config over the environment: what a communicator is made with. */
#include "lib/api.h"
#include "lib/start.h"

#include "core/log.h"

#include <stdio.h>
#include <string.h>

extern char **environ;

void sluice_config_init(struct sluice_config *config)
{
    *config = (struct sluice_config){
        .struct_size = sizeof(*config), .rank = -1, .size = -1, .timeout_ms = -1};
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

    if (err == 0)
        err = set_number(&out->size, "size", "SIZE", given->size);
    if (err == 0 && (given->rank >= 0 || given->size >= 0) && out->rank >= out->size)
        err = sl_fail(
            -EINVAL, "struct sluice_config has rank %d and size %d%s: a rank is from 0 to size - 1",
            given->rank, given->size,
            given->rank < 0 || given->size < 0 ? ", -1 standing for the environment" : "");
    return err;
}

int sl_config_merge(const struct sluice_config *given, struct sl_config *out)
{
    int err = sl_start(out, environ);

    if (err == 0)
        err = sl_log_configure(out->log);
    if (err == 0)
        err = sl_config_check(out);
    if (err != 0 || given == NULL)
        return err;
    if (given->struct_size != sizeof(*given))
        return sl_fail(-EINVAL, "struct sluice_config was not set by sluice_config_init()");
    err = set_place(given, out);
    if (err == 0)
        err = set_number(&out->timeout_ms, "timeout_ms", "TIMEOUT_MS", given->timeout_ms);
    if (err == 0)
        err = set_text(out->root, "root", given->root);
    if (err == 0)
        err = set_text(out->job, "job", given->job);
    if (err == 0)
        err = set_text(out->secret, "secret", given->secret);
    if (err == 0)
        err = set_text(out->transport, "transport", given->transport);
    if (err == 0)
        err = set_text(out->algo, "algo", given->algo);
    return err;
}
