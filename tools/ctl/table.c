/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/ctl/table.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- tables ---- */

void sc_table_begin(struct sc_table *table, const char *head, ...)
{
    va_list heads;

    *table = (struct sc_table){.columns = 0};
    va_start(heads, head);
    for (; head != NULL && table->columns < SC_COLUMNS; head = va_arg(heads, const char *))
        table->heads[table->columns++] = head;
    va_end(heads);
    table->cells = calloc(SC_TABLE_CELLS, sizeof(*table->cells));
}

void sc_table_cell(struct sc_table *table, const char *fmt, ...)
{
    char *text;
    va_list args;

    if (table->cells == NULL || table->count == SC_TABLE_CELLS)
        return;
    va_start(args, fmt);
    if (vasprintf(&text, fmt, args) < 0)
        text = NULL;
    va_end(args);
    for (char *at = text; at != NULL && *at != '\0'; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7f)
            *at = '?';
    table->cells[table->count++] = text;
}

static const char *cell(const struct sc_table *table, unsigned row, unsigned column)
{
    const char *text = table->cells[row * table->columns + column];

    return text != NULL ? text : "?";
}

/* Characters, not bytes. */
static unsigned width_of(const char *text)
{
    unsigned width = 0;

    for (; *text != '\0'; text++)
        width += ((unsigned char)*text & 0xc0) != 0x80;
    return width;
}

static void add(char *line, size_t cap, const char *text, unsigned width, bool right, bool last)
{
    unsigned used = width_of(text);
    int fill = width > used ? (int)(width - used) : 0;
    size_t len = strlen(line);

    if (right)
        snprintf(line + len, cap - len, "%*s%s", fill, "", text);
    else
        snprintf(line + len, cap - len, "%s%*s", text, last ? 0 : fill, "");
    len = strlen(line);
    if (!last)
        snprintf(line + len, cap - len, "  ");
}

/* Not through the middle of a character. */
static void cut(char *line, unsigned width)
{
    unsigned used = 0;

    for (; width != 0 && *line != '\0'; line++) {
        used += ((unsigned char)*line & 0xc0) != 0x80;
        if (used > width) {
            *line = '\0';
            return;
        }
    }
}

static void print_row(const struct sc_table *table, const unsigned *widths, int row,
                      const char *end, unsigned width, FILE *out)
{
    char line[2048] = "";

    for (unsigned i = 0; i < table->columns; i++) {
        bool right = table->heads[i][0] == '>';
        const char *text = row < 0 ? table->heads[i] + right : cell(table, (unsigned)row, i);

        add(line, sizeof(line), text, widths[i], right, i + 1 == table->columns);
    }
    cut(line, width);
    for (size_t len = strlen(line); len > 0 && line[len - 1] == ' '; len--)
        line[len - 1] = '\0';
    fprintf(out, "%s%s", line, end);
}

void sc_table_print(struct sc_table *table, const char *end, unsigned width, FILE *out)
{
    unsigned widths[SC_COLUMNS] = {0},
             rows = table->columns > 0 ? table->count / table->columns : 0;

    for (unsigned i = 0; i < table->columns; i++) {
        widths[i] = width_of(table->heads[i] + (table->heads[i][0] == '>'));
        for (unsigned row = 0; row < rows; row++)
            if (width_of(cell(table, row, i)) > widths[i])
                widths[i] = width_of(cell(table, row, i));
    }
    print_row(table, widths, -1, end, width, out);
    for (unsigned row = 0; row < rows; row++)
        print_row(table, widths, (int)row, end, width, out);
    for (unsigned i = 0; i < table->count; i++)
        free(table->cells[i]);
    free(table->cells);
    *table = (struct sc_table){.columns = 0};
}

/* ---- sizes ---- */

static void scaled(double value, const char *unit, char *out, size_t cap)
{
    static const char *const prefixes[] = {"", "k", "M", "G", "T", "P", "E"};
    unsigned i = 0;

    while (value >= 999.5 && i + 1 < sizeof(prefixes) / sizeof(prefixes[0])) {
        value /= 1000;
        i++;
    }
    snprintf(out, cap, value < 9.95 && i > 0 ? "%.1f %s%s" : "%.0f %s%s", value, prefixes[i], unit);
}

void sc_bits(double bits_per_s, char *out, size_t cap)
{
    if (bits_per_s > 0)
        scaled(bits_per_s, "bit/s", out, cap);
    else
        snprintf(out, cap, "-");
}

void sc_bytes(double bytes, char *out, size_t cap)
{
    scaled(bytes, "B", out, cap);
}

/* ---- times ---- */

void sc_span(double seconds, char *out, size_t cap)
{
    if (seconds < 0)
        seconds = 0;
    if (seconds < 120)
        snprintf(out, cap, "%.0f s", seconds);
    else if (seconds < 120 * 60)
        snprintf(out, cap, "%.0f min", seconds / 60);
    else if (seconds < 48 * 3600)
        snprintf(out, cap, "%.0f h", seconds / 3600);
    else
        snprintf(out, cap, "%.0f days", seconds / 86400);
}

double sc_time(const char *text)
{
    struct tm parts = {.tm_isdst = 0};
    const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &parts);

    if (rest == NULL)
        return 0;
    return (double)timegm(&parts) + (*rest == '.' ? strtod(rest, NULL) : 0);
}

double sc_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

void sc_when(const char *text, double now, char *out, size_t cap)
{
    double at = sc_time(text);
    time_t seconds = (time_t)at;
    struct tm parts;
    char local[32] = "?", span[32];

    if (at == 0) {
        snprintf(out, cap, "never");
        return;
    }
    if (localtime_r(&seconds, &parts) != NULL)
        strftime(local, sizeof(local), "%F %T", &parts);
    sc_span(now - at, span, sizeof(span));
    snprintf(out, cap, "%s (%s ago)", local, span);
}
