/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables of others as CSV with a header: columns by name, in any order; others are left out.
 *
 *     static const struct sl_csv_column columns[] = {{"src", SRC}, {"bytes", BYTES}, {NULL, 0}};
 *     struct sl_csv csv = {.columns = columns, .needed = NEEDED, .header = "src and bytes"};
 *     err = sl_csv_read(&csv, in, read_row, context);
 */
#ifndef SL_MONITOR_READ_CSV_H
#define SL_MONITOR_READ_CSV_H

#include "monitor/read/lines.h"

#define SL_CSV_COLUMNS_MAX 64 /* of a table */
#define SL_CSV_KNOWN_MAX 32   /* of those that are read */

struct sl_csv_column {
    const char *name; /* NULL: the end. Several may mean the same */
    int what;         /* from 0; below sl_csv.needed: it must be there */
};

struct sl_csv {
    const struct sl_csv_column *columns;
    int needed;
    const char *header; /* "src, dst, bytes and wire_s": what must be there, for a sentence */
    struct sl_lines lines;
    int column[SL_CSV_KNOWN_MAX]; /* which one holds it; -1: none */
    int column_count;
    char *fields[SL_CSV_COLUMNS_MAX]; /* of the row, ended by 0 each */
};

/* Does the first line name all that must be there? */
bool sl_csv_is(const struct sl_csv_column *columns, int needed, const char *head, size_t len);
/* The header, then row() with each row: 0, or a negative error, which ends it. -EBADMSG with a
 * sentence where there is no row, or one of another length than the header. */
int sl_csv_read(struct sl_csv *csv, struct sl_read_in *in,
                int (*row)(struct sl_csv *csv, void *context), void *context);
/* Of the row; "" where there is no such column. */
const char *sl_csv_field(const struct sl_csv *csv, int what);

#endif
