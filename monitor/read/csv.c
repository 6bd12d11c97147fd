/* SPDX-License-Identifier: Apache-2.0 */
/* Tables as CSV: a header that names columns, and rows of as many fields. */
#include "monitor/read/csv.h"

#include "core/err.h"

#include <string.h>

static int which(const struct sl_csv_column *columns, const char *text, size_t len)
{
    for (; columns->name != NULL; columns++)
        if (strlen(columns->name) == len && memcmp(columns->name, text, len) == 0)
            return columns->what;
    return -1;
}

/* Fields of a line: how many, or -1 where there are too many. */
static int split(struct sl_csv *csv)
{
    int count = 0;

    for (char *at = csv->lines.text; at != NULL && count < SL_CSV_COLUMNS_MAX; count++) {
        csv->fields[count] = at;
        at = strchr(at, ',');
        if (at == NULL)
            return count + 1;
        *at++ = '\0';
    }
    return -1;
}

bool sl_csv_is(const struct sl_csv_column *columns, int needed, const char *head, size_t len)
{
    const char *end = memchr(head, '\n', len);
    uint32_t found = 0;

    if (end == NULL)
        return false;
    if (end > head && end[-1] == '\r')
        end--;
    for (const char *at = head; at <= end;) {
        const char *next = memchr(at, ',', (size_t)(end - at));
        int what = which(columns, at, (size_t)((next != NULL ? next : end) - at));

        if (what >= 0 && what < needed)
            found |= 1u << what;
        if (next == NULL)
            break;
        at = next + 1;
    }
    return found == (1u << needed) - 1;
}

static int read_header(struct sl_csv *csv)
{
    int err = sl_lines_next(&csv->lines);

    if (err < 0)
        return err;
    for (int i = 0; i < SL_CSV_KNOWN_MAX; i++)
        csv->column[i] = -1;
    csv->column_count = err > 0 ? split(csv) : -1;
    for (int i = 0; i < csv->column_count; i++) {
        int what = which(csv->columns, csv->fields[i], strlen(csv->fields[i]));

        if (what >= 0 && csv->column[what] >= 0)
            return sl_lines_bad(&csv->lines, "column %s is there twice", csv->fields[i]);
        if (what >= 0)
            csv->column[what] = i;
    }
    for (int i = 0; i < csv->needed; i++)
        if (csv->column[i] < 0)
            return sl_lines_bad(&csv->lines, "the header must name %s", csv->header);
    return 0;
}

static int read_row(struct sl_csv *csv, int (*row)(struct sl_csv *csv, void *context),
                    void *context)
{
    int count = split(csv);

    if (count != csv->column_count)
        return sl_lines_bad(&csv->lines, "it has %d fields where the header has %d", count,
                            csv->column_count);
    return row(csv, context);
}

int sl_csv_read(struct sl_csv *csv, struct sl_read_in *in,
                int (*row)(struct sl_csv *csv, void *context), void *context)
{
    int err = sl_lines_open(&csv->lines, in);

    if (err == 0)
        err = read_header(csv);
    while (err == 0) {
        err = sl_lines_next(&csv->lines);
        if (err <= 0)
            break;
        err = read_row(csv, row, context);
    }
    if (err == 0 && csv->lines.number < 2)
        err = sl_lines_bad(&csv->lines, "nothing follows the header");
    sl_lines_close(&csv->lines);
    return err;
}

const char *sl_csv_field(const struct sl_csv *csv, int what)
{
    return csv->column[what] >= 0 ? csv->fields[csv->column[what]] : "";
}
