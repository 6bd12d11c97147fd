/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/actions.h"

#include "monitor/sql.h"

#include "core/err.h"

#include <errno.h>
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
        code = sl_sql_begin(actions->db, pragmas, schema, texts, actions->statements, STATEMENTS);
    if (code != SQLITE_OK) {
        int err = sl_sql_fail(actions->db, "actions cannot be opened");

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
    sl_sql_end(actions->db, actions->statements, STATEMENTS);
    free(actions);
}

static int id_of(struct sl_actions *actions, const char *key, uint64_t *out)
{
    sqlite3_stmt *statement = actions->statements[ID];
    int code;

    sl_sql_text(statement, 1, key);
    code = sqlite3_step(statement);
    if (code == SQLITE_ROW)
        *out = sl_sql_take_number(statement, 0);
    sqlite3_reset(statement);
    return code == SQLITE_ROW ? 0 : sl_sql_fail(actions->db, "an action cannot be read");
}

int sl_actions_put(struct sl_actions *actions, const struct sl_mon_action *action, uint64_t *id)
{
    sqlite3_stmt *put = actions->statements[PUT];
    int err;

    sl_sql_text(put, 1, action->key);
    sl_sql_number(put, 2, action->verdict);
    sl_sql_text(put, 3, action->kind);
    sl_sql_text(put, 4, action->plug);
    sl_sql_text(put, 5, action->node);
    sl_sql_text(put, 6, action->state);
    sl_sql_number(put, 7, action->is_shadow);
    sl_sql_number(put, 8, action->attempts);
    sl_sql_number(put, 9, action->wanted_ns);
    sl_sql_number(put, 10, action->tried_ns);
    sl_sql_number(put, 11, action->ended_ns);
    sl_sql_text(put, 12, action->boot_id);
    sl_sql_text(put, 13, action->subject_kind);
    sl_sql_text(put, 14, action->subject);
    sl_sql_text(put, 15, action->check);
    sl_sql_text(put, 16, action->condition);
    sl_sql_text(put, 17, action->text);
    sl_sql_text(put, 18, action->outcome);
    if (sl_sql_run(put) != 0)
        return sl_sql_fail(actions->db, "an action is not stored");
    err = id_of(actions, action->key, id);
    if (err != 0)
        return err;
    sl_sql_number(actions->statements[PRUNE], 1, *id);
    sl_sql_number(actions->statements[PRUNE], 2, SL_ACTIONS_KEPT);
    (void)sl_sql_run(actions->statements[PRUNE]);
    return 0;
}

int sl_actions_update(struct sl_actions *actions, const struct sl_mon_action *action)
{
    sqlite3_stmt *update = actions->statements[UPDATE];

    sl_sql_number(update, 1, action->id);
    sl_sql_text(update, 2, action->state);
    sl_sql_number(update, 3, action->attempts);
    sl_sql_number(update, 4, action->tried_ns);
    sl_sql_number(update, 5, action->ended_ns);
    sl_sql_text(update, 6, action->outcome);
    return sl_sql_run(update) == 0
               ? 0
               : sl_sql_fail(actions->db, "what came of an action is not stored");
}

static void take(sqlite3_stmt *statement, struct sl_mon_action *out)
{
    out->id = sl_sql_take_number(statement, 0);
    sl_sql_take_text(statement, 1, out->key, sizeof(out->key));
    out->verdict = sl_sql_take_number(statement, 2);
    sl_sql_take_text(statement, 3, out->kind, sizeof(out->kind));
    sl_sql_take_text(statement, 4, out->plug, sizeof(out->plug));
    sl_sql_take_text(statement, 5, out->node, sizeof(out->node));
    sl_sql_take_text(statement, 6, out->state, sizeof(out->state));
    out->is_shadow = sl_sql_take_number(statement, 7) != 0;
    out->attempts = (unsigned)sl_sql_take_number(statement, 8);
    out->wanted_ns = sl_sql_take_number(statement, 9);
    out->tried_ns = sl_sql_take_number(statement, 10);
    out->ended_ns = sl_sql_take_number(statement, 11);
    sl_sql_take_text(statement, 12, out->boot_id, sizeof(out->boot_id));
    sl_sql_take_text(statement, 13, out->subject_kind, sizeof(out->subject_kind));
    sl_sql_take_text(statement, 14, out->subject, sizeof(out->subject));
    sl_sql_take_text(statement, 15, out->check, sizeof(out->check));
    sl_sql_take_text(statement, 16, out->condition, sizeof(out->condition));
    sl_sql_take_text(statement, 17, out->text, sizeof(out->text));
    sl_sql_take_text(statement, 18, out->outcome, sizeof(out->outcome));
}

int sl_actions_list(struct sl_actions *actions, uint64_t from, struct sl_mon_action *out,
                    unsigned most)
{
    sqlite3_stmt *list = actions->statements[LIST];
    int count = 0, code;

    sl_sql_number(list, 1, from);
    sl_sql_number(list, 2, most);
    while ((code = sqlite3_step(list)) == SQLITE_ROW)
        take(list, &out[count++]);
    sqlite3_reset(list);
    return code == SQLITE_DONE ? count : sl_sql_fail(actions->db, "actions cannot be read");
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
