/* SPDX-License-Identifier: Apache-2.0 */
/* JSON, a value at a time: json-c reads the values, this file what is around them. */
#include "monitor/read/json.h"
#include "core/err.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH 8 /* of what is opened */

struct sl_json {
    struct sl_read_in *in;
    struct json_tokener *tokener;
    char close[DEPTH];    /* of what was opened: '}' or ']' */
    bool is_begun[DEPTH]; /* a value was in it already */
    unsigned depth;
    bool forgives_commas;
    uint64_t before; /* bytes of the input before the buffer */
    size_t at, len;
    char buffer[64 << 10];
};

struct sl_json *sl_json_new(struct sl_read_in *in)
{
    struct sl_json *json = malloc(sizeof(*json));

    if (json == NULL)
        return NULL;
    json->in = in;
    json->depth = 0;
    json->forgives_commas = false;
    json->before = 0;
    json->at = json->len = 0;
    json->tokener = json_tokener_new_ex(32);
    if (json->tokener == NULL) {
        free(json);
        return NULL;
    }
    json_tokener_set_flags(json->tokener, JSON_TOKENER_STRICT | JSON_TOKENER_ALLOW_TRAILING_CHARS);
    return json;
}

void sl_json_free(struct sl_json *json)
{
    if (json == NULL)
        return;
    json_tokener_free(json->tokener);
    free(json);
}

void sl_json_forgive_commas(struct sl_json *json)
{
    json->forgives_commas = true;
}

int sl_json_refuse(const struct sl_json *json, const char *what)
{
    return sl_fail(-EBADMSG, "%s, byte %llu: %s", json->in->name,
                   (unsigned long long)(json->before + json->at), what);
}

/* 1: there are bytes at json->at. 0: the end. */
static int fill(struct sl_json *json)
{
    long got;

    if (json->at < json->len)
        return 1;
    json->before += json->len;
    json->at = json->len = 0;
    got = json->in->more(json->in, json->buffer, sizeof(json->buffer));
    if (got < 0)
        return (int)got;
    json->len = (size_t)got;
    return got > 0;
}

/* The next character that is no white space; it is not taken. 0 at the end of the file. */
static int peek(struct sl_json *json)
{
    int got;

    while ((got = fill(json)) == 1) {
        char c = json->buffer[json->at];

        if (c != ' ' && c != '\n' && c != '\r' && c != '\t')
            return c > 0 ? c : sl_json_refuse(json, "a character that is not of JSON");
        json->at++;
    }
    return got;
}

/* The next character is c, and is taken. */
static int take(struct sl_json *json, char c, const char *what)
{
    int next = peek(json);

    if (next < 0)
        return next;
    if (next != c)
        return sl_json_refuse(json, next == 0 ? "the file ends too early" : what);
    json->at++;
    return 0;
}

int sl_json_open(struct sl_json *json, char bracket)
{
    int err = take(json, bracket,
                   bracket == '{' ? "an object should be here" : "an array should be here");

    if (err != 0)
        return err;
    if (json->depth == DEPTH)
        return sl_json_refuse(json, "too many objects and arrays in one another");
    json->is_begun[json->depth] = false;
    json->close[json->depth++] = bracket == '{' ? '}' : ']';
    return 0;
}

static int read_key(struct sl_json *json, char *key, size_t cap)
{
    struct json_object *value;
    int err = peek(json);

    if (err < 0)
        return err;
    if (err != '"')
        return sl_json_refuse(json, "a key should be here");
    err = sl_json_value(json, &value);
    if (err != 0)
        return err;
    if (cap > 0) {
        strncpy(key, json_object_get_string(value), cap - 1);
        key[cap - 1] = '\0';
    }
    json_object_put(value);
    return take(json, ':', "a colon should be here");
}

int sl_json_next(struct sl_json *json, char *key, size_t cap)
{
    unsigned top = json->depth - 1;
    int next = peek(json), err;

    sl_assert(json->depth > 0);
    if (next < 0)
        return next;
    if (next == json->close[top]) {
        json->at++;
        json->depth--;
        return 0;
    }
    if (next == 0)
        return sl_json_refuse(json, "the file ends too early");
    if (json->is_begun[top] && !(json->forgives_commas && json->close[top] == '}' && next == '"')) {
        err = take(json, ',', "a comma should be here");
        if (err != 0)
            return err;
    }
    json->is_begun[top] = true;
    if (json->close[top] == '}') {
        err = read_key(json, key, cap);
        if (err != 0)
            return err;
    }
    return 1;
}

int sl_json_value(struct sl_json *json, struct json_object **out)
{
    size_t used = 0;
    int got;

    json_tokener_reset(json->tokener);
    while ((got = fill(json)) == 1) {
        struct json_object *value = json_tokener_parse_ex(json->tokener, json->buffer + json->at,
                                                          (int)(json->len - json->at));
        enum json_tokener_error state = json_tokener_get_error(json->tokener);

        used += json_tokener_get_parse_end(json->tokener);
        json->at += json_tokener_get_parse_end(json->tokener);
        if (state == json_tokener_success) {
            *out = value;
            return 0;
        }
        if (state != json_tokener_continue)
            return sl_json_refuse(json, json_tokener_error_desc(state));
        if (used > SL_JSON_VALUE_MAX)
            return sl_json_refuse(json, "a value is too long");
    }
    return got < 0 ? got : sl_json_refuse(json, "the file ends too early");
}

int sl_json_end(struct sl_json *json)
{
    int next = peek(json);

    return next > 0 ? sl_json_refuse(json, "something follows the end") : next;
}

struct json_object *sl_json_get(struct json_object *object, const char *key)
{
    struct json_object *value;

    return json_object_is_type(object, json_type_object) &&
                   json_object_object_get_ex(object, key, &value)
               ? value
               : NULL;
}

bool sl_json_u64(struct json_object *value, uint64_t *out)
{
    int64_t number;

    if (!json_object_is_type(value, json_type_int))
        return false;
    number = json_object_get_int64(value);
    if (number < 0)
        return false;
    *out = number < INT64_MAX ? (uint64_t)number : json_object_get_uint64(value);
    return true;
}

const char *sl_json_text(struct json_object *value, size_t *len)
{
    if (!json_object_is_type(value, json_type_string))
        return NULL;
    *len = (size_t)json_object_get_string_len(value);
    return json_object_get_string(value);
}
