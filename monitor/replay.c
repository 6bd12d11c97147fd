/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/replay.h"

#include "monitor/bundle.h"
#include "monitor/event_line.h"

#include "core/err.h"

#include <errno.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

#define LINE_MAX_BYTES 65536
#define SOURCES_MAX 64
#define SUBJECTS_MAX 65536
#define PENDING_MAX 4096 /* events between two lines: a boot resets all */

struct replay {
    const char *name;
    const struct sl_replay_sink *sink;
    struct sl_replay_result *result;
    struct sl_mon *mon;            /* NULL: no bundle line has come */
    char sources[SOURCES_MAX][32]; /* names that evidence points to */
    char *pending[PENDING_MAX];    /* made now, and not compared yet */
    unsigned source_count, first, count;
    int err;
};

static int wrong(const struct replay *replay, const char *what)
{
    return sl_fail(-EINVAL, "%s:%llu: %s", replay->name, (unsigned long long)replay->result->lines,
                   what);
}

/* ---- what the engine makes of it ---- */

static void on_transition(void *arg, const struct sl_mon_transition *transition)
{
    struct replay *replay = arg;
    struct sl_mon_record record;
    char *text = NULL;
    size_t len;
    FILE *out = replay->count < PENDING_MAX ? open_memstream(&text, &len) : NULL;

    if (out == NULL) {
        replay->err = sl_fail(-ENOMEM, "there is no room for so many transitions");
        return;
    }
    sl_mon_record_of(transition, &record);
    replay->err = replay->err ?: sl_mon_event_line(&record, out);
    if (fclose(out) != 0 || len == 0) {
        free(text);
        replay->err = sl_fail(-ENOMEM, "no memory for a line of JSON");
        return;
    }
    text[len - 1] = '\0';
    replay->result->replayed++;
    if (replay->sink->on_event != NULL)
        replay->sink->on_event(replay->sink->arg, text);
    replay->pending[(replay->first + replay->count++) % PENDING_MAX] = text;
}

static void differ(struct replay *replay, const char *recorded, const char *replayed)
{
    replay->result->differences++;
    if (replay->sink->on_difference != NULL)
        replay->sink->on_difference(replay->sink->arg, replay->result->lines, recorded, replayed);
}

static char *take_pending(struct replay *replay)
{
    char *text;

    if (replay->count == 0)
        return NULL;
    text = replay->pending[replay->first];
    replay->first = (replay->first + 1) % PENDING_MAX;
    replay->count--;
    return text;
}

/* The recording has nothing to set against what is left. */
static void too_many(struct replay *replay)
{
    char *text;

    while ((text = take_pending(replay)) != NULL) {
        differ(replay, NULL, text);
        free(text);
    }
}

/* recorded: what is between {"out": and }. */
static void compare(struct replay *replay, const char *recorded)
{
    char *replayed = take_pending(replay);

    replay->result->recorded++;
    if (replayed == NULL || strcmp(recorded, replayed) != 0)
        differ(replay, recorded, replayed);
    free(replayed);
}

/* ---- fields ---- */

static const char *text_of(struct json_object *line, const char *key)
{
    struct json_object *value;

    return json_object_object_get_ex(line, key, &value) &&
                   json_object_is_type(value, json_type_string)
               ? json_object_get_string(value)
               : "";
}

static uint64_t number_of(struct json_object *line, const char *key)
{
    struct json_object *value;

    return json_object_object_get_ex(line, key, &value) ? json_object_get_uint64(value) : 0;
}

static bool kind_of(struct json_object *line, enum sl_mon_kind *out)
{
    for (unsigned i = 0; i < SL_MON_KINDS; i++)
        if (strcmp(text_of(line, "kind"), sl_mon_kind_name((enum sl_mon_kind)i)) == 0) {
            *out = (enum sl_mon_kind)i;
            return true;
        }
    return false;
}

static bool check_of(struct json_object *line, enum sl_mon_check *out)
{
    for (unsigned i = 0; i < SL_MON_CHECK_COUNT; i++)
        if (strcmp(text_of(line, "check"), sl_mon_checks[i].name) == 0) {
            *out = (enum sl_mon_check)i;
            return true;
        }
    return false;
}

/* Evidence points to it for as long as the engine lives. */
static const char *source_of(struct replay *replay, const char *name)
{
    unsigned i = 0;

    while (i < replay->source_count && strcmp(replay->sources[i], name) != 0)
        i++;
    if (i == SOURCES_MAX || strlen(name) >= sizeof(replay->sources[0]))
        return NULL;
    if (i == replay->source_count)
        strcpy(replay->sources[replay->source_count++], name);
    return replay->sources[i];
}

/* ---- inputs ---- */

static int put_sample(struct replay *replay, struct json_object *line,
                      struct sl_mon_subject *subject, enum sl_mon_check check)
{
    struct sl_mon_evidence evidence = {.before = number_of(line, "before"),
                                       .after = number_of(line, "after")};
    struct json_object *bad;
    bool is_bad = json_object_object_get_ex(line, "bad", &bad) && json_object_get_boolean(bad);

    evidence.source = source_of(replay, text_of(line, "source"));
    if (evidence.source == NULL)
        return wrong(replay, "there are too many sources, or the name of one is too long");
    snprintf(evidence.text, sizeof(evidence.text), "%s", text_of(line, "text"));
    sl_mon_sample(replay->mon, subject, check, is_bad, &evidence);
    return 0;
}

static int put_condition(struct replay *replay, struct json_object *line,
                         struct sl_mon_subject *subject, enum sl_mon_check check)
{
    struct sl_mon_condition condition = {.recent = (uint32_t)number_of(line, "recent"),
                                         .since_ns = number_of(line, "since"),
                                         .bad_ns = number_of(line, "bad_ns"),
                                         .bads = number_of(line, "bads"),
                                         .good = number_of(line, "good"),
                                         .history_ns = number_of(line, "history_ns")};
    struct json_object *entered, *history;

    if (number_of(line, "state") >= SL_MON_STATES || number_of(line, "samples") > SL_MON_WINDOW_MAX)
        return wrong(replay, "that is no condition");
    condition.state = (uint8_t)number_of(line, "state");
    condition.samples = (uint8_t)number_of(line, "samples");
    if (json_object_object_get_ex(line, "history", &history))
        condition.history = json_object_get_double(history);
    if (json_object_object_get_ex(line, "entered", &entered) &&
        json_object_is_type(entered, json_type_array))
        for (unsigned i = 0; i < SL_MON_STATES && i < json_object_array_length(entered); i++)
            condition.entered[i] =
                (uint32_t)json_object_get_uint64(json_object_array_get_idx(entered, i));
    sl_mon_restore(replay->mon, subject, check, &condition);
    return 0;
}

/* Of one subject, which is there from its first mention on. */
static int put_of_subject(struct replay *replay, struct json_object *line, const char *what)
{
    const char *name = text_of(line, "subject");
    struct sl_mon_subject *subject;
    enum sl_mon_check check;
    enum sl_mon_kind kind;

    if (!kind_of(line, &kind) || name[0] == '\0' || strlen(name) >= SL_MON_NAME)
        return wrong(replay, "there is no such kind or name of a subject");
    subject = sl_mon_subject(replay->mon, kind, name);
    if (subject == NULL)
        return wrong(replay, "there are more subjects than the recording agent had room for");
    if (strcmp(what, "subject") == 0)
        return 0;
    if (strcmp(what, "use") == 0)
        return sl_mon_use(replay->mon, subject), 0;
    if (strcmp(what, "clear") == 0)
        return sl_mon_clear(replay->mon, subject), 0;
    if (strcmp(what, "forget") == 0)
        return sl_mon_forget(replay->mon, subject), 0;
    if (!check_of(line, &check) || sl_mon_checks[check].kind != kind)
        return wrong(replay, "there is no such check of that kind of subject");
    if (strcmp(what, "sample") == 0)
        return put_sample(replay, line, subject, check);
    if (strcmp(what, "restore") == 0)
        return put_condition(replay, line, subject, check);
    return wrong(replay, "there is no such input");
}

static int put_input(struct replay *replay, struct json_object *line, const char *what)
{
    const struct sl_mon_time time = {.mono_ns = number_of(line, "mono"),
                                     .wall_ns = number_of(line, "wall"),
                                     .boot_ns = number_of(line, "boot")};
    enum sl_mon_check check;

    replay->result->inputs++;
    if (replay->mon == NULL)
        return wrong(replay, "a bundle begins with a line that says so");
    if (strcmp(what, "time") == 0)
        return sl_mon_set_time(replay->mon, &time), 0;
    if (strcmp(what, "boot") == 0)
        return sl_mon_set_boot(replay->mon, text_of(line, "id")), 0;
    if (strcmp(what, "calm") != 0)
        return put_of_subject(replay, line, what);
    if (!check_of(line, &check))
        return wrong(replay, "there is no such check");
    sl_mon_calm(replay->mon, check);
    return 0;
}

static int begin(struct replay *replay, struct json_object *line)
{
    const struct sl_mon_options options = {.subjects_max = number_of(line, "subjects"),
                                           .next_id = number_of(line, "next_id"),
                                           .on_transition = on_transition,
                                           .arg = replay};

    if (number_of(line, "bundle") != SL_BUNDLE_VERSION)
        return wrong(replay, "this bundle is of another version");
    if (options.subjects_max == 0 || options.subjects_max > SUBJECTS_MAX)
        return wrong(replay, "subjects is to be from 1 to 65536");
    sl_mon_destroy(replay->mon);
    replay->mon = NULL;
    return sl_mon_create(&options, &replay->mon);
}

/* ---- lines ---- */

static int put_object(struct replay *replay, const char *text)
{
    struct json_object *line = json_tokener_parse(text);
    const char *what;
    int err;

    if (!json_object_is_type(line, json_type_object)) {
        json_object_put(line);
        return wrong(replay, "that is no object of JSON");
    }
    what = text_of(line, "in");
    if (what[0] != '\0') {
        err = put_input(replay, line, what);
    } else if (json_object_object_get_ex(line, "bundle", NULL)) {
        err = begin(replay, line);
    } else if (json_object_object_get_ex(line, "end", NULL)) {
        replay->result->is_whole = false;
        err = 0;
    } else {
        err = wrong(replay, "that is no line of a bundle");
    }
    json_object_put(line);
    return err;
}

static int put_line(struct replay *replay, char *text, size_t len)
{
    static const char out[] = "{\"out\":";

    if (len == 0 || text[len - 1] != '\n') { /* the agent was ended while it wrote */
        replay->result->is_whole = false;
        return 0;
    }
    text[--len] = '\0';
    if (strlen(text) != len || len > LINE_MAX_BYTES)
        return wrong(replay, "that is no line of a bundle");
    if (strncmp(text, out, sizeof(out) - 1) == 0 && text[len - 1] == '}') {
        text[len - 1] = '\0';
        compare(replay, text + sizeof(out) - 1);
        return 0;
    }
    too_many(replay);
    return put_object(replay, text);
}

int sl_replay(FILE *file, const char *name, const struct sl_replay_sink *sink,
              struct sl_replay_result *out)
{
    struct replay *replay = calloc(1, sizeof(*replay));
    char *text = NULL;
    size_t room = 0;
    ssize_t len;
    int err = 0;

    *out = (struct sl_replay_result){.is_whole = true};
    if (replay == NULL)
        return sl_fail(-ENOMEM, "no memory to replay a bundle");
    replay->name = name;
    replay->sink = sink;
    replay->result = out;
    while (err == 0 && (len = getline(&text, &room, file)) > 0) {
        out->lines++;
        err = put_line(replay, text, (size_t)len);
        err = err ?: replay->err;
    }
    if (err == 0 && ferror(file))
        err = sl_fail(-EIO, "%s cannot be read", name);
    if (err == 0 && out->lines == 0)
        err = sl_fail(-EINVAL, "%s is empty", name);
    if (err == 0 && out->is_whole)
        too_many(replay);
    for (char *left = take_pending(replay); left != NULL; left = take_pending(replay))
        free(left);
    free(text);
    sl_mon_destroy(replay->mon);
    free(replay);
    return err;
}
