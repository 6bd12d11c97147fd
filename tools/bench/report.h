/* SPDX-License-Identifier: Apache-2.0 */
/* What people and tools read: the table, and the same numbers as JSON, CSV and a drawing. */
#ifndef SB_REPORT_H
#define SB_REPORT_H

#include "bench.h"

#include "core/transport.h"

/* Lines before all tables, before one collective's, for a row, and after all. */
void sb_report_head(FILE *out, const struct sb_facts *facts, const struct sb_options *options);
void sb_report_table_head(FILE *out, const struct sb_row *row, const struct sb_options *options);
void sb_report_row(FILE *out, const struct sb_row *row, const struct sb_options *options,
                   int64_t unix_time);
void sb_report_tail(FILE *out, const struct sb_results *results);

/* The whole run in a file; "-" is stdout. The sentence of a failure names the file. -ENOTSUP: not
 * in this build, or a program is missing; the sentence says which. */
int sb_json_write(const char *path, const struct sb_results *results);
int sb_csv_write(const char *path, const struct sb_results *results);
int sb_plot_write(const char *path, const struct sb_results *results);

/* What a transport found on this machine, or why it is out. */
struct sb_transport {
    const char *name;
    int err;       /* of its probe: nothing was found */
    char why[512]; /* then why */
    struct sl_device *devices;
    size_t count, shown; /* how many there are, and how many stand in devices */
};

/* As sb_json_write(), for --list. */
int sb_json_write_list(const char *path, const char *version, const struct sb_transport *transports,
                       size_t count);

/* Before the run: can path be written? As sb_json_write() would fail. */
int sb_file_check(const char *path);
/* "-" is stdout, which stays open. */
int sb_file_open(const char *path, FILE **out);
int sb_file_close(const char *path, FILE *file);

/* Before the run: can the drawing be made at all? */
int sb_plot_check(const char *path);

#endif
