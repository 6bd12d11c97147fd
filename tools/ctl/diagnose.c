/* SPDX-License-Identifier: Apache-2.0 */
/* sluicectl diagnose: what recorded files say of a job, and whom the rules accuse. */
#include "tools/ctl/diagnose.h"
#include "core/err.h"
#include "monitor/cases/case.h"
#include "monitor/diagnosis/job_late.h"
#include "monitor/diagnosis/verdict_text.h"
#include "monitor/read/read.h"
#include "tools/ctl/command.h"
#include "tools/ctl/live.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char sc_diagnose_usage[] =
    "       sluicectl diagnose [-o json] [--stall SECONDS] [--at TIME] [--job NAME]\n"
    "                 [--false-isolations RATE] [--bundle BUNDLE] FILE...\n"
    "       sluicectl diagnose --live [-o json] [--stall SECONDS] [--every SECONDS]\n"
    "           [--wait SECONDS] [--for SECONDS] [--follow] [--job NAME] [SOURCE...]\n";
const char *const sc_diagnose_absent;

struct request {
    bool json;
    const char *bundle; /* NULL: none is written */
    struct sl_case_options options;
    char **files; /* in the words */
    int file_count;
};

static int refuse(void)
{
    fprintf(stderr, "usage: %s", sc_diagnose_usage + strlen("       "));
    return SC_ARGUMENTS;
}

bool sc_seconds(const char *text, int64_t *out)
{
    char *end;
    double seconds = strtod(text, &end);

    if (text[0] < '0' || text[0] > '9' || *end != '\0' || !(seconds < 9e9))
        return false;
    *out = (int64_t)(seconds * 1e3 + 0.5) * 1000000;
    return true;
}

/* Of healthy nodes that are isolated, a node and day. */
static bool take_rate(const char *text, double *out)
{
    char *end;

    *out = strtod(text, &end);
    return ((text[0] >= '0' && text[0] <= '9') || text[0] == '.') && *end == '\0' && *out > 0 &&
           *out < 1;
}

static bool take_scope(const char *text, char *out)
{
    size_t len = strlen(text);

    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] < ' ' || text[i] == 0x7f)
            return false;
    if (len == 0 || len > SL_CASE_SCOPE_MAX)
        return false;
    memcpy(out, text, len + 1);
    return true;
}

/* What bundles and ids need. False: it is none of these options. */
static bool take_case_option(int count, char **words, int *i, struct request *out, bool *is_good)
{
    const char *value;

    if ((value = sc_option(count, words, i, "bundle")) != NULL) {
        out->bundle = value;
        *is_good = value[0] != '\0';
    } else if ((value = sc_option(count, words, i, "job")) != NULL) {
        *is_good = take_scope(value, out->options.scope);
    } else if ((value = sc_option(count, words, i, "false-isolations")) != NULL) {
        *is_good = take_rate(value, &out->options.false_isolations);
    } else {
        return false;
    }
    return true;
}

/* Options may stand anywhere; files are moved to the front of words. */
static bool take_words(int count, char **words, struct request *out)
{
    *out = (struct request){.options = SL_CASE_OPTIONS, .files = words};
    for (int i = 0; i < count; i++) {
        const char *value;
        bool is_good = true;

        if (strcmp(words[i], "--json") == 0) {
            out->json = true;
        } else if (take_case_option(count, words, &i, out, &is_good)) {
            if (!is_good)
                return false;
        } else if ((value = sc_option(count, words, &i, "stall")) != NULL) {
            if (!sc_seconds(value, &out->options.stall_ns))
                return false;
        } else if ((value = sc_option(count, words, &i, "at")) != NULL) {
            if (!sc_seconds(value, &out->options.now_ns))
                return false;
        } else if ((value = sc_option(count, words, &i, "output")) != NULL ||
                   strcmp(words[i], "-o") == 0) {
            value = value != NULL ? value : i + 1 < count ? words[++i] : "";
            if (strcmp(value, "json") != 0)
                return false;
            out->json = true;
        } else if (words[i][0] == '-' && words[i][1] != '\0') {
            return false;
        } else {
            words[out->file_count++] = words[i];
        }
    }
    return out->file_count > 0;
}

/* By their names, as a bundle has them: the order in which files are given says nothing. */
static int by_name(const void *a, const void *b)
{
    const char *x = *(char *const *)a, *y = *(char *const *)b;
    const char *last_x = strrchr(x, '/'), *last_y = strrchr(y, '/');

    return sl_input_order(last_x != NULL ? last_x + 1 : x, x, last_y != NULL ? last_y + 1 : y, y);
}

static int read_files(struct sl_job *job, const struct request *request)
{
    qsort(request->files, (size_t)request->file_count, sizeof(*request->files), by_name);
    for (int i = 0; i < request->file_count; i++) {
        int err = sl_read_file(job, request->files[i]);

        if (err != 0)
            return err;
    }
    return sl_job_seal(job);
}

static uint32_t ranks_told(const struct sl_job *job)
{
    uint32_t told = 0;

    for (uint32_t r = 0; r < job->rank_count; r++)
        told += job->ranks[r].is_told;
    return told;
}

/* text: in JSON, or NULL. */
static int answer(const struct request *request, const struct sl_job *job,
                  const struct sl_verdicts *verdicts, size_t files, const char *text)
{
    if (text != NULL) {
        fputs(text, stdout);
    } else {
        printf("%zu files tell of %u ranks, %u communicators and %zu operations\n", files,
               ranks_told(job), job->comm_count, job->op_count);
        sl_verdicts_print(job, verdicts, stdout);
        for (size_t i = 0; sl_job_note_at(job, i) != NULL; i++)
            printf("note: %s\n", sl_job_note_at(job, i));
    }
    if (text == NULL && request->bundle != NULL)
        printf("the inputs and this result are in %s\n", request->bundle);
    if (fflush(stdout) != 0) {
        sl_fail(-EIO, "standard output cannot be written");
        return sc_complain();
    }
    return sl_verdicts_accuse(verdicts) ? SC_UNHEALTHY : SC_GOOD;
}

/* Files as they come, of any size. */
static int diagnose_files(const struct request *request)
{
    const struct sl_judge_options rules = sl_case_rules(&request->options);
    struct sl_verdicts verdicts = {.list = NULL};
    struct sl_job *job = sl_job_new();
    char *text = NULL;
    size_t len;
    int status = SC_FAILED, err = job == NULL ? sl_fail(-ENOMEM, "no memory for a job") : 0;

    if (err == 0)
        err = read_files(job, request);
    if (err == 0)
        err = sl_judge(job, &rules, &verdicts);
    if (err == 0 && request->json) {
        text = sl_case_text(job, (size_t)request->file_count, &verdicts, &len);
        err = text != NULL ? 0 : -ENOMEM;
    }
    status = err == 0 ? answer(request, job, &verdicts, (size_t)request->file_count, text)
                      : sc_complain();
    free(text);
    sl_verdicts_free(&verdicts);
    sl_job_free(job);
    return status;
}

/* Files that are kept, with what became of them. */
static int diagnose_case(const struct request *request)
{
    struct sl_inputs *inputs = sl_inputs_new();
    struct sl_case_result result = {.job = NULL};
    int status, err = inputs == NULL ? sl_fail(-ENOMEM, "no memory for a bundle") : 0;

    for (int i = 0; i < request->file_count && err == 0; i++)
        err = sl_inputs_add_file(inputs, request->files[i]);
    if (err == 0)
        err = sl_case_judge(inputs, &request->options, &result);
    if (err == 0)
        err = sl_case_write(inputs, &request->options, result.text, result.len, request->bundle);
    status = err == 0 ? answer(request, result.job, &result.verdicts, inputs->count,
                               request->json ? result.text : NULL)
                      : sc_complain();
    sl_case_result_free(&result);
    sl_inputs_free(inputs);
    return status;
}

int sc_diagnose(int count, char **words)
{
    struct request request;

    for (int i = 0; i < count; i++)
        if (strcmp(words[i], "--live") == 0)
            return sc_live(count, words);
    if (!take_words(count, words, &request))
        return refuse();
    return request.bundle != NULL ? diagnose_case(&request) : diagnose_files(&request);
}
