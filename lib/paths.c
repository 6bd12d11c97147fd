/* SPDX-License-Identifier: Apache-2.0 */
/* The public call by which a planner writes the path table. */
#include <sluice/paths.h>

#include "core/path_watch.h"
#include "lib/api.h"

#include <stdlib.h>
#include <string.h>

void sluice_path_rule_init(struct sluice_path_rule *rule)
{
    *rule = (struct sluice_path_rule){
        .rank = -1, .peer = -1, .path = -1, .label = -1, .weight = -1, .avoid = -1};
}

/* Narrower fields must not make a number that fits of one that does not. */
static int checked(int number, int most)
{
    return number > most ? most + 1 : number < -1 ? -2 : number;
}

static int take(const struct sluice_path_rule *given, struct sl_path_rule *out)
{
    static const int none[4];

    if (memcmp(given->reserved, none, sizeof(none)) != 0)
        return sl_fail(-EINVAL, "reserved fields of struct sluice_path_rule must be 0");
    *out = (struct sl_path_rule){
        .job = given->job,
        .job_len = given->job != NULL ? strnlen(given->job, SL_PATH_TABLE_JOB_MAX + 1) : 0,
        .rank = checked(given->rank, SL_PATH_TABLE_NUMBER_MAX),
        .peer = checked(given->peer, SL_PATH_TABLE_NUMBER_MAX),
        .path = checked(given->path, SL_PATH_TABLE_NUMBER_MAX),
        .label = checked(given->label, SL_PATH_TABLE_LABEL_MAX),
        .weight = (int16_t)checked(given->weight, SL_PATH_TABLE_WEIGHT_MAX),
        .avoid = (int16_t)checked(given->avoid, 1)};
    return sl_path_rule_check(out);
}

static int file_of(const char *file, char *out, size_t cap)
{
    struct sl_config config;
    int err = 0;

    if (file == NULL || file[0] == '\0') {
        err = sl_config_merge(NULL, &config);
        file = config.paths_table;
    }
    if (err != 0)
        return err;
    if (strlen(file) >= cap)
        return sl_fail(-EINVAL, "the name of a path table has less than %zu bytes", cap);
    sl_path_file_name(file, out, cap);
    return out[0] != '\0' ? 0 : sl_fail(-EINVAL, "SLUICE_PATHS_TABLE is off");
}

int sluice_paths_write(const char *file, const struct sluice_path_rule *rules, size_t count,
                       int64_t until_s)
{
    char name[SL_PATH_FILE_MAX];
    struct sl_path_table table = {.count = count, .until_s = until_s < 0 ? 0 : (uint64_t)until_s};
    int err = file_of(file, name, sizeof(name));

    if (err != 0)
        return err;
    if (until_s < 0 || (rules == NULL && count > 0))
        return sl_fail(-EINVAL, "rules are NULL, or the time is before 1970");
    if (count > SL_PATH_TABLE_RULES_MAX)
        return sl_fail(-E2BIG, "a path table holds %u rules", SL_PATH_TABLE_RULES_MAX);
    table.rules = calloc(count + 1, sizeof(*table.rules));
    if (table.rules == NULL)
        return sl_fail(-ENOMEM, "no memory for a path table");
    for (size_t i = 0; i < count && err == 0; i++)
        err = take(&rules[i], &table.rules[i]);
    err = err ?: sl_path_file_write(name, &table);
    sl_path_table_fini(&table);
    return err;
}
