/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines of a file of others, one after another, without reading all of it. A line is a text without
 * 0 bytes, of at most SL_LINE_MAX bytes, and every line ends: a file that stops in the middle of
 * one was cut off.
 *
 *     struct sl_lines lines;
 *     int err = sl_lines_open(&lines, in);
 *     while (err >= 0 && (err = sl_lines_next(&lines)) > 0)
 *         err = read_it(lines.text, lines.len);
 *     sl_lines_close(&lines);
 */
#ifndef SL_MONITOR_READ_LINES_H
#define SL_MONITOR_READ_LINES_H

#include "monitor/read/read.h"

#define SL_LINE_MAX (1u << 20)

struct sl_lines {
    char *text; /* the line, ended by 0; it may be written to; until the next one is asked for */
    size_t len;
    uint64_t number; /* from 1 */
    struct sl_read_in *in;
    char *buffer;
    size_t cap, begin, end;
    bool is_over; /* no more bytes */
};

int sl_lines_open(struct sl_lines *lines, struct sl_read_in *in);
void sl_lines_close(struct sl_lines *lines);
/* 1: there is one. 0: the end. -EBADMSG, -ENOMEM, or what reading gave. */
int sl_lines_next(struct sl_lines *lines);

/* -EBADMSG: the file's name, the line's number, and what is wrong with it. */
__attribute__((format(printf, 2, 3))) int sl_lines_bad(const struct sl_lines *lines,
                                                       const char *format, ...);

/* A number that is all of the text, digits only. False: it is none, or too large. */
bool sl_text_number(const char *text, size_t len, uint64_t *number);

#endif
