/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/sql.h"

#include "core/err.h"

#include <errno.h>
#include <stdio.h>

int sl_sql_error(int code)
{
    switch (code & 0xff) {
    case SQLITE_OK:
    case SQLITE_DONE:
    case SQLITE_ROW: return 0;
    case SQLITE_FULL: return -ENOSPC;
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
    case SQLITE_READONLY:
    case SQLITE_AUTH: return -EACCES;
    case SQLITE_NOMEM: return -ENOMEM;
    case SQLITE_BUSY:
    case SQLITE_LOCKED: return -EBUSY;
    default: return -EIO;
    }
}

int sl_sql_fail(sqlite3 *db, const char *what)
{
    int err = sl_sql_error(sqlite3_errcode(db));

    return sl_fail(err != 0 ? err : -EIO, "the store: %s: %s", what, sqlite3_errmsg(db));
}

int sl_sql_begin(sqlite3 *db, const char *pragmas, const char *schema, const char *const *texts,
                 sqlite3_stmt **statements, unsigned count)
{
    int code = sqlite3_exec(db, pragmas, NULL, NULL, NULL);

    if (code == SQLITE_OK)
        code = sqlite3_exec(db, schema, NULL, NULL, NULL);
    for (unsigned i = 0; i < count && code == SQLITE_OK; i++)
        code = sqlite3_prepare_v2(db, texts[i], -1, &statements[i], NULL);
    return code;
}

void sl_sql_end(sqlite3 *db, sqlite3_stmt **statements, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        sqlite3_finalize(statements[i]);
        statements[i] = NULL;
    }
    sqlite3_close(db);
}

void sl_sql_text(sqlite3_stmt *statement, int place, const char *text)
{
    sqlite3_bind_text(statement, place, text, -1, SQLITE_TRANSIENT);
}

void sl_sql_number(sqlite3_stmt *statement, int place, uint64_t value)
{
    sqlite3_bind_int64(statement, place, (sqlite3_int64)value);
}

int sl_sql_run(sqlite3_stmt *statement)
{
    int code = sqlite3_step(statement);

    sqlite3_reset(statement);
    sqlite3_clear_bindings(statement);
    return sl_sql_error(code);
}

void sl_sql_take_text(sqlite3_stmt *statement, int column, char *out, size_t cap)
{
    const unsigned char *text = sqlite3_column_text(statement, column);

    snprintf(out, cap, "%s", text != NULL ? (const char *)text : "");
}

uint64_t sl_sql_take_number(sqlite3_stmt *statement, int column)
{
    return (uint64_t)sqlite3_column_int64(statement, column);
}
