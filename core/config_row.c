/* SPDX-License-Identifier: Apache-2.0 */
/* The value of one variable, from text. */
#include "core/config_row.h"

#include "core/err.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

int sl_parse_bytes(const char *text, int64_t *out)
{
    char *end;
    double value, unit = 1;

    errno = 0;
    value = strtod(text, &end);
    if (end == text || errno != 0 || !(value >= 0))
        return -EINVAL;
    switch (tolower((unsigned char)*end)) {
    case 'k': unit = (double)SL_KIB, end++; break;
    case 'm': unit = (double)SL_MIB, end++; break;
    case 'g': unit = (double)SL_GIB, end++; break;
    default: break;
    }
    if (unit > 1 && (*end == 'i' || *end == 'I'))
        end++;
    if (*end == 'b' || *end == 'B')
        end++;
    if (*end != '\0' || value * unit >= 9.2e18)
        return -EINVAL;
    *out = (int64_t)(value * unit);
    return 0;
}

/* -1 stands for "chosen" in a row whose least value it is. */
static int parse_row_bytes(const struct sl_config_row *row, const char *text, int64_t *out)
{
    if (row->min == -1 && strcmp(text, "-1") == 0) {
        *out = -1;
        return 0;
    }
    return sl_parse_bytes(text, out);
}

static int parse_int(const char *text, int64_t *out)
{
    char *end;

    errno = 0;
    *out = strtoll(text, &end, 10);
    return end == text || *end != '\0' || errno != 0 ? -EINVAL : 0;
}

/* Common words for on and off. */
static const char *plain_word(const char *text)
{
    static const char *const words[][2] = {{"0", "off"}, {"no", "off"}, {"false", "off"},
                                           {"1", "on"},  {"yes", "on"}, {"true", "on"}};

    for (size_t i = 0; i < SL_ARRAY_LEN(words); i++)
        if (strcasecmp(words[i][0], text) == 0)
            return words[i][1];
    return text;
}

static int parse_switch(const char *text, int64_t *out)
{
    static const char *const words[] = {"auto", "off", "on"}; /* from SL_AUTO, -1, to SL_ON */

    for (size_t i = 0; i < SL_ARRAY_LEN(words); i++) {
        if (strcasecmp(words[i], plain_word(text)) == 0) {
            *out = (int64_t)i - 1;
            return 0;
        }
    }
    return -EINVAL;
}

/* The choice that text names, or NULL. *len: its length. */
static const char *find_choice(const char *choices, const char *text, size_t *len)
{
    for (; *choices != '\0'; choices += *len + (choices[*len] == ' ')) {
        *len = strcspn(choices, " ");
        if (strlen(text) == *len && strncasecmp(choices, text, *len) == 0)
            return choices;
    }
    return NULL;
}

static int refuse_choice(const struct sl_config_row *row, const char *value)
{
    char list[256];
    size_t len = 0;

    for (const char *c = row->choices; *c != '\0' && len + 2 < sizeof(list); c++) {
        list[len++] = *c == ' ' ? ',' : *c;
        if (*c == ' ')
            list[len++] = ' ';
    }
    list[len] = '\0';
    return sl_fail(-EINVAL, SL_CONFIG_PREFIX "%s is '%s', but must be one of %s", row->name, value,
                   list);
}

/* The choice that value names, as the row writes it. */
static const char *read_choice(const struct sl_config_row *row, const char *value, size_t *len)
{
    const char *choice = find_choice(row->choices, value, len);

    return choice != NULL ? choice : find_choice(row->choices, plain_word(value), len);
}

static int set_choice(const struct sl_config_row *row, int *field, const char *value)
{
    size_t len;
    const char *choice = read_choice(row, value, &len);
    int place = 0;

    if (choice == NULL)
        return refuse_choice(row, value);
    for (const char *c = row->choices; c < choice; c++)
        place += *c == ' ';
    *field = place;
    return 0;
}

static int set_text(const struct sl_config_row *row, char *field, const char *value)
{
    size_t len = strlen(value), room = sl_config_row_room(row);

    if (len >= room)
        return sl_fail(-EINVAL, SL_CONFIG_PREFIX "%s is longer than %zu bytes", row->name,
                       room - 1);
    int err = row->check != NULL ? row->check(value) : 0;

    if (err != 0)
        return err;
    memcpy(field, value, len);
    field[len] = '\0';
    return 0;
}

static int set_number(const struct sl_config_row *row, int64_t *field, const char *value)
{
    int64_t number = 0;
    size_t len;

    if (row->choices != NULL && find_choice(row->choices, value, &len) == NULL)
        return refuse_choice(row, value);
    int err = row->type == SL_CONFIG_INT     ? parse_int(value, &number)
              : row->type == SL_CONFIG_BYTES ? parse_row_bytes(row, value, &number)
                                             : parse_switch(value, &number);

    if (err != 0)
        return sl_fail(-EINVAL, SL_CONFIG_PREFIX "%s is '%s', but must be %s", row->name, value,
                       row->type == SL_CONFIG_INT     ? "a whole number"
                       : row->type == SL_CONFIG_BYTES ? "a size such as 65536, 64k or 1M"
                                                      : "on, off or auto");
    if (number < row->min || number > row->max)
        return sl_fail(-EINVAL, SL_CONFIG_PREFIX "%s is %lld, but must be from %lld to %lld",
                       row->name, (long long)number, (long long)row->min, (long long)row->max);
    if (number > 0 && number < row->least)
        return sl_fail(-EINVAL, SL_CONFIG_PREFIX "%s is %lld, but must be 0 or from %lld to %lld",
                       row->name, (long long)number, (long long)row->least, (long long)row->max);
    *field = number;
    return 0;
}

int sl_config_row_set(const struct sl_config_row *row, void *base, const char *value)
{
    void *field = (char *)base + row->offset;

    switch (row->type) {
    case SL_CONFIG_TEXT: return set_text(row, field, value);
    case SL_CONFIG_CHOICE: return set_choice(row, field, value);
    default: return set_number(row, field, value);
    }
}

const char *sl_config_row_env(const struct sl_config_row *row, char *const *envp)
{
    size_t prefix = strlen(SL_CONFIG_PREFIX), len = strlen(row->name);

    for (; envp != NULL && *envp != NULL; envp++)
        if (strncmp(*envp, SL_CONFIG_PREFIX, prefix) == 0 &&
            strncmp(*envp + prefix, row->name, len) == 0 && (*envp)[prefix + len] == '=' &&
            (*envp)[prefix + len + 1] != '\0')
            return *envp + prefix + len + 1;
    return NULL;
}

int sl_config_rows_read(const struct sl_config_row *rows, size_t count, void *base,
                        char *const *envp)
{
    int err = 0;

    for (size_t i = 0; i < count; i++)
        sl_assert(sl_config_row_set(&rows[i], base, rows[i].value) == 0);
    for (size_t i = 0; i < count && err == 0; i++) {
        const char *value = sl_config_row_env(&rows[i], envp);

        err = value != NULL ? sl_config_row_set(&rows[i], base, value) : 0;
    }
    return err;
}
