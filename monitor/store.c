/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/store.h"

#include "monitor/event_line.h"
#include "monitor/sql.h"

#include "core/err.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define VERSION 1
#define PAGE 4096
#define PRUNE_EVERY 256 /* transitions */
#define WAITING_MAX 256 /* transitions that are not stored yet */

enum statement {
    BEGIN,
    COMMIT,
    ROLLBACK,
    PUT,
    PUT_CONDITION,
    LIST,
    CONDITIONS,
    PRUNE,
    GET_META,
    PUT_META,
    GET_ACK,
    PUT_ACK,
    OPEN_VERDICT,
    CLOSE_VERDICT,
    CLOSE_VERDICT_ID,
    ACK_VERDICT,
    VERDICTS,
    VERDICTS_OPEN,
    PRUNE_VERDICTS,
    FORGET,
    STATEMENTS
};

static const char *const texts[STATEMENTS] = {
    [BEGIN] = "BEGIN IMMEDIATE",
    [COMMIT] = "COMMIT",
    [ROLLBACK] = "ROLLBACK",
    [PUT] =
        "INSERT INTO transitions VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16)",
    [PUT_CONDITION] = "INSERT OR REPLACE INTO conditions VALUES (?1,?2,?3,?4)",
    [LIST] = "SELECT * FROM transitions WHERE id >= ?1 ORDER BY id LIMIT ?2",
    [CONDITIONS] = "SELECT kind, subject, name, value FROM conditions",
    [PRUNE] = "DELETE FROM transitions WHERE id <= ?1",
    [GET_META] = "SELECT value FROM meta WHERE key = ?1",
    [PUT_META] = "INSERT OR REPLACE INTO meta VALUES (?1,?2)",
    [GET_ACK] = "SELECT id FROM acks WHERE output = ?1",
    [PUT_ACK] = "INSERT OR REPLACE INTO acks VALUES (?1,?2)",
    [OPEN_VERDICT] = "INSERT OR REPLACE INTO verdicts VALUES (?1,?2,0,0,'',?3,?4,?5,?6,?7,?8,?9)",
    [CLOSE_VERDICT] = ("UPDATE verdicts SET closed_ns = ?1"
                       " WHERE closed_ns = 0 AND kind = ?2 AND subject = ?3 AND name = ?4"),
    [CLOSE_VERDICT_ID] = "UPDATE verdicts SET closed_ns = ?1 WHERE id = ?2",
    [ACK_VERDICT] =
        ("UPDATE verdicts SET acked_by = CASE acked_ns WHEN 0 THEN ?3 ELSE acked_by END,"
         " acked_ns = CASE acked_ns WHEN 0 THEN ?2 ELSE acked_ns END WHERE id = ?1"),
    [VERDICTS] = "SELECT * FROM verdicts WHERE id >= ?1 ORDER BY id LIMIT ?2",
    /* By its index: it is asked for once a period, and nearly all are closed. */
    [VERDICTS_OPEN] =
        "SELECT * FROM verdicts WHERE closed_ns = 0 AND id >= ?1 ORDER BY id LIMIT ?2",
    [PRUNE_VERDICTS] = "DELETE FROM verdicts WHERE id <= ?1 AND closed_ns != 0",
    [FORGET] = "DELETE FROM conditions WHERE kind = ?1 AND subject = ?2",
};

static const char schema[] =
    "CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);"
    "CREATE TABLE IF NOT EXISTS acks (output TEXT PRIMARY KEY, id INTEGER NOT NULL);"
    "CREATE TABLE IF NOT EXISTS conditions (kind TEXT, subject TEXT, name TEXT, value BLOB,"
    " PRIMARY KEY (kind, subject, name));"
    "CREATE TABLE IF NOT EXISTS transitions (id INTEGER PRIMARY KEY, wall_ns INTEGER, mono_ns "
    "INTEGER,"
    " boot_id TEXT, kind TEXT, subject TEXT, name TEXT, condition TEXT, was TEXT, became TEXT,"
    " cause TEXT, source TEXT, before INTEGER, after INTEGER, text TEXT, history REAL);"
    "CREATE TABLE IF NOT EXISTS verdicts (id INTEGER PRIMARY KEY, opened_ns INTEGER, closed_ns "
    "INTEGER,"
    " acked_ns INTEGER, acked_by TEXT, boot_id TEXT, kind TEXT, subject TEXT, name TEXT,"
    " condition TEXT, fatal INTEGER, text TEXT);"
    "CREATE INDEX IF NOT EXISTS verdicts_open ON verdicts (closed_ns);";

/* A transition as it is stored. */
struct entry {
    struct sl_mon_record record;
    struct sl_mon_condition condition;
    bool is_fatal;
};

struct sl_mon_store {
    sqlite3 *db;
    sqlite3_stmt *statements[STATEMENTS];
    struct sl_mon_store_options options;
    uint64_t next, oldest;
    unsigned since_prune;
    struct entry *waiting; /* a ring of WAITING_MAX, in their order */
    unsigned waiting_first, waiting_count;
    uint64_t lost;
};

static bool is_damaged(int code)
{
    return (code & 0xff) == SQLITE_CORRUPT || (code & 0xff) == SQLITE_NOTADB;
}

/* ---- statements ---- */

static int run(struct sl_mon_store *store, enum statement which)
{
    return sl_sql_run(store->statements[which]);
}

static void bind_text(struct sl_mon_store *store, enum statement which, int place, const char *text)
{
    sl_sql_text(store->statements[which], place, text);
}

static void bind_number(struct sl_mon_store *store, enum statement which, int place, uint64_t value)
{
    sl_sql_number(store->statements[which], place, value);
}

/* ---- opening ---- */

/* Damage is found now, and not when something is to be stored. */
static int check(sqlite3 *db)
{
    sqlite3_stmt *statement;
    int code = sqlite3_prepare_v2(db, "PRAGMA quick_check(1)", -1, &statement, NULL);
    bool good = false;

    if (code != SQLITE_OK)
        return code;
    code = sqlite3_step(statement);
    if (code == SQLITE_ROW)
        good = strcmp((const char *)sqlite3_column_text(statement, 0), "ok") == 0;
    sqlite3_finalize(statement);
    return code == SQLITE_ROW ? good ? SQLITE_OK : SQLITE_CORRUPT : code;
}

static int number_of(sqlite3 *db, const char *query, uint64_t *out)
{
    sqlite3_stmt *statement;
    int code = sqlite3_prepare_v2(db, query, -1, &statement, NULL);

    if (code != SQLITE_OK)
        return code;
    code = sqlite3_step(statement);
    if (code == SQLITE_ROW)
        *out = sl_sql_take_number(statement, 0);
    sqlite3_finalize(statement);
    return code == SQLITE_ROW ? SQLITE_OK : code;
}

static int prepare(struct sl_mon_store *store)
{
    char pragmas[256];
    uint64_t version = 0, last = 0, oldest = 0;
    int code = check(store->db);

    if (code == SQLITE_OK)
        code = number_of(store->db, "PRAGMA user_version", &version);
    if (code == SQLITE_OK && version > VERSION)
        return SQLITE_NOTADB; /* of a later agent: nothing in it is for this one */
    snprintf(pragmas, sizeof(pragmas),
             "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=256;"
             "PRAGMA max_page_count=%llu; PRAGMA user_version=%d;",
             (unsigned long long)(store->options.bytes_max != 0 ? store->options.bytes_max / PAGE
                                                                : UINT32_MAX - 1),
             VERSION);
    if (code == SQLITE_OK)
        code = sl_sql_begin(store->db, pragmas, schema, texts, store->statements, STATEMENTS);
    if (code == SQLITE_OK)
        code = number_of(store->db, "SELECT coalesce(max(id), 0) FROM transitions", &last);
    if (code == SQLITE_OK)
        code = number_of(store->db, "SELECT coalesce(min(id), 0) FROM transitions", &oldest);
    store->next = last + 1;
    store->oldest = oldest != 0 ? oldest : store->next;
    return code;
}

static void db_close(struct sl_mon_store *store)
{
    sl_sql_end(store->db, store->statements, STATEMENTS);
    store->db = NULL;
}

static int db_open(struct sl_mon_store *store, const char *path)
{
    int code = sqlite3_open_v2(
        path, &store->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL);

    if (code == SQLITE_OK)
        code = prepare(store);
    return code;
}

/* The file, and what belongs to it, under a name that tells when. */
static int put_aside(const char *path, char *out, size_t cap)
{
    static const char *const ends[] = {"", "-wal", "-shm"};
    char from[4096], to[4200];

    snprintf(out, cap, "%s.damaged-%lld", path, (long long)time(NULL));
    for (unsigned i = 0; i < 3; i++) {
        snprintf(from, sizeof(from), "%s%s", path, ends[i]);
        snprintf(to, sizeof(to), "%s%s", out, ends[i]);
        if (rename(from, to) != 0 && (errno != ENOENT || i == 0))
            return sl_fail(-errno, "the damaged store %s cannot be set aside: %s", from,
                           sluice_strerror(-errno));
    }
    return 0;
}

int sl_mon_store_open(const char *path, const struct sl_mon_store_options *options,
                      struct sl_mon_store **out, char *set_aside, size_t cap)
{
    struct sl_mon_store *store = calloc(1, sizeof(*store));
    int code, err = 0;

    if (store == NULL)
        return sl_fail(-ENOMEM, "no memory for the store");
    set_aside[0] = '\0';
    store->options = *options;
    store->waiting = calloc(WAITING_MAX, sizeof(store->waiting[0]));
    if (store->waiting == NULL) {
        free(store);
        return sl_fail(-ENOMEM, "no memory for the store");
    }
    code = db_open(store, path);
    if (is_damaged(code)) {
        db_close(store);
        err = put_aside(path, set_aside, cap);
        code = err == 0 ? db_open(store, path) : SQLITE_OK;
    }
    if (err == 0 && code != SQLITE_OK) {
        err = sl_sql_error(code);
        err = sl_fail(err != 0 ? err : -EIO, "the store %s cannot be opened: %s", path,
                      store->db != NULL ? sqlite3_errmsg(store->db) : sqlite3_errstr(code));
    }
    if (err != 0) {
        sl_mon_store_close(store);
        return err;
    }
    *out = store;
    return 0;
}

void sl_mon_store_close(struct sl_mon_store *store)
{
    if (store == NULL)
        return;
    db_close(store);
    free(store->waiting);
    free(store);
}

uint64_t sl_mon_store_next(const struct sl_mon_store *store)
{
    return store->next;
}

/* ---- transitions ---- */

static void describe(const struct sl_mon_transition *transition, struct entry *out)
{
    out->condition = *sl_mon_condition(transition->subject, transition->check);
    out->is_fatal = sl_mon_checks[transition->check].severity == SL_MON_FATAL;
    sl_mon_record_of(transition, &out->record);
}

static int put_record(struct sl_mon_store *store, const struct sl_mon_record *record)
{
    bind_number(store, PUT, 1, record->id);
    bind_number(store, PUT, 2, record->wall_ns);
    bind_number(store, PUT, 3, record->mono_ns);
    bind_text(store, PUT, 4, record->boot_id);
    bind_text(store, PUT, 5, record->kind);
    bind_text(store, PUT, 6, record->subject);
    bind_text(store, PUT, 7, record->check);
    bind_text(store, PUT, 8, record->condition);
    bind_text(store, PUT, 9, record->from);
    bind_text(store, PUT, 10, record->to);
    bind_text(store, PUT, 11, record->cause);
    bind_text(store, PUT, 12, record->source);
    bind_number(store, PUT, 13, record->before);
    bind_number(store, PUT, 14, record->after);
    bind_text(store, PUT, 15, record->text);
    sqlite3_bind_double(store->statements[PUT], 16, record->history);
    return run(store, PUT);
}

static int put_condition(struct sl_mon_store *store, const struct entry *entry)
{
    bind_text(store, PUT_CONDITION, 1, entry->record.kind);
    bind_text(store, PUT_CONDITION, 2, entry->record.subject);
    bind_text(store, PUT_CONDITION, 3, entry->record.check);
    sqlite3_bind_blob(store->statements[PUT_CONDITION], 4, &entry->condition,
                      sizeof(entry->condition), SQLITE_TRANSIENT);
    return run(store, PUT_CONDITION);
}

/* BAD out of RECOVERING is the verdict that there is. */
static int put_verdict(struct sl_mon_store *store, const struct entry *entry)
{
    const struct sl_mon_record *record = &entry->record;
    const char *ok = sl_mon_state_name(SL_MON_OK), *bad = sl_mon_state_name(SL_MON_BAD);
    const char *again = sl_mon_state_name(SL_MON_RECOVERING);

    if (strcmp(record->from, record->to) == 0)
        return 0;
    if (strcmp(record->to, ok) == 0) {
        bind_number(store, CLOSE_VERDICT, 1, record->wall_ns);
        bind_text(store, CLOSE_VERDICT, 2, record->kind);
        bind_text(store, CLOSE_VERDICT, 3, record->subject);
        bind_text(store, CLOSE_VERDICT, 4, record->check);
        return run(store, CLOSE_VERDICT);
    }
    if (strcmp(record->to, bad) != 0 || strcmp(record->from, again) == 0)
        return 0;
    bind_number(store, OPEN_VERDICT, 1, record->id);
    bind_number(store, OPEN_VERDICT, 2, record->wall_ns);
    bind_text(store, OPEN_VERDICT, 3, record->boot_id);
    bind_text(store, OPEN_VERDICT, 4, record->kind);
    bind_text(store, OPEN_VERDICT, 5, record->subject);
    bind_text(store, OPEN_VERDICT, 6, record->check);
    bind_text(store, OPEN_VERDICT, 7, record->condition);
    bind_number(store, OPEN_VERDICT, 8, entry->is_fatal);
    bind_text(store, OPEN_VERDICT, 9, record->text);
    return run(store, OPEN_VERDICT);
}

/* So that no more than so many are left. */
static int prune(struct sl_mon_store *store, uint64_t keep)
{
    uint64_t count = store->next - store->oldest;
    int err;

    if (count <= keep)
        return 0;
    bind_number(store, PRUNE, 1, store->next - keep - 1);
    err = run(store, PRUNE);
    bind_number(store, PRUNE_VERDICTS, 1, store->next - keep - 1);
    if (err == 0)
        err = run(store, PRUNE_VERDICTS);
    if (err == 0)
        store->oldest = store->next - keep;
    return err;
}

static int put_once(struct sl_mon_store *store, const struct entry *entry)
{
    int err = run(store, BEGIN);

    if (err != 0)
        return err;
    err = put_record(store, &entry->record);
    if (err == 0)
        err = put_condition(store, entry);
    if (err == 0)
        err = put_verdict(store, entry);
    if (err == 0)
        err = run(store, COMMIT);
    if (err != 0 && sqlite3_get_autocommit(store->db) == 0)
        (void)run(store, ROLLBACK);
    return err;
}

static int put(struct sl_mon_store *store, const struct entry *entry)
{
    int err;

    if (store->since_prune++ % PRUNE_EVERY == 0)
        (void)prune(store, store->options.transitions_max);
    err = put_once(store, entry);
    /* The file may be as large as it may get: half of what is in it gives way. */
    if (err == -ENOSPC && prune(store, (store->next - store->oldest) / 2) == 0)
        err = put_once(store, entry);
    if (err != 0)
        return sl_sql_fail(store->db, "a transition is not stored");
    if (entry->record.id >= store->next)
        store->next = entry->record.id + 1;
    return 0;
}

int sl_mon_store_retry(struct sl_mon_store *store)
{
    while (store->waiting_count > 0) {
        int err = put(store, &store->waiting[store->waiting_first]);

        if (err != 0)
            return err;
        store->waiting_first = (store->waiting_first + 1) % WAITING_MAX;
        store->waiting_count--;
    }
    return 0;
}

int sl_mon_store_put(struct sl_mon_store *store, const struct sl_mon_transition *transition)
{
    struct entry entry;
    int err = sl_mon_store_retry(store); /* those before it come first */

    describe(transition, &entry);
    if (err == 0)
        err = put(store, &entry);
    if (err == 0)
        return 0;
    if (store->waiting_count == WAITING_MAX) {
        store->lost++;
        return err;
    }
    store->waiting[(store->waiting_first + store->waiting_count++) % WAITING_MAX] = entry;
    return err;
}

unsigned sl_mon_store_waiting(const struct sl_mon_store *store)
{
    return store->waiting_count;
}

uint64_t sl_mon_store_lost(const struct sl_mon_store *store)
{
    return store->lost;
}

int sl_mon_store_forget(struct sl_mon_store *store, const struct sl_mon_subject *subject)
{
    bind_text(store, FORGET, 1, sl_mon_kind_name(subject->kind));
    bind_text(store, FORGET, 2, subject->name);
    return run(store, FORGET) == 0 ? 0 : sl_sql_fail(store->db, "conditions are not forgotten");
}

int sl_mon_store_list(struct sl_mon_store *store, uint64_t from, struct sl_mon_record *out,
                      unsigned most)
{
    sqlite3_stmt *statement = store->statements[LIST];
    int count = 0, code;

    bind_number(store, LIST, 1, from);
    bind_number(store, LIST, 2, most);
    while ((code = sqlite3_step(statement)) == SQLITE_ROW) {
        struct sl_mon_record *record = &out[count++];

        record->id = sl_sql_take_number(statement, 0);
        record->wall_ns = sl_sql_take_number(statement, 1);
        record->mono_ns = sl_sql_take_number(statement, 2);
        sl_sql_take_text(statement, 3, record->boot_id, sizeof(record->boot_id));
        sl_sql_take_text(statement, 4, record->kind, sizeof(record->kind));
        sl_sql_take_text(statement, 5, record->subject, sizeof(record->subject));
        sl_sql_take_text(statement, 6, record->check, sizeof(record->check));
        sl_sql_take_text(statement, 7, record->condition, sizeof(record->condition));
        sl_sql_take_text(statement, 8, record->from, sizeof(record->from));
        sl_sql_take_text(statement, 9, record->to, sizeof(record->to));
        sl_sql_take_text(statement, 10, record->cause, sizeof(record->cause));
        sl_sql_take_text(statement, 11, record->source, sizeof(record->source));
        record->before = sl_sql_take_number(statement, 12);
        record->after = sl_sql_take_number(statement, 13);
        sl_sql_take_text(statement, 14, record->text, sizeof(record->text));
        record->history = sqlite3_column_double(statement, 15);
    }
    sqlite3_reset(statement);
    return code == SQLITE_DONE ? count : sl_sql_fail(store->db, "transitions cannot be read");
}

/* ---- verdicts ---- */

int sl_mon_store_verdicts(struct sl_mon_store *store, uint64_t from, bool only_open,
                          struct sl_mon_verdict *out, unsigned most)
{
    enum statement which = only_open ? VERDICTS_OPEN : VERDICTS;
    sqlite3_stmt *statement = store->statements[which];
    int count = 0, code;

    bind_number(store, which, 1, from);
    bind_number(store, which, 2, most);
    while ((code = sqlite3_step(statement)) == SQLITE_ROW) {
        struct sl_mon_verdict *verdict = &out[count++];

        verdict->id = sl_sql_take_number(statement, 0);
        verdict->opened_ns = sl_sql_take_number(statement, 1);
        verdict->closed_ns = sl_sql_take_number(statement, 2);
        verdict->acked_ns = sl_sql_take_number(statement, 3);
        sl_sql_take_text(statement, 4, verdict->acked_by, sizeof(verdict->acked_by));
        sl_sql_take_text(statement, 5, verdict->boot_id, sizeof(verdict->boot_id));
        sl_sql_take_text(statement, 6, verdict->kind, sizeof(verdict->kind));
        sl_sql_take_text(statement, 7, verdict->subject, sizeof(verdict->subject));
        sl_sql_take_text(statement, 8, verdict->check, sizeof(verdict->check));
        sl_sql_take_text(statement, 9, verdict->condition, sizeof(verdict->condition));
        verdict->is_fatal = sl_sql_take_number(statement, 10) != 0;
        sl_sql_take_text(statement, 11, verdict->text, sizeof(verdict->text));
    }
    sqlite3_reset(statement);
    return code == SQLITE_DONE ? count : sl_sql_fail(store->db, "verdicts cannot be read");
}

int sl_mon_store_verdict_ack(struct sl_mon_store *store, uint64_t id, uint64_t wall_ns,
                             const char *who)
{
    bind_number(store, ACK_VERDICT, 1, id);
    bind_number(store, ACK_VERDICT, 2, wall_ns);
    bind_text(store, ACK_VERDICT, 3, who);
    if (run(store, ACK_VERDICT) != 0)
        return sl_sql_fail(store->db, "an acknowledgement is not stored");
    return sqlite3_changes(store->db) > 0
               ? 0
               : sl_fail(-ENOENT, "there is no verdict %llu", (unsigned long long)id);
}

/* ---- what was, when the agent ended ---- */

static bool find_kind(const char *name, enum sl_mon_kind *out)
{
    for (unsigned i = 0; i < SL_MON_KINDS; i++)
        if (strcmp(sl_mon_kind_name((enum sl_mon_kind)i), name) == 0) {
            *out = (enum sl_mon_kind)i;
            return true;
        }
    return false;
}

static bool find_check(enum sl_mon_kind kind, const char *name, enum sl_mon_check *out)
{
    for (unsigned i = 0; i < SL_MON_CHECK_COUNT; i++)
        if (sl_mon_checks[i].kind == kind && strcmp(sl_mon_checks[i].name, name) == 0) {
            *out = (enum sl_mon_check)i;
            return true;
        }
    return false;
}

/* What an older agent stored, or of a check that there is no more, is left where it is. */
static void restore_row(sqlite3_stmt *statement, struct sl_mon *mon)
{
    char kind_name[16], subject_name[SL_MON_NAME], check_name[32];
    struct sl_mon_condition condition;
    struct sl_mon_subject *subject;
    enum sl_mon_kind kind;
    enum sl_mon_check which;

    sl_sql_take_text(statement, 0, kind_name, sizeof(kind_name));
    sl_sql_take_text(statement, 1, subject_name, sizeof(subject_name));
    sl_sql_take_text(statement, 2, check_name, sizeof(check_name));
    if (!find_kind(kind_name, &kind) || !find_check(kind, check_name, &which) ||
        sqlite3_column_bytes(statement, 3) != sizeof(condition))
        return;
    memcpy(&condition, sqlite3_column_blob(statement, 3), sizeof(condition));
    subject = condition.state < SL_MON_STATES ? sl_mon_subject(mon, kind, subject_name) : NULL;
    if (subject != NULL)
        sl_mon_restore(mon, subject, which, &condition);
}

static int get_text(struct sl_mon_store *store, const char *key, char *out, size_t cap)
{
    sqlite3_stmt *statement = store->statements[GET_META];
    int code;

    out[0] = '\0';
    bind_text(store, GET_META, 1, key);
    code = sqlite3_step(statement);
    if (code == SQLITE_ROW)
        sl_sql_take_text(statement, 0, out, cap);
    sqlite3_reset(statement);
    return sl_sql_error(code);
}

int sl_mon_store_boot(struct sl_mon_store *store, const char *boot_id)
{
    bind_text(store, PUT_META, 1, "boot_id");
    bind_text(store, PUT_META, 2, boot_id);
    return run(store, PUT_META) == 0 ? 0 : sl_sql_fail(store->db, "the boot is not stored");
}

int sl_mon_store_note(struct sl_mon_store *store, const char *key, const char *boot_id,
                      uint64_t value)
{
    char name[64], text[SL_MON_BOOT_ID + 32];

    snprintf(name, sizeof(name), "note.%s", key);
    snprintf(text, sizeof(text), "%s %" PRIu64, boot_id, value);
    bind_text(store, PUT_META, 1, name);
    bind_text(store, PUT_META, 2, text);
    return run(store, PUT_META) == 0 ? 0 : sl_sql_fail(store->db, "a source's place is not stored");
}

uint64_t sl_mon_store_recall(struct sl_mon_store *store, const char *key, const char *boot_id)
{
    char name[64], text[SL_MON_BOOT_ID + 32];
    size_t len = strlen(boot_id);

    snprintf(name, sizeof(name), "note.%s", key);
    if (get_text(store, name, text, sizeof(text)) != 0 || strncmp(text, boot_id, len) != 0 ||
        text[len] != ' ')
        return 0;
    return strtoull(text + len + 1, NULL, 10);
}

static bool is_bad(struct sl_mon *mon, const struct sl_mon_verdict *verdict)
{
    enum sl_mon_kind kind;
    enum sl_mon_check which;
    struct sl_mon_subject *subject;

    if (!find_kind(verdict->kind, &kind) || !find_check(kind, verdict->check, &which))
        return false;
    subject = sl_mon_find(mon, kind, verdict->subject);
    if (subject == NULL)
        return false;
    uint8_t state = sl_mon_condition(subject, which)->state;

    return state == SL_MON_BAD || state == SL_MON_RECOVERING;
}

/* Of checks that there are no more, and of what was not stored when it ended. */
static int close_others(struct sl_mon_store *store, struct sl_mon *mon, uint64_t wall_ns)
{
    struct sl_mon_verdict verdict = {.id = 0};
    int count;

    while ((count = sl_mon_store_verdicts(store, verdict.id + 1, true, &verdict, 1)) == 1) {
        if (is_bad(mon, &verdict))
            continue;
        bind_number(store, CLOSE_VERDICT_ID, 1, wall_ns);
        bind_number(store, CLOSE_VERDICT_ID, 2, verdict.id);
        if (run(store, CLOSE_VERDICT_ID) != 0)
            return sl_sql_fail(store->db, "a verdict is not closed");
    }
    return count;
}

int sl_mon_store_restore(struct sl_mon_store *store, struct sl_mon *mon, uint64_t wall_ns)
{
    char boot_id[SL_MON_BOOT_ID];
    sqlite3_stmt *statement = store->statements[CONDITIONS];
    int code, err;

    if (get_text(store, "boot_id", boot_id, sizeof(boot_id)) != 0)
        return sl_sql_fail(store->db, "the last boot cannot be read");
    while ((code = sqlite3_step(statement)) == SQLITE_ROW)
        restore_row(statement, mon);
    sqlite3_reset(statement);
    if (code != SQLITE_DONE)
        return sl_sql_fail(store->db, "conditions cannot be read");
    err = close_others(store, mon, wall_ns);
    if (err == 0 && boot_id[0] != '\0')
        sl_mon_set_boot(mon, boot_id);
    return err;
}

/* ---- outputs ---- */

int sl_mon_store_acked(struct sl_mon_store *store, const char *output, uint64_t *out)
{
    sqlite3_stmt *statement = store->statements[GET_ACK];
    int code;

    bind_text(store, GET_ACK, 1, output);
    code = sqlite3_step(statement);
    *out = code == SQLITE_ROW ? sl_sql_take_number(statement, 0) : 0;
    sqlite3_reset(statement);
    return sl_sql_error(code) == 0 ? 0 : sl_sql_fail(store->db, "an output's place cannot be read");
}

int sl_mon_store_ack(struct sl_mon_store *store, const char *output, uint64_t id)
{
    bind_text(store, PUT_ACK, 1, output);
    bind_number(store, PUT_ACK, 2, id);
    return run(store, PUT_ACK) == 0 ? 0 : sl_sql_fail(store->db, "an output's place is not stored");
}
