/* SPDX-License-Identifier: Apache-2.0 */
/* Inputs into a job, the rules over it, and the result as text. */
#include "monitor/cases/case.h"
#include "core/err.h"
#include "monitor/diagnosis/job_late.h"
#include "monitor/diagnosis/verdict_text.h"
#include "monitor/read/read.h"

#include <errno.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

struct sl_judge_options sl_case_rules(const struct sl_case_options *options)
{
    struct sl_judge_options rules = SL_JUDGE_OPTIONS;

    rules.hang.now_ns = options->now_ns;
    rules.hang.stall_ns = options->stall_ns;
    rules.fuse.false_isolations = options->false_isolations;
    rules.fuse.scope = options->scope;
    return rules;
}

static uint32_t ranks_told(const struct sl_job *job)
{
    uint32_t told = 0;

    for (uint32_t r = 0; r < job->rank_count; r++)
        told += job->ranks[r].is_told;
    return told;
}

/* Absent where there are none. */
static bool write_notes(const struct sl_job *job, FILE *out)
{
    struct json_object *list = json_object_new_array();
    const char *text;
    bool is_good = list != NULL;

    if (sl_job_note_at(job, 0) == NULL) {
        json_object_put(list);
        return true;
    }
    for (size_t i = 0; is_good && (text = sl_job_note_at(job, i)) != NULL; i++)
        is_good = json_object_array_add(list, json_object_new_string(text)) == 0;
    text = is_good ? json_object_to_json_string_ext(list, JSON_C_TO_STRING_PLAIN |
                                                              JSON_C_TO_STRING_NOSLASHESCAPE)
                   : NULL;
    is_good = text != NULL && fprintf(out, ",\n\"notes\":%s", text) > 0;
    json_object_put(list);
    return is_good;
}

char *sl_case_text(const struct sl_job *job, size_t files, const struct sl_verdicts *verdicts,
                   size_t *len)
{
    struct json_object *list = sl_verdicts_json(job, verdicts);
    char *text = NULL;
    FILE *out = open_memstream(&text, len);
    bool is_bad = out == NULL || list == NULL;

    if (!is_bad)
        fprintf(out, "{\"version\":1,\"rules\":%d,\"files\":%zu,\"ranks\":%u,\"verdicts\":[",
                SL_RULES_VERSION, files, ranks_told(job));
    for (size_t i = 0; !is_bad && i < json_object_array_length(list); i++) {
        const char *one =
            json_object_to_json_string_ext(json_object_array_get_idx(list, i),
                                           JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE);

        is_bad = one == NULL || fprintf(out, "%s\n%s", i > 0 ? "," : "", one) < 0;
    }
    if (!is_bad)
        is_bad = putc(']', out) < 0 || !write_notes(job, out) || fputs("}\n", out) < 0;
    json_object_put(list);
    if (out != NULL && fclose(out) == 0 && !is_bad)
        return text;
    free(text);
    sl_fail(-ENOMEM, "no memory for the text of a diagnosis");
    return NULL;
}

static int read_all(const struct sl_inputs *inputs, struct sl_job *job)
{
    for (size_t i = 0; i < inputs->count; i++) {
        int err =
            sl_read_bytes(job, inputs->list[i].name, inputs->list[i].bytes, inputs->list[i].len);

        if (err != 0)
            return err;
    }
    return sl_job_seal(job);
}

int sl_case_judge(const struct sl_inputs *inputs, const struct sl_case_options *options,
                  struct sl_case_result *result)
{
    const struct sl_judge_options rules = sl_case_rules(options);
    int err;

    *result = (struct sl_case_result){.job = sl_job_new()};
    if (result->job == NULL)
        return sl_fail(-ENOMEM, "no memory for a job");
    err = read_all(inputs, result->job);
    if (err == 0)
        err = sl_judge(result->job, &rules, &result->verdicts);
    if (err == 0) {
        result->text = sl_case_text(result->job, inputs->count, &result->verdicts, &result->len);
        err = result->text != NULL ? 0 : -ENOMEM;
    }
    if (err != 0)
        sl_case_result_free(result);
    return err;
}

void sl_case_result_free(struct sl_case_result *result)
{
    sl_verdicts_free(&result->verdicts);
    sl_job_free(result->job);
    free(result->text);
    *result = (struct sl_case_result){.job = NULL};
}
