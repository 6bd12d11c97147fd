/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of a file of others. */
#include "monitor/read/lines.h"
#include "core/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_CAP 65536

int sl_lines_open(struct sl_lines *lines, struct sl_read_in *in)
{
    *lines = (struct sl_lines){.in = in, .cap = FIRST_CAP, .buffer = malloc(FIRST_CAP)};
    if (lines->buffer == NULL)
        return sl_fail(-ENOMEM, "no memory to read %s", in->name);
    return 0;
}

void sl_lines_close(struct sl_lines *lines)
{
    free(lines->buffer);
    lines->buffer = NULL;
}

int sl_lines_bad(const struct sl_lines *lines, const char *format, ...)
{
    char what[512];
    va_list args;

    va_start(args, format);
    vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    return sl_fail(-EBADMSG, "%s, line %llu: %s", lines->in->name,
                   (unsigned long long)lines->number, what);
}

/* What is left goes to the front; where the buffer is full of one line, it grows. */
static int make_room(struct sl_lines *lines)
{
    size_t len = lines->end - lines->begin;
    char *more;

    if (lines->begin > 0) {
        memmove(lines->buffer, lines->buffer + lines->begin, len);
        lines->begin = 0;
        lines->end = len;
    }
    if (len < lines->cap)
        return 0;
    if (lines->cap >= SL_LINE_MAX) {
        lines->number++;
        return sl_lines_bad(lines, "it is longer than %u bytes", SL_LINE_MAX);
    }
    more = realloc(lines->buffer, lines->cap * 2);
    if (more == NULL)
        return sl_fail(-ENOMEM, "no memory to read %s", lines->in->name);
    lines->buffer = more;
    lines->cap *= 2;
    return 0;
}

static int read_more(struct sl_lines *lines)
{
    int err = make_room(lines);
    long count;

    if (err != 0)
        return err;
    count = lines->in->more(lines->in, lines->buffer + lines->end, lines->cap - lines->end);
    if (count < 0)
        return (int)count;
    lines->is_over = count == 0;
    lines->end += (size_t)count;
    return 0;
}

static int take(struct sl_lines *lines, char *end)
{
    lines->text = lines->buffer + lines->begin;
    lines->len = (size_t)(end - lines->text);
    lines->begin += lines->len + 1;
    lines->number++;
    if (memchr(lines->text, '\0', lines->len) != NULL)
        return sl_lines_bad(lines, "a byte 0 is in it: it is no text");
    if (lines->len > 0 && lines->text[lines->len - 1] == '\r')
        lines->len--;
    lines->text[lines->len] = '\0';
    return 1;
}

int sl_lines_next(struct sl_lines *lines)
{
    size_t seen = 0;

    for (;;) {
        size_t len = lines->end - lines->begin;
        char *end = memchr(lines->buffer + lines->begin + seen, '\n', len - seen);
        int err;

        if (end != NULL)
            return take(lines, end);
        if (lines->is_over) {
            if (len == 0)
                return 0;
            lines->number++;
            return sl_lines_bad(lines, "the file ends in the middle of it");
        }
        seen = len;
        err = read_more(lines);
        if (err != 0)
            return err;
    }
}

bool sl_text_number(const char *text, size_t len, uint64_t *number)
{
    uint64_t value = 0;

    if (len == 0)
        return false;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9' || value > (UINT64_MAX - (uint64_t)(text[i] - '0')) / 10)
            return false;
        value = value * 10 + (uint64_t)(text[i] - '0');
    }
    *number = value;
    return true;
}
