/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Faults that nodes had, as a list of JSON objects (the form of the public InfiniteHBD trace):
 *
 *     [{"node_id": "n17", "event_time": 8.6, "event_type": "fault_start",
 *       "fault_type": {"Level": "Hardware Failure", "Class": "GPU", "Desc": "GPU xid Error"}}, ...]
 *
 * event_time: days since the record began, or UTC as text. Ends ("fault_end") are checked and add
 * nothing.
 */
#include "core/err.h"
#include "monitor/read/formats.h"
#include "monitor/read/json.h"
#include "monitor/read/utc.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#define DAY_NS 86400e9
#define DAYS_MAX 36500

static uint32_t keep(struct sl_job *job, struct json_object *object, const char *key)
{
    size_t len;
    const char *text = sl_json_text(sl_json_get(object, key), &len);

    if (text == NULL)
        return 0;
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] < ' ' || text[i] == 0x7f)
            return 0;
    return sl_job_text(job, text, len < 512 ? len : 512);
}

static bool take_time(struct json_object *value, int64_t *out)
{
    size_t len;
    const char *text = sl_json_text(value, &len);
    double days;

    if (text != NULL) {
        *out = sl_utc_ns(text, len);
        return *out != SL_JOB_NEVER;
    }
    if (!json_object_is_type(value, json_type_double) && !json_object_is_type(value, json_type_int))
        return false;
    days = json_object_get_double(value);
    if (!(days >= 0 && days <= DAYS_MAX))
        return false;
    *out = (int64_t)(days * DAY_NS);
    return true;
}

static int read_one(struct sl_job *job, struct sl_json *json, struct json_object *object)
{
    size_t len;
    const char *type = sl_json_text(sl_json_get(object, "event_type"), &len);
    struct json_object *fault_type = sl_json_get(object, "fault_type");
    struct sl_job_fault fault = {.host = keep(job, object, "node_id"),
                                 .cls = keep(job, fault_type, "Class"),
                                 .text = keep(job, fault_type, "Desc")};

    if (fault.host == SL_JOB_NONE || fault.cls == SL_JOB_NONE || fault.text == SL_JOB_NONE)
        return sl_fail(-ENOMEM, "no memory for the history of nodes");
    if (fault.host == 0)
        return sl_json_refuse(json, "a fault has no node_id");
    if (!take_time(sl_json_get(object, "event_time"), &fault.at_ns))
        return sl_json_refuse(json, "a fault's event_time is neither days nor a time in UTC");
    if (type == NULL || (strcmp(type, "fault_start") != 0 && strcmp(type, "fault_end") != 0))
        return sl_json_refuse(json, "event_type is to be fault_start or fault_end");
    return strcmp(type, "fault_start") == 0 ? sl_job_add_fault(job, &fault) : 0;
}

static int read_history(struct sl_job *job, struct sl_read_in *in)
{
    struct sl_json *json = sl_json_new(in);
    struct json_object *object;
    int got =
        json == NULL ? sl_fail(-ENOMEM, "no memory to read %s", in->name) : sl_json_open(json, '[');

    while (got == 0 && (got = sl_json_next(json, NULL, 0)) == 1) {
        got = sl_json_value(json, &object);
        if (got == 0)
            got = read_one(job, json, object);
        else
            break;
        json_object_put(object);
    }
    if (got == 0)
        got = sl_json_end(json);
    sl_json_free(json);
    return got;
}

static bool is_history(const char *head, size_t len)
{
    size_t at = 0;

    while (at < len && (head[at] == ' ' || head[at] == '\n' || head[at] == '\r'))
        at++;
    return at < len && head[at] == '[' && sl_read_has(head, len, "\"node_id\"") &&
           sl_read_has(head, len, "\"event_type\"");
}

const struct sl_read_format sl_read_history = {
    .name = "history of nodes' faults", .is = is_history, .read = read_history};
