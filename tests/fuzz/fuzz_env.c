/* SPDX-License-Identifier: Apache-2.0 */
/* A whole environment, an entry a line: the configuration and the rank that are read of it. Each
 * variable is taken as if it stood alone, what was taken reads the same when it is written out, and
 * a rank is one of its job, with a place to meet that can be read. */
#include "core/config.h"
#include "core/err.h"
#include "core/log.h"
#include "core/port_range.h"
#include "launch/address.h"
#include "launch/launch.h"
#include "tests/fuzz/text.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX "SLUICE_"
#define ENTRIES_MAX 128

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Cuts text into its lines. */
static void split(char *text, char *entries[ENTRIES_MAX + 1])
{
    size_t count = 0;

    for (char *line = strtok_r(text, "\n", &text); line != NULL && count < ENTRIES_MAX;
         line = strtok_r(NULL, "\n", &text))
        entries[count++] = line;
    entries[count] = NULL;
}

/* What entry says of the variable PREFIX and name; NULL: it is of another. */
static const char *says_of(const char *entry, const char *prefix, const char *name)
{
    size_t prefix_len = strlen(prefix), len = strlen(name);

    if (strncmp(entry, prefix, prefix_len) != 0 || strncmp(entry + prefix_len, name, len) != 0 ||
        entry[prefix_len + len] != '=')
        return NULL;
    return entry + prefix_len + len + 1;
}

static const char *look(void *arg, const char *name)
{
    for (char **entry = arg; *entry != NULL; entry++)
        if (says_of(*entry, "", name) != NULL)
            return says_of(*entry, "", name);
    return NULL;
}

static const char *field_of(const struct sl_config_row *row, const struct sl_config *config)
{
    const struct sl_config_section *section = NULL;
    struct sl_config *base = (struct sl_config *)(uintptr_t)config;

    sl_assert(sl_config_find(row->name, &section) == row);
    return (const char *)sl_config_base(base, section) + row->offset;
}

static bool same_field(const struct sl_config_row *row, const struct sl_config *a,
                       const struct sl_config *b)
{
    const char *x = field_of(row, a), *y = field_of(row, b);

    switch (row->type) {
    case SL_CONFIG_TEXT: return strcmp(x, y) == 0;
    case SL_CONFIG_CHOICE: return memcmp(x, y, sizeof(int)) == 0;
    default: return memcmp(x, y, sizeof(int64_t)) == 0;
    }
}

/* The last entry that gives the row a value decides, as if it were the only one. */
static void check_alone(const struct sl_config *config, const struct sl_config_row *row,
                        char *const *entries)
{
    struct sl_config alone;
    const char *value = NULL;

    for (; *entries != NULL; entries++) {
        const char *says = says_of(*entries, PREFIX, row->name);

        if (says != NULL && *says != '\0')
            value = says;
    }
    sl_config_defaults(&alone);
    if (value != NULL)
        sl_assert(sl_config_set(&alone, row->name, value) == 0);
    sl_assert(same_field(row, config, &alone));
}

/* The word for that value of a SL_CONFIG_CHOICE row. */
static void word_of(const struct sl_config_row *row, int value, char *out, size_t cap)
{
    const char *word = row->choices;

    for (; value > 0 && strchr(word, ' ') != NULL; value--)
        word = strchr(word, ' ') + 1;
    snprintf(out, cap, "%.*s", (int)strcspn(word, " "), word);
}

static void check_written_out(const struct sl_config *config, const struct sl_config_row *row)
{
    static const char *const switches[] = {"auto", "off", "on"};
    const char *field = field_of(row, config), *text = field;
    struct sl_config again = *config;
    char number[24];
    int64_t value = 0;

    if (row->type == SL_CONFIG_TEXT) {
        sl_assert(memchr(field, '\0', sl_config_row_room(row)) != NULL);
    } else if (row->type == SL_CONFIG_CHOICE) {
        int choice;

        memcpy(&choice, field, sizeof(choice));
        word_of(row, choice, number, sizeof(number));
        text = number;
    } else {
        memcpy(&value, field, sizeof(value));
        sl_assert(value >= row->min && value <= row->max && (value <= 0 || value >= row->least));
        snprintf(number, sizeof(number), "%lld", (long long)value);
        text = row->type == SL_CONFIG_SWITCH ? switches[value + 1] : number;
    }
    sl_assert(sl_config_set(&again, row->name, text) == 0 && same_field(row, config, &again));
}

/* The ports that rank 0 listens on: SLUICE_ROOT's, or some of SLUICE_PORT_RANGE, whatever the
 * host's name. */
static void check_place(const struct sl_config *config, const struct sl_identity *id)
{
    const char *colon = strrchr(id->root, ':');
    struct sl_port_range range;
    struct sl_root root;
    char place[SL_TEXT_MAX];

    if (config->root[0] != '\0') {
        sl_assert(strcmp(id->root, config->root) == 0);
    } else if (id->root[0] != '\0') {
        sl_assert(colon != NULL &&
                  (size_t)snprintf(place, sizeof(place), "host%s", colon) < sizeof(place));
        sl_assert(sl_root_parse(place, &root) == 0 &&
                  sl_port_range_parse(config->port_range, &range) == 0);
        sl_assert(range.low == 0 ||
                  (root.port >= range.low && root.port + root.more <= range.high));
    }
}

static void check_identity(const struct sl_config *config, const struct sl_identity *id)
{
    bool by_pmix = id->launcher == SL_LAUNCHER_PMIX;

    sl_assert(id->rank >= 0 && (id->size > id->rank || (by_pmix && id->size == -1)));
    sl_assert(id->local_rank >= -1 && id->local_size >= -1);
    if (config->rank >= 0)
        sl_assert(id->rank == config->rank && id->size == config->size);
    if (id->launcher == SL_LAUNCHER_NONE)
        sl_assert(id->rank == 0 && id->size == 1 && id->root[0] == '\0');
    else if (config->launcher != SL_LAUNCHER_AUTO)
        sl_assert(id->launcher == config->launcher || id->launcher == SL_LAUNCHER_SLUICE);
    sl_assert(memchr(id->root, '\0', sizeof(id->root)) != NULL &&
              memchr(id->job, '\0', sizeof(id->job)) != NULL &&
              memchr(id->secret, '\0', sizeof(id->secret)) != NULL);
    check_place(config, id);
}

static void identify(const struct sl_config *config, char **entries)
{
    struct sl_identity id;
    int err;

    memset(&id, 0x5a, sizeof(id));
    err = sl_identify(config, look, entries, &id);
    sl_assert(err == 0 || err == -EINVAL);
    if (err == 0)
        check_identity(config, &id);
    else
        sl_assert(sluice_last_error()[0] != '\0' && id.rank == 0x5a5a5a5a); /* untouched */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size), *entries[ENTRIES_MAX + 1];
    const struct sl_config_section *section;
    struct sl_config config;
    int err;

    if (text == NULL)
        return 0;
    sl_assert(sl_log_configure("error") == 0); /* it warns of unknown names */
    split(text, entries);
    err = sl_config_from_env(&config, entries);
    sl_assert(err == 0 || err == -EINVAL);
    if (err == 0) {
        for (unsigned i = 0; (section = sl_config_section(i)) != NULL; i++)
            for (size_t j = 0; j < section->row_count; j++) {
                check_alone(&config, &section->rows[j], entries);
                check_written_out(&config, &section->rows[j]);
            }
        identify(&config, entries);
    } else {
        sl_assert(strstr(sluice_last_error(), PREFIX) != NULL);
    }
    free(text);
    return 0;
}
