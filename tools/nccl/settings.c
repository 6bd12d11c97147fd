/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the file that libnccl-env-sluice.so gives to NCCL. */
#include "tools/nccl/settings.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static char *trim(char *text)
{
    size_t len;

    text += strspn(text, " \t");
    len = strlen(text);
    while (len > 0 && strchr(" \t\r\n", text[len - 1]) != NULL)
        text[--len] = '\0';
    return text;
}

static int set(struct sl_nccl_settings *settings, unsigned at, const char *name, const char *value)
{
    bool is_new = at == settings->count;
    char *copy = strdup(value), *new_name = is_new ? strdup(name) : settings->items[at].name;

    if (copy == NULL || new_name == NULL) {
        free(copy);
        if (is_new)
            free(new_name);
        return -1;
    }
    if (at < settings->count)
        free(settings->items[at].value);
    settings->items[at].name = new_name;
    settings->items[at].value = copy;
    settings->count += is_new;
    return 0;
}

/* NULL, or the mistake in the line. */
static const char *take_line(struct sl_nccl_settings *settings, char *line)
{
    char *name = trim(line), *equals = strchr(name, '=');
    unsigned at = 0;

    if (*name == '\0' || *name == '#')
        return NULL;
    if (equals == NULL || equals == name)
        return "not NAME=VALUE";
    *equals = '\0';
    name = trim(name);
    if (*name == '\0')
        return "not NAME=VALUE";
    while (at < settings->count && strcmp(settings->items[at].name, name) != 0)
        at++;
    if (at == SL_NCCL_SETTINGS_MAX)
        return "too many settings";
    return set(settings, at, name, trim(equals + 1)) == 0 ? NULL : "no memory";
}

/* The next line, without its newline, whole: of one that cannot be kept *wrong says why. False:
 * there is none. */
static bool next_line(FILE *file, char text[SL_NCCL_SETTINGS_LINE], const char **wrong)
{
    size_t len = 0;
    int c = getc(file);

    *wrong = NULL;
    if (c == EOF)
        return false;
    for (; c != EOF && c != '\n'; c = getc(file)) {
        if (c == '\0')
            *wrong = "a zero byte in a line";
        else if (len == SL_NCCL_SETTINGS_LINE - 2)
            *wrong = "a line is too long";
        else
            text[len++] = (char)c;
    }
    text[len] = '\0';
    return true;
}

void sl_nccl_settings_read(struct sl_nccl_settings *settings, FILE *file,
                           sl_nccl_settings_complain *complain, void *arg)
{
    char line[SL_NCCL_SETTINGS_LINE];
    const char *wrong;

    for (int number = 1; next_line(file, line, &wrong); number++) {
        if (wrong == NULL)
            wrong = take_line(settings, line);
        if (wrong != NULL)
            complain(arg, number, wrong);
    }
}

const char *sl_nccl_settings_get(const struct sl_nccl_settings *settings, const char *name)
{
    for (unsigned i = 0; i < settings->count; i++)
        if (strcmp(settings->items[i].name, name) == 0)
            return settings->items[i].value;
    return NULL;
}

void sl_nccl_settings_free(struct sl_nccl_settings *settings)
{
    for (unsigned i = 0; i < settings->count; i++) {
        free(settings->items[i].name);
        free(settings->items[i].value);
    }
    settings->count = 0;
}
