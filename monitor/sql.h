/* SPDX-License-Identifier: Apache-2.0 */
/* Statements of SQLite, for the two files that keep something in the store (store.c, actions.c). */
#ifndef SL_MONITOR_SQL_H
#define SL_MONITOR_SQL_H

#include <sqlite3.h>
#include <stddef.h>
#include <stdint.h>

/* The negative errno for a result code of SQLite; 0: the code is no error. */
int sl_sql_error(int code);
/* sl_fail() for the last error of db: "the store: WHAT: ...". */
int sl_sql_fail(sqlite3 *db, const char *what);

/* Settings, tables that are missing, and statements[i] of texts[i]. A result code of SQLite; what
 * came of it is for sl_sql_end() in any case. */
int sl_sql_begin(sqlite3 *db, const char *pragmas, const char *schema, const char *const *texts,
                 sqlite3_stmt **statements, unsigned count);
/* Those that there are, and the connection. Takes NULL, in statements[] as well. */
void sl_sql_end(sqlite3 *db, sqlite3_stmt **statements, unsigned count);

/* place: from 1. The text is copied. */
void sl_sql_text(sqlite3_stmt *statement, int place, const char *text);
void sl_sql_number(sqlite3_stmt *statement, int place, uint64_t value);
/* One that gives no rows; its values are forgotten. 0, or a negative errno. */
int sl_sql_run(sqlite3_stmt *statement);

/* column: from 0. NULL is "". */
void sl_sql_take_text(sqlite3_stmt *statement, int column, char *out, size_t cap);
uint64_t sl_sql_take_number(sqlite3_stmt *statement, int column);

#endif
