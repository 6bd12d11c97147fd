/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/ranks_json.h"

#include "core/err.h"

#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

/* Bytes of a user, as text that any reader of JSON takes: printable ASCII. */
void sl_mon_json_text(struct json_object *out, const char *key, const char *text)
{
    char clean[1024];
    size_t i = 0;

    for (; i + 1 < sizeof(clean) && text[i] != '\0'; i++)
        clean[i] = text[i];
    clean[i] = '\0';
    sl_tame_text(clean);
    for (i = 0; clean[i] != '\0'; i++)
        if ((unsigned char)clean[i] > 126)
            clean[i] = '?';
    json_object_object_add(out, key, json_object_new_string(clean));
}

void sl_mon_json_number(struct json_object *out, const char *key, int64_t value)
{
    json_object_object_add(out, key, json_object_new_int64(value));
}

void sl_mon_json_seconds(struct json_object *out, const char *key, uint64_t ns)
{
    char text[32];

    snprintf(text, sizeof(text), "%.3f", (double)ns / 1e9);
    json_object_object_add(out, key, json_object_new_double_s((double)ns / 1e9, text));
}

static struct json_object *find(struct json_object *array, int32_t pid)
{
    struct json_object *number;

    for (size_t i = 0; i < json_object_array_length(array); i++) {
        struct json_object *at = json_object_array_get_idx(array, i);

        if (json_object_object_get_ex(at, "pid", &number) && json_object_get_int(number) == pid)
            return at;
    }
    return NULL;
}

struct json_object *sl_mon_rank_json(struct json_object *out, const struct sl_mon_rank *rank)
{
    const struct sl_state_process *self = &rank->self;
    struct json_object *array, *at;

    if (!json_object_object_get_ex(out, "ranks", &array)) {
        array = json_object_new_array();
        if (array == NULL || json_object_object_add(out, "ranks", array) != 0)
            return NULL;
    }
    at = find(array, rank->pid);
    if (at != NULL)
        return at;
    at = json_object_new_object();
    if (at == NULL || json_object_array_add(array, at) != 0)
        return NULL;
    sl_mon_json_number(at, "pid", rank->pid);
    sl_mon_json_text(at, "label", rank->label);
    sl_mon_json_number(at, "user", rank->user);
    sl_mon_json_number(at, "start_ticks", (int64_t)rank->start_ticks);
    json_object_object_add(at, "is_rank", json_object_new_boolean(rank->is_rank));
    if (rank->page_count == 0) {
        sl_mon_json_text(at, "program", rank->stat.comm);
        return at;
    }
    sl_mon_json_text(at, "program", self->program);
    sl_mon_json_text(at, "version", self->version);
    sl_mon_json_text(at, "job", self->job);
    sl_mon_json_number(at, "rank", self->rank);
    sl_mon_json_number(at, "size", self->size);
    return at;
}
