/* SPDX-License-Identifier: Apache-2.0 */
/* Prometheus's text form. */
#include "monitor/read/prom.h"
#include "core/err.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int sl_prom_open(struct sl_prom *prom, struct sl_read_in *in)
{
    *prom = (struct sl_prom){0};
    return sl_lines_open(&prom->lines, in);
}

void sl_prom_close(struct sl_prom *prom)
{
    sl_lines_close(&prom->lines);
}

const char *sl_prom_label(const struct sl_prom *prom, const char *name)
{
    for (unsigned i = 0; i < prom->label_count; i++)
        if (strcmp(prom->labels[i].name, name) == 0)
            return prom->labels[i].value;
    return NULL;
}

bool sl_prom_has(const char *head, size_t len, const char *prefix)
{
    size_t prefix_len = strlen(prefix);

    for (const char *at = head, *end = head + len; at < end;) {
        const char *next = memchr(at, '\n', (size_t)(end - at));

        if ((size_t)(end - at) >= prefix_len && memcmp(at, prefix, prefix_len) == 0)
            return true;
        if (next == NULL)
            return false;
        at = next + 1;
    }
    return false;
}

static char *skip(char *at)
{
    while (*at == ' ' || *at == '\t')
        at++;
    return at;
}

static bool may_name(char c, bool is_first, bool is_label)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (c == ':' && !is_label) || (c >= '0' && c <= '9' && !is_first);
}

/* Where the name ends; NULL: there is none. */
static char *end_of_name(char *at, bool is_label)
{
    if (!may_name(*at, true, is_label))
        return NULL;
    while (may_name(*at, false, is_label))
        at++;
    return at;
}

/* A quoted text becomes what it means, where it is. Behind the closing quote; NULL: it is wrong. */
static char *unquote(char *at, const char **value)
{
    char *to = at + 1;

    if (*at != '"')
        return NULL;
    *value = to;
    for (at++; *at != '"'; at++) {
        if (*at == '\0')
            return NULL;
        if (*at != '\\') {
            *to++ = *at;
            continue;
        }
        at++;
        if (*at != '\\' && *at != '"' && *at != 'n')
            return NULL;
        *to++ = *at == 'n' ? '\n' : *at;
    }
    *to = '\0'; /* at or before the closing quote */
    return at + 1;
}

static int one_label(struct sl_prom *prom, char **at)
{
    struct sl_prom_label *label = &prom->labels[prom->label_count];
    char *end, *begin = *at;

    if (prom->label_count == SL_PROM_LABELS_MAX)
        return sl_lines_bad(&prom->lines, "it has more than %u labels", SL_PROM_LABELS_MAX);
    end = end_of_name(begin, true);
    *at = end != NULL ? skip(end) : NULL;
    if (end == NULL || **at != '=')
        return sl_lines_bad(&prom->lines, "\"%.40s\" is no label", begin);
    *at = unquote(skip(*at + 1), &label->value);
    if (*at == NULL)
        return sl_lines_bad(&prom->lines, "the value of label \"%.*s\" is no quoted text",
                            (int)(end - begin > 40 ? 40 : end - begin), begin);
    *end = '\0';
    label->name = begin;
    if (sl_prom_label(prom, begin) != NULL)
        return sl_lines_bad(&prom->lines, "label \"%.40s\" is there twice", begin);
    prom->label_count++;
    return 0;
}

/* *at: behind the opening bracket, then behind the closing one. */
static int all_labels(struct sl_prom *prom, char **at)
{
    for (;;) {
        int err;

        *at = skip(*at);
        if (**at == '}')
            break;
        err = one_label(prom, at);
        if (err != 0)
            return err;
        *at = skip(*at);
        if (**at != ',' && **at != '}')
            return sl_lines_bad(&prom->lines, "its labels do not end");
        if (**at == ',')
            ++*at;
    }
    ++*at;
    return 0;
}

static int one_value(struct sl_prom *prom, char *at)
{
    char *end;

    prom->timestamp_ms = SL_JOB_NEVER;
    prom->value = strtod(at, &end);
    if (end == at || (*end != '\0' && *end != ' ' && *end != '\t'))
        return sl_lines_bad(&prom->lines, "\"%.40s\" is no value", at);
    at = skip(end);
    if (*at == '\0')
        return 1;
    errno = 0;
    prom->timestamp_ms = strtoll(at, &end, 10);
    if (end == at || *skip(end) != '\0' || errno != 0)
        return sl_lines_bad(&prom->lines, "\"%.40s\" is no timestamp", at);
    return 1;
}

static int one_sample(struct sl_prom *prom, char *at)
{
    char *end = end_of_name(at, false), next;
    int err = 0;

    if (end == NULL)
        return sl_lines_bad(&prom->lines, "\"%.40s\" is no sample of Prometheus's text form", at);
    prom->name = at;
    prom->label_count = 0;
    at = skip(end);
    next = *at;
    if (next != '{' && at == end)
        return sl_lines_bad(&prom->lines, "no value follows \"%.40s\"", prom->name);
    if (next == '{') {
        at++;
        err = all_labels(prom, &at);
    }
    *end = '\0';
    return err != 0 ? err : one_value(prom, skip(at));
}

int sl_prom_next(struct sl_prom *prom)
{
    for (;;) {
        int err = sl_lines_next(&prom->lines);
        char *at;

        if (err <= 0)
            return err;
        at = skip(prom->lines.text);
        if (*at != '\0' && *at != '#')
            return one_sample(prom, at);
    }
}
