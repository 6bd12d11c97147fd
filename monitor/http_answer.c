/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/http_answer.h"

#include "core/err.h"
#include "monitor/json_add.h"

#include <errno.h>
#include <json-c/json.h>
#include <stdlib.h>

struct json_object *sl_http_object(void)
{
    struct json_object *object = json_object_new_object();

    if (object != NULL)
        sl_json_add_number(object, "version", 1);
    return object;
}

int sl_http_write(struct json_object *object, FILE *out)
{
    const char *text = json_object_to_json_string_ext(object, JSON_C_TO_STRING_PLAIN |
                                                                  JSON_C_TO_STRING_NOSLASHESCAPE);
    int err = 0;

    if (text == NULL || fprintf(out, "%s\n", text) < 0)
        err = sl_fail(-ENOMEM, "no memory for an answer");
    json_object_put(object);
    return err;
}

int sl_http_answer_object(struct json_object *object, struct sl_http_answer *out)
{
    FILE *file = open_memstream(&out->body, &out->len);
    int err;

    if (file == NULL) {
        json_object_put(object);
        return sl_fail(-ENOMEM, "no memory for an answer");
    }
    err = sl_http_write(object, file);
    if (fclose(file) != 0 && err == 0)
        err = sl_fail(-ENOMEM, "no memory for an answer");
    if (err != 0)
        free(out->body);
    return err;
}

int sl_http_answer_error(int status, const char *why, struct sl_http_answer *out)
{
    struct json_object *object = sl_http_object();

    *out = (struct sl_http_answer){.status = status, .type = "application/json"};
    sl_json_add_text(object, "error", why);
    return sl_http_answer_object(object, out);
}

const char *sl_http_metrics_type(bool openmetrics)
{
    return openmetrics ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                       : "text/plain; version=0.0.4; charset=utf-8";
}
