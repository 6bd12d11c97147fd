/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/actions.h"

#include "core/err.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>

#define PAGE 4096
#define BUSY_MS 100

enum statement { PUT, ID, UPDATE, LIST, PRUNE, STATEMENTS };

static const char *const texts[STATEMENTS] = {
    [PUT] =
        ("INSERT INTO actions (key, verdict, kind, plug, node, state, shadow, attempts, wanted_ns,"
         " tried_ns, ended_ns, boot_id, subject_kind, subject, name, condition, text, outcome)"
         " VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16,?17,?18)"
         " ON CONFLICT (key) DO UPDATE SET state = ?6, attempts = ?8, wanted_ns = ?9,"
         " ended_ns = ?11, outcome = ?18"),
    [ID] = "SELECT id FROM actions WHERE key = ?1",
    [UPDATE] = ("UPDATE actions SET state = ?2, attempts = ?3, tried_ns = ?4, ended_ns = ?5,"
                " outcome = ?6 WHERE id = ?1"),
    [LIST] = ("SELECT id, key, verdict, kind, plug, node, state, shadow, attempts, wanted_ns,"
              " tried_ns, ended_ns, boot_id, subject_kind, subject, name, condition, text, outcome"
              " FROM actions WHERE id >= ?1 ORDER BY id LIMIT ?2"),
    [PRUNE] = "DELETE FROM actions WHERE id <= ?1 - ?2 AND state != 'wanted'",
};

static const char schema[] =
    "CREATE TABLE IF NOT EXISTS actions (id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT UNIQUE,"
    " verdict INTEGER, kind TEXT, plug TEXT, node TEXT, state TEXT, shadow INTEGER,"
    " attempts INTEGER, wanted_ns INTEGER, tried_ns INTEGER, ended_ns INTEGER, boot_id TEXT,"
    " subject_kind TEXT, subject TEXT, name TEXT, condition TEXT, text TEXT, outcome TEXT);";

struct sl_actions {
    sqlite3 *db;
    sqlite3_stmt *statements[STATEMENTS];
};

static int fail(const struct sl_actions *actions, const char *what)
{
    int code = sqlite3_errcode(actions->db) & 0xff, err = -EIO;

    if (code == SQLITE_FULL)
        err = -ENOSPC;
    if (code == SQLITE_CANTOPEN || code == SQLITE_PERM || code == SQLITE_READONLY)
        err = -EACCES;
    if (code == SQLITE_BUSY || code == SQLITE_LOCKED)
        err = -EBUSY;
    return sl_fail(err, "the store: %s: %s", what, sqlite3_errmsg(actions->db));
}

int sl_actions_open(const char *path, uint64_t bytes_max, struct sl_actions **out)
{
    struct sl_actions *actions = calloc(1, sizeof(*actions));
    char pragmas[256];
    int code;

    if (actions == NULL)
        return sl_fail(-ENOMEM, "no memory for actions");
    code = sqlite3_open_v2(path, &actions->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    snprintf(pragmas, sizeof(pragmas),
             "PRAGMA synchronous=FULL; PRAGMA cache_size=-64; PRAGMA wal_autocheckpoint=256;"
             "PRAGMA max_page_count=%llu;",
             (unsigned long long)(bytes_max != 0 ? bytes_max / PAGE : UINT32_MAX - 1));
    if (code == SQLITE_OK)
        code = sqlite3_busy_timeout(actions->db, BUSY_MS);
    if (code == SQLITE_OK)
        code = sqlite3_exec(actions->db, pragmas, NULL, NULL, NULL);
    if (code == SQLITE_OK)
        code = sqlite3_exec(actions->db, schema, NULL, NULL, NULL);
    for (unsigned i = 0; i < STATEMENTS && code == SQLITE_OK; i++)
        code = sqlite3_prepare_v2(actions->db, texts[i], -1, &actions->statements[i], NULL);
    if (code != SQLITE_OK) {
        int err = fail(actions, "actions cannot be opened");

        sl_actions_close(actions);
        return err;
    }
    *out = actions;
    return 0;
}

void sl_actions_close(struct sl_actions *actions)
{
    if (actions == NULL)
        return;
    for (unsigned i = 0; i < STATEMENTS; i++)
        sqlite3_finalize(actions->statements[i]);
    sqlite3_close(actions->db);
    free(actions);
}

static void text_of(sqlite3_stmt *statement, int place, const char *text)
{
    sqlite3_bind_text(statement, place, text, -1, SQLITE_TRANSIENT);
}

static void number_of(sqlite3_stmt *statement, int place, uint64_t value)
{
    sqlite3_bind_int64(statement, place, (sqlite3_int64)value);
}

static bool run(sqlite3_stmt *statement)
{
    int code = sqlite3_step(statement);

    sqlite3_reset(statement);
    sqlite3_clear_bindings(statement);
    return code == SQLITE_DONE || code == SQLITE_ROW;
}

static int id_of(struct sl_actions *actions, const char *key, uint64_t *out)
{
    sqlite3_stmt *statement = actions->statements[ID];
    int code;

    text_of(statement, 1, key);
    code = sqlite3_step(statement);
    if (code == SQLITE_ROW)
        *out = (uint64_t)sqlite3_column_int64(statement, 0);
    sqlite3_reset(statement);
    return code == SQLITE_ROW ? 0 : fail(actions, "an action cannot be read");
}

int sl_actions_put(struct sl_actions *actions, const struct sl_mon_action *action, uint64_t *id)
{
    sqlite3_stmt *put = actions->statements[PUT];
    int err;

    text_of(put, 1, action->key);
    number_of(put, 2, action->verdict);
    text_of(put, 3, action->kind);
    text_of(put, 4, action->plug);
    text_of(put, 5, action->node);
    text_of(put, 6, action->state);
    number_of(put, 7, action->is_shadow);
    number_of(put, 8, action->attempts);
    number_of(put, 9, action->wanted_ns);
    number_of(put, 10, action->tried_ns);
    number_of(put, 11, action->ended_ns);
    text_of(put, 12, action->boot_id);
    text_of(put, 13, action->subject_kind);
    text_of(put, 14, action->subject);
    text_of(put, 15, action->check);
    text_of(put, 16, action->condition);
    text_of(put, 17, action->text);
    text_of(put, 18, action->outcome);
    if (!run(put))
        return fail(actions, "an action is not stored");
    err = id_of(actions, action->key, id);
    if (err != 0)
        return err;
    number_of(actions->statements[PRUNE], 1, *id);
    number_of(actions->statements[PRUNE], 2, SL_ACTIONS_KEPT);
    (void)run(actions->statements[PRUNE]);
    return 0;
}

int sl_actions_update(struct sl_actions *actions, const struct sl_mon_action *action)
{
    sqlite3_stmt *update = actions->statements[UPDATE];

    number_of(update, 1, action->id);
    text_of(update, 2, action->state);
    number_of(update, 3, action->attempts);
    number_of(update, 4, action->tried_ns);
    number_of(update, 5, action->ended_ns);
    text_of(update, 6, action->outcome);
    return run(update) ? 0 : fail(actions, "what came of an action is not stored");
}

static void take_text(sqlite3_stmt *statement, int column, char *out, size_t cap)
{
    const unsigned char *text = sqlite3_column_text(statement, column);

    snprintf(out, cap, "%s", text != NULL ? (const char *)text : "");
}

static void take(sqlite3_stmt *statement, struct sl_mon_action *out)
{
    out->id = (uint64_t)sqlite3_column_int64(statement, 0);
    take_text(statement, 1, out->key, sizeof(out->key));
    out->verdict = (uint64_t)sqlite3_column_int64(statement, 2);
    take_text(statement, 3, out->kind, sizeof(out->kind));
    take_text(statement, 4, out->plug, sizeof(out->plug));
    take_text(statement, 5, out->node, sizeof(out->node));
    take_text(statement, 6, out->state, sizeof(out->state));
    out->is_shadow = sqlite3_column_int(statement, 7) != 0;
    out->attempts = (unsigned)sqlite3_column_int64(statement, 8);
    out->wanted_ns = (uint64_t)sqlite3_column_int64(statement, 9);
    out->tried_ns = (uint64_t)sqlite3_column_int64(statement, 10);
    out->ended_ns = (uint64_t)sqlite3_column_int64(statement, 11);
    take_text(statement, 12, out->boot_id, sizeof(out->boot_id));
    take_text(statement, 13, out->subject_kind, sizeof(out->subject_kind));
    take_text(statement, 14, out->subject, sizeof(out->subject));
    take_text(statement, 15, out->check, sizeof(out->check));
    take_text(statement, 16, out->condition, sizeof(out->condition));
    take_text(statement, 17, out->text, sizeof(out->text));
    take_text(statement, 18, out->outcome, sizeof(out->outcome));
}

int sl_actions_list(struct sl_actions *actions, uint64_t from, struct sl_mon_action *out,
                    unsigned most)
{
    sqlite3_stmt *list = actions->statements[LIST];
    int count = 0, code;

    number_of(list, 1, from);
    number_of(list, 2, most);
    while ((code = sqlite3_step(list)) == SQLITE_ROW)
        take(list, &out[count++]);
    sqlite3_reset(list);
    return code == SQLITE_DONE ? count : fail(actions, "actions cannot be read");
}

int sl_actions_get(struct sl_actions *actions, uint64_t id, struct sl_mon_action *out)
{
    int count = sl_actions_list(actions, id, out, 1);

    if (count < 0)
        return count;
    return count == 1 && out->id == id
               ? 0
               : sl_fail(-ENOENT, "there is no action %llu", (unsigned long long)id);
}
