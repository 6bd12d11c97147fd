/* SPDX-License-Identifier: Apache-2.0 */
/* Values in arrays: numbers of values in place of pointers, lists as links. */
#include "monitor/read/value.h"

#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

/* Room for more entries in all; NULL: too many, or no memory. */
static void *grow(void *list, size_t *cap, size_t need, size_t most, size_t size)
{
    size_t next = *cap < 64 ? 64 : *cap * 2;
    void *more;

    if (need > most)
        return NULL;
    if (need <= *cap)
        return list;
    while (next < need)
        next *= 2;
    more = reallocarray(list, next, size);
    if (more != NULL)
        *cap = next;
    return more;
}

uint32_t sl_value_add(struct sl_values *values, struct sl_value value)
{
    struct sl_value *list =
        grow(values->list, &values->cap, values->count + 1, SL_VALUES_MAX, sizeof(*list));

    if (list == NULL)
        return SL_VALUE_NONE;
    values->list = list;
    list[values->count] = value;
    return (uint32_t)values->count++;
}

uint32_t sl_value_add_int(struct sl_values *values, int64_t number)
{
    return sl_value_add(values, (struct sl_value){.type = SL_VALUE_INT, .number = number});
}

char *sl_value_text_room(struct sl_values *values, size_t len)
{
    size_t need = values->text_len + len + 1; /* there is some where len is 0, too */
    char *text = len > SL_VALUES_TEXT_MAX
                     ? NULL
                     : grow(values->text, &values->text_cap, need, SL_VALUES_TEXT_MAX, 1);

    if (text == NULL)
        return NULL;
    values->text = text;
    return text + values->text_len;
}

uint32_t sl_value_add_text(struct sl_values *values, const char *text, size_t len)
{
    char *room = sl_value_text_room(values, len);
    uint32_t value;

    if (room == NULL)
        return SL_VALUE_NONE;
    if (len > 0)
        memcpy(room, text, len);
    value = sl_value_add(
        values,
        (struct sl_value){.type = SL_VALUE_TEXT, .count = (uint32_t)len, .text = values->text_len});
    values->text_len += len;
    return value;
}

bool sl_value_append(struct sl_values *values, uint32_t to, uint32_t member)
{
    struct sl_value_link *links = grow(values->links, &values->link_cap, values->link_count + 2,
                                       SL_VALUES_MAX, sizeof(*links));
    struct sl_value *it = &values->list[to];
    uint32_t at;

    if (links == NULL)
        return false;
    values->links = links;
    if (values->link_count == 0) /* 0 is where one begins to look */
        values->link_count = 1;
    at = (uint32_t)values->link_count++;
    links[at] = (struct sl_value_link){.value = member};
    if (it->count++ == 0)
        it->first = at;
    else
        links[it->last].next = at;
    it->last = at;
    return true;
}

/* json-c bounds the depth of what it reads. */
static bool add_members(struct sl_values *values, uint32_t to, struct json_object *object)
{
    if (json_object_is_type(object, json_type_array)) {
        for (size_t i = 0; i < json_object_array_length(object); i++) {
            uint32_t member = sl_value_add_json(values, json_object_array_get_idx(object, i));

            if (member == SL_VALUE_NONE || !sl_value_append(values, to, member))
                return false;
        }
        return true;
    }
    json_object_object_foreach(object, name, it)
    {
        uint32_t key = sl_value_add_text(values, name, strlen(name)), member;

        member = key == SL_VALUE_NONE ? key : sl_value_add_json(values, it);
        if (member == SL_VALUE_NONE || !sl_value_append(values, to, key) ||
            !sl_value_append(values, to, member))
            return false;
    }
    return true;
}

uint32_t sl_value_add_json(struct sl_values *values, struct json_object *object)
{
    struct sl_value value = {.type = SL_VALUE_NULL};
    uint32_t at;

    switch (json_object_get_type(object)) {
    case json_type_null: return sl_value_add(values, value);
    case json_type_boolean:
        value.type = SL_VALUE_BOOL;
        value.number = json_object_get_boolean(object);
        return sl_value_add(values, value);
    case json_type_int: return sl_value_add_int(values, json_object_get_int64(object));
    case json_type_double:
        value.type = SL_VALUE_FLOAT;
        value.real = json_object_get_double(object);
        return sl_value_add(values, value);
    case json_type_string:
        return sl_value_add_text(values, json_object_get_string(object),
                                 (size_t)json_object_get_string_len(object));
    case json_type_array: value.type = SL_VALUE_LIST; break;
    case json_type_object: value.type = SL_VALUE_DICT; break;
    }
    at = sl_value_add(values, value);
    return at == SL_VALUE_NONE || add_members(values, at, object) ? at : SL_VALUE_NONE;
}

void sl_values_fini(struct sl_values *values)
{
    free(values->list);
    free(values->links);
    free(values->text);
    *values = (struct sl_values){.list = NULL};
}

/* ---- reading ---- */

bool sl_value_is(const struct sl_values *values, uint32_t value, enum sl_value_type type)
{
    return value < values->count && values->list[value].type == type;
}

const char *sl_value_text(const struct sl_values *values, uint32_t value, size_t *len)
{
    if (!sl_value_is(values, value, SL_VALUE_TEXT))
        return NULL;
    *len = values->list[value].count;
    return *len > 0 ? values->text + values->list[value].text : "";
}

bool sl_value_next(const struct sl_values *values, uint32_t of, uint32_t *link, uint32_t *member)
{
    if (*link == 0) {
        if (!sl_value_is(values, of, SL_VALUE_LIST) && !sl_value_is(values, of, SL_VALUE_DICT))
            return false;
        if (values->list[of].count == 0)
            return false;
        *link = values->list[of].first;
    } else if (*link != SL_VALUE_NONE) {
        *link = values->links[*link].next != 0 ? values->links[*link].next : SL_VALUE_NONE;
    }
    if (*link == SL_VALUE_NONE)
        return false;
    *member = values->links[*link].value;
    return true;
}

uint32_t sl_value_get(const struct sl_values *values, uint32_t dict, const char *key)
{
    size_t want = strlen(key), len;
    uint32_t link = 0, name, value;

    if (!sl_value_is(values, dict, SL_VALUE_DICT))
        return SL_VALUE_NONE;
    while (sl_value_next(values, dict, &link, &name) &&
           sl_value_next(values, dict, &link, &value)) {
        const char *text = sl_value_text(values, name, &len);

        if (text != NULL && len == want && memcmp(text, key, len) == 0)
            return value;
    }
    return SL_VALUE_NONE;
}

bool sl_value_int(const struct sl_values *values, uint32_t value, int64_t *out)
{
    char digits[24], *end;
    const char *text;
    size_t len;

    if (sl_value_is(values, value, SL_VALUE_INT)) {
        *out = values->list[value].number;
        return true;
    }
    text = sl_value_text(values, value, &len);
    if (text == NULL || len == 0 || len >= sizeof(digits))
        return false;
    memcpy(digits, text, len);
    digits[len] = '\0';
    if (strspn(digits + (digits[0] == '-'), "0123456789") != len - (digits[0] == '-'))
        return false;
    *out = strtoll(digits, &end, 10);
    return end != digits;
}

bool sl_value_true(const struct sl_values *values, uint32_t value)
{
    return sl_value_is(values, value, SL_VALUE_BOOL) && values->list[value].number != 0;
}
