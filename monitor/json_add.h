/* SPDX-License-Identifier: Apache-2.0 */
/* Members of an object of json-c. Both strings are copied. */
#ifndef SL_MONITOR_JSON_ADD_H
#define SL_MONITOR_JSON_ADD_H

#include <json-c/json.h>
#include <stdbool.h>
#include <stdint.h>

static inline void sl_json_add_text(struct json_object *to, const char *key, const char *value)
{
    json_object_object_add(to, key, json_object_new_string(value));
}

static inline void sl_json_add_number(struct json_object *to, const char *key, uint64_t value)
{
    json_object_object_add(to, key, json_object_new_uint64(value));
}

static inline void sl_json_add_signed(struct json_object *to, const char *key, int64_t value)
{
    json_object_object_add(to, key, json_object_new_int64(value));
}

static inline void sl_json_add_bool(struct json_object *to, const char *key, bool value)
{
    json_object_object_add(to, key, json_object_new_boolean(value));
}

#endif
