/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON of any size, a value at a time: the outer objects and arrays are walked through, and what
 * they hold becomes a json-c tree, one value after another.
 *
 *     sl_json_open(json, '{')
 *     while ((got = sl_json_next(json, key, sizeof(key))) == 1)
 *         if (strcmp(key, "entries") == 0) {
 *             sl_json_open(json, '[')
 *             while ((got = sl_json_next(json, NULL, 0)) == 1)
 *                 sl_json_value(json, &tree)                 json_object_put() it
 *         } else
 *             sl_json_value(json, &tree)
 *
 * Every error is -EBADMSG (or -ENOMEM, or the input's) with a sentence: file, byte, what.
 */
#ifndef SL_MONITOR_READ_JSON_H
#define SL_MONITOR_READ_JSON_H

#include "monitor/read/read.h"

#include <json-c/json.h>

struct sl_json;

/* NULL without memory. */
struct sl_json *sl_json_new(struct sl_read_in *in);
void sl_json_free(struct sl_json *json);
/* From here on the comma before a member of an object that is opened may be missing: NCCL 2.28
 * forgets one, and without it no other text could be meant. */
void sl_json_forgive_commas(struct sl_json *json);

/* The value here is an object ('{') or an array ('['): goes into it. */
int sl_json_open(struct sl_json *json, char bracket);
/* 1: another value is here, with its key if it is in an object (cut where it is longer than cap).
 * 0: it was the last, and what was opened is left. */
int sl_json_next(struct sl_json *json, char *key, size_t cap);
/* The value here, whole: at most SL_JSON_VALUE_MAX bytes of text. */
int sl_json_value(struct sl_json *json, struct json_object **out);
/* Nothing but white space is left. */
int sl_json_end(struct sl_json *json);
/* -EBADMSG: "FILE, byte N: WHAT". */
int sl_json_refuse(const struct sl_json *json, const char *what);

#define SL_JSON_VALUE_MAX ((size_t)64 << 20)

/* ---- of a tree ---- */

/* NULL where object is no object, or has no such member. */
struct json_object *sl_json_get(struct json_object *object, const char *key);
/* A number that is whole and at least 0. False: it is none. */
bool sl_json_u64(struct json_object *value, uint64_t *out);
/* Its text and length, NULL: it is no string. */
const char *sl_json_text(struct json_object *value, size_t *len);

#endif
