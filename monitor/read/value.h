/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values of a record or a file: numbers, texts, lists and dictionaries in arrays, with 16 bytes a
 * value and 8 a member, so that a file takes no more memory than some times its own length. A value
 * may be a member of several others.
 */
#ifndef SL_MONITOR_READ_VALUE_H
#define SL_MONITOR_READ_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json_object;

#define SL_VALUE_NONE UINT32_MAX /* no such value; every function takes it */

enum sl_value_type {
    SL_VALUE_NULL,
    SL_VALUE_BOOL,
    SL_VALUE_INT,
    SL_VALUE_FLOAT,
    SL_VALUE_TEXT, /* or bytes */
    SL_VALUE_LIST, /* or a tuple */
    SL_VALUE_DICT
};

struct sl_value {
    uint8_t type;
    uint32_t count; /* of members: of a dictionary keys and values in turn; of a text bytes */
    union {
        int64_t number;
        double real;
        struct {
            uint32_t first, last; /* links */
        };
        uint64_t text; /* where it begins */
    };
};

struct sl_values {
    struct sl_value *list;
    struct sl_value_link {
        uint32_t value, next;
    } * links;
    char *text;
    size_t count, cap, link_count, link_cap, text_len, text_cap;
};

#define SL_VALUES_MAX ((size_t)1 << 27)      /* values, and members */
#define SL_VALUES_TEXT_MAX ((size_t)1 << 30) /* bytes */

/* The new value, or SL_VALUE_NONE: there is no memory, or there are too many. */
uint32_t sl_value_add(struct sl_values *values, struct sl_value value);
uint32_t sl_value_add_int(struct sl_values *values, int64_t number);
uint32_t sl_value_add_text(struct sl_values *values, const char *text, size_t len);
/* Room for len more bytes of the text that is being written, NULL as above. */
char *sl_value_text_room(struct sl_values *values, size_t len);
/* To a list, or, a key and a value in turn, to a dictionary. */
bool sl_value_append(struct sl_values *values, uint32_t to, uint32_t member);
/* A tree of json-c's. */
uint32_t sl_value_add_json(struct sl_values *values, struct json_object *object);
void sl_values_fini(struct sl_values *values);

/* ---- reading ---- */

bool sl_value_is(const struct sl_values *values, uint32_t value, enum sl_value_type type);
/* What a dictionary has by that key. */
uint32_t sl_value_get(const struct sl_values *values, uint32_t dict, const char *key);
/* Not ended by 0. NULL: it is no text. */
const char *sl_value_text(const struct sl_values *values, uint32_t value, size_t *len);
/* An integer, or a text that is one. */
bool sl_value_int(const struct sl_values *values, uint32_t value, int64_t *out);
bool sl_value_true(const struct sl_values *values, uint32_t value);
/* Goes through the members: link is 0 at first. False: there are no more. */
bool sl_value_next(const struct sl_values *values, uint32_t of, uint32_t *link, uint32_t *member);

#endif
