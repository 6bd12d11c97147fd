/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/bundle.h"

#include "monitor/event_line.h"

#include "core/err.h"
#include "monitor/json_add.h"

#include <errno.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

struct sl_bundle {
    FILE *file;
    uint64_t bytes, bytes_max;
    struct sl_mon_time time; /* that the file has */
    bool is_over;
};

int sl_bundle_open(const char *path, uint64_t bytes_max, struct sl_bundle **out)
{
    struct sl_bundle *bundle = calloc(1, sizeof(*bundle));
    long at;

    if (bundle == NULL)
        return sl_fail(-ENOMEM, "no memory for a bundle");
    bundle->bytes_max = bytes_max;
    bundle->file = fopen(path, "ae");
    at = bundle->file != NULL && fseek(bundle->file, 0, SEEK_END) == 0 ? ftell(bundle->file) : -1;
    if (at < 0) {
        int err =
            sl_fail(-errno, "%s cannot be opened for a bundle: %s", path, sluice_strerror(-errno));

        sl_bundle_close(bundle);
        return err;
    }
    bundle->bytes = (uint64_t)at;
    *out = bundle;
    return 0;
}

void sl_bundle_close(struct sl_bundle *bundle)
{
    if (bundle == NULL)
        return;
    if (bundle->file != NULL)
        fclose(bundle->file);
    free(bundle);
}

/* ---- lines ---- */

/* Whole or not at all, as half a recording says something that was not so. */
static void put(struct sl_bundle *bundle, const char *before, const char *text, const char *after)
{
    size_t len = strlen(before) + strlen(text) + strlen(after);

    if (bundle->is_over)
        return;
    if (bundle->bytes + len > bundle->bytes_max) {
        bundle->is_over = true;
        fputs("{\"end\":\"full\"}\n", bundle->file);
        (void)fflush(bundle->file);
        return;
    }
    bundle->bytes += len;
    if (fprintf(bundle->file, "%s%s%s", before, text, after) < 0)
        bundle->is_over = true;
}

static void put_object(struct sl_bundle *bundle, struct json_object *line)
{
    const char *text = json_object_to_json_string_ext(line, JSON_C_TO_STRING_PLAIN |
                                                                JSON_C_TO_STRING_NOSLASHESCAPE);

    if (text != NULL)
        put(bundle, "", text, "\n");
    else
        bundle->is_over = true;
    json_object_put(line);
}

void sl_bundle_begin(struct sl_bundle *bundle, const char *version, size_t subjects_max,
                     uint64_t next_id)
{
    struct json_object *line = json_object_new_object();

    sl_json_add_number(line, "bundle", SL_BUNDLE_VERSION);
    sl_json_add_text(line, "version", version);
    sl_json_add_number(line, "subjects", subjects_max);
    sl_json_add_number(line, "next_id", next_id);
    put_object(bundle, line);
    bundle->time = (struct sl_mon_time){0};
}

static void put_time(struct sl_bundle *bundle, const struct sl_mon_time *time)
{
    struct json_object *line;

    if (memcmp(&bundle->time, time, sizeof(*time)) == 0)
        return;
    bundle->time = *time;
    line = json_object_new_object();
    sl_json_add_text(line, "in", "time");
    sl_json_add_number(line, "mono", time->mono_ns);
    sl_json_add_number(line, "wall", time->wall_ns);
    sl_json_add_number(line, "boot", time->boot_ns);
    put_object(bundle, line);
}

static void add_evidence(struct json_object *line, const struct sl_mon_evidence *evidence)
{
    sl_json_add_text(line, "source", evidence->source != NULL ? evidence->source : "");
    sl_json_add_number(line, "before", evidence->before);
    sl_json_add_number(line, "after", evidence->after);
    sl_json_add_text(line, "text", evidence->text);
}

static void add_condition(struct json_object *line, const struct sl_mon_condition *condition)
{
    struct json_object *entered = json_object_new_array();

    sl_json_add_number(line, "state", condition->state);
    sl_json_add_number(line, "samples", condition->samples);
    sl_json_add_number(line, "recent", condition->recent);
    sl_json_add_number(line, "since", condition->since_ns);
    sl_json_add_number(line, "bad_ns", condition->bad_ns);
    sl_json_add_number(line, "bads", condition->bads);
    sl_json_add_number(line, "good", condition->good);
    for (unsigned i = 0; i < SL_MON_STATES; i++)
        json_object_array_add(entered, json_object_new_uint64(condition->entered[i]));
    json_object_object_add(line, "entered", entered);
    json_object_object_add(line, "history", json_object_new_double(condition->history));
    sl_json_add_number(line, "history_ns", condition->history_ns);
}

void sl_bundle_input(struct sl_bundle *bundle, const struct sl_mon_time *time,
                     const struct sl_mon_input_record *input)
{
    static const char *const names[] = {
        [SL_MON_PUT_BOOT] = "boot",       [SL_MON_PUT_SUBJECT] = "subject",
        [SL_MON_PUT_FORGET] = "forget",   [SL_MON_PUT_USE] = "use",
        [SL_MON_PUT_CLEAR] = "clear",     [SL_MON_PUT_SAMPLE] = "sample",
        [SL_MON_PUT_RESTORE] = "restore", [SL_MON_PUT_CALM] = "calm"};
    struct json_object *line;

    if (bundle->is_over)
        return;
    put_time(bundle, time);
    line = json_object_new_object();
    sl_json_add_text(line, "in", names[input->what]);
    if (input->what == SL_MON_PUT_BOOT) {
        sl_json_add_text(line, "id", input->boot_id);
    } else if (input->what != SL_MON_PUT_CALM) {
        sl_json_add_text(line, "kind", sl_mon_kind_name(input->kind));
        sl_json_add_text(line, "subject", input->name);
    }
    if (input->what >= SL_MON_PUT_SAMPLE)
        sl_json_add_text(line, "check", sl_mon_checks[input->check].name);
    if (input->what == SL_MON_PUT_SAMPLE && input->is_bad) {
        json_object_object_add(line, "bad", json_object_new_boolean(true));
        add_evidence(line, input->evidence);
    }
    if (input->what == SL_MON_PUT_RESTORE)
        add_condition(line, input->condition);
    put_object(bundle, line);
}

void sl_bundle_output(struct sl_bundle *bundle, const struct sl_mon_transition *transition)
{
    struct sl_mon_record record;
    char *text = NULL;
    size_t len;
    FILE *out;

    if (bundle->is_over)
        return;
    out = open_memstream(&text, &len);
    if (out == NULL) {
        bundle->is_over = true;
        return;
    }
    sl_mon_record_of(transition, &record);
    if (sl_mon_event_line(&record, out) != 0)
        bundle->is_over = true;
    if (fclose(out) == 0 && len > 0) {
        text[len - 1] = '\0'; /* its line's end */
        put(bundle, "{\"out\":", text, "}\n");
    }
    free(text);
}

void sl_bundle_flush(struct sl_bundle *bundle)
{
    if (fflush(bundle->file) != 0)
        bundle->is_over = true;
}

bool sl_bundle_is_over(const struct sl_bundle *bundle)
{
    return bundle->is_over;
}
