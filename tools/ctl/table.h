/* SPDX-License-Identifier: Apache-2.0 */
/* Tables, sizes and times for people. */
#ifndef SLUICE_CTL_TABLE_H
#define SLUICE_CTL_TABLE_H

#include <stdio.h>

#define SC_COLUMNS 16
#define SC_TABLE_CELLS 32768

/* Columns are as wide as what is in them; the last one is not filled up. Zeroed: empty. */
struct sc_table {
    const char *heads[SC_COLUMNS]; /* one that begins with '>' stands at the right */
    unsigned columns, count;
    char **cells; /* NULL: there was no memory */
};

/* Ended by NULL. */
void sc_table_begin(struct sc_table *table, const char *head, ...) __attribute__((sentinel));
/* The next cell; what might move a terminal becomes '?'. */
void sc_table_cell(struct sc_table *table, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Ends each line by end ("\n"); no line is longer than width, if that is not 0. Lets go of it. */
void sc_table_print(struct sc_table *table, const char *end, unsigned width, FILE *out);

/* "400 Gbit/s"; "-" of 0. */
void sc_bits(double bits_per_s, char *out, size_t cap);
/* "1.5 GB". */
void sc_bytes(double bytes, char *out, size_t cap);
/* "3 min". */
void sc_span(double seconds, char *out, size_t cap);
/* Seconds since 1970, of "2026-11-25T20:39:11.123Z"; 0: it is no time. */
double sc_time(const char *text);
/* "2026-11-25 21:39:11 (3 min ago)", as the clocks here go; "never". */
void sc_when(const char *text, double now, char *out, size_t cap);
double sc_now(void);

#endif
