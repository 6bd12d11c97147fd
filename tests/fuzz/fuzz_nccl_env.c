/* SPDX-License-Identifier: Apache-2.0 */
/* The file of NCCL's settings. Whatever its bytes, each setting is one whole line of it, and the
 * last with its name; each other line is empty, a comment or complained of, by its number. */
#include "core/err.h"
#include "tools/nccl/settings.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct text {
    const char *at, *end;
};

struct seen {
    int complaints, last;
};

static void count_complaint(void *arg, int line, const char *what)
{
    struct seen *seen = arg;

    sl_assert(what[0] != '\0' && line > seen->last); /* one for a line, in their order */
    seen->complaints++;
    seen->last = line;
}

static bool blank(char c)
{
    return c == ' ' || c == '\t';
}

/* Without blanks at both ends, and without the carriage returns that other systems put at the right
 * one. */
static struct text strip(struct text text)
{
    while (text.at < text.end && blank(*text.at))
        text.at++;
    while (text.at < text.end && (blank(text.end[-1]) || text.end[-1] == '\r'))
        text.end--;
    return text;
}

static struct text next_line(struct text *rest)
{
    const char *newline = memchr(rest->at, '\n', (size_t)(rest->end - rest->at));
    struct text line = {rest->at, newline != NULL ? newline : rest->end};

    rest->at = newline != NULL ? newline + 1 : rest->end;
    return line;
}

static bool says(struct text text, const char *wanted)
{
    return (size_t)(text.end - text.at) == strlen(wanted) &&
           memcmp(text.at, wanted, strlen(wanted)) == 0;
}

/* What cannot be a line: it is too long, or has a zero byte. */
static bool is_odd(struct text line)
{
    size_t len = (size_t)(line.end - line.at);

    return len > SL_NCCL_SETTINGS_LINE - 2 || memchr(line.at, '\0', len) != NULL;
}

/* Is this line name's? *value: what it says then. */
static bool line_sets(struct text line, const char *name, struct text *value)
{
    const char *equals = memchr(line.at, '=', (size_t)(line.end - line.at));

    if (equals == NULL || is_odd(line) || !says(strip((struct text){line.at, equals}), name))
        return false;
    *value = strip((struct text){equals + 1, line.end});
    return true;
}

static void check_setting(struct text file, const char *name, const char *value)
{
    struct text found = {NULL, NULL}, rest = file;

    sl_assert(name[0] != '\0' && name[0] != '#' && strchr(name, '=') == NULL);
    while (rest.at < rest.end)
        line_sets(next_line(&rest), name, &found);
    sl_assert(found.at != NULL && says(found, value));
}

/* Lines that must be complained of, but for those that are one too many; and those that may set
 * something. */
static void count_lines(struct text file, int *lines, int *wrong, int *good)
{
    *lines = *wrong = *good = 0;
    while (file.at < file.end) {
        struct text line = next_line(&file), text = strip(line);
        const char *equals = memchr(text.at, '=', (size_t)(text.end - text.at));
        struct text name = strip((struct text){text.at, equals != NULL ? equals : text.at});

        ++*lines;
        if (!is_odd(line) && (text.at == text.end || *text.at == '#'))
            continue;
        if (is_odd(line) || name.at == name.end)
            ++*wrong;
        else
            ++*good;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct text file = {(const char *)data, (const char *)data + size};
    static struct sl_nccl_settings settings;
    struct seen seen = {0, 0};
    int lines, wrong, good;
    FILE *in = size > 0 ? fmemopen((void *)(uintptr_t)data, size, "r") : NULL;

    if (in == NULL)
        return 0;
    sl_nccl_settings_read(&settings, in, count_complaint, &seen);
    fclose(in);
    sl_assert(settings.count <= SL_NCCL_SETTINGS_MAX);
    for (unsigned i = 0; i < settings.count; i++) {
        /* Nor has one name two settings. */
        sl_assert(sl_nccl_settings_get(&settings, settings.items[i].name) ==
                  settings.items[i].value);
        check_setting(file, settings.items[i].name, settings.items[i].value);
    }
    count_lines(file, &lines, &wrong, &good);
    sl_assert(seen.last <= lines && seen.complaints >= wrong && seen.complaints <= wrong + good);
    sl_assert(settings.count == SL_NCCL_SETTINGS_MAX || seen.complaints == wrong);
    sl_nccl_settings_free(&settings);
    return 0;
}
