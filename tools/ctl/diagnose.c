/* SPDX-License-Identifier: Apache-2.0 */
/* sluicectl diagnose: what recorded files say of a job, and whom the rules accuse. */
#include "tools/ctl/diagnose.h"
#include "core/err.h"
#include "monitor/diagnosis/hang.h"
#include "monitor/diagnosis/slow.h"
#include "monitor/diagnosis/verdict_text.h"
#include "monitor/read/read.h"
#include "tools/ctl/command.h"

#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char sc_diagnose_usage[] =
    "       sluicectl diagnose [-o json] [--stall SECONDS] [--at TIME] FILE...\n";
const char *const sc_diagnose_absent;

struct request {
    bool json;
    struct sl_hang_options hang;
    char **files; /* in the words */
    int file_count;
};

static int refuse(void)
{
    fprintf(stderr, "usage: %s", sc_diagnose_usage + strlen("       "));
    return SC_ARGUMENTS;
}

/* Seconds, with three decimals at most to be exact. */
static bool take_seconds(const char *text, int64_t *out)
{
    char *end;
    double seconds = strtod(text, &end);

    if (text[0] < '0' || text[0] > '9' || *end != '\0' || !(seconds < 9e9))
        return false;
    *out = (int64_t)(seconds * 1e3 + 0.5) * 1000000;
    return true;
}

/* Options may stand anywhere; files are moved to the front of words. */
static bool take_words(int count, char **words, struct request *out)
{
    *out = (struct request){.hang = {.now_ns = SL_JOB_NEVER, .stall_ns = SL_HANG_STALL_NS},
                            .files = words};
    for (int i = 0; i < count; i++) {
        const char *value;

        if (strcmp(words[i], "--json") == 0) {
            out->json = true;
        } else if ((value = sc_option(count, words, &i, "stall")) != NULL) {
            if (!take_seconds(value, &out->hang.stall_ns))
                return false;
        } else if ((value = sc_option(count, words, &i, "at")) != NULL) {
            if (!take_seconds(value, &out->hang.now_ns))
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

static int read_files(struct sl_job *job, const struct request *request)
{
    for (int i = 0; i < request->file_count; i++) {
        int err = sl_read_file(job, request->files[i]);

        if (err != 0)
            return err;
    }
    return sl_job_seal(job);
}

static int judge(const struct sl_job *job, const struct request *request,
                 struct sl_verdicts *verdicts)
{
    static const struct sl_slow_options slow = SL_SLOW_OPTIONS;
    int err = sl_hang_find(job, &request->hang, verdicts);

    if (err == 0)
        err = sl_gauges_find(job, verdicts);
    if (err == 0)
        err = sl_slow_find(job, &slow, verdicts);
    /* Nothing is wrong: unless something else is. */
    sl_verdicts_drop(verdicts, SL_VERDICT_NOT_HUNG);
    sl_verdicts_sort(verdicts);
    return err;
}

static uint32_t ranks_told(const struct sl_job *job)
{
    uint32_t told = 0;

    for (uint32_t r = 0; r < job->rank_count; r++)
        told += job->ranks[r].is_told;
    return told;
}

static void print_json(const struct sl_job *job, const struct request *request,
                       const struct sl_verdicts *verdicts)
{
    struct json_object *object = json_object_new_object();

    json_object_object_add(object, "version", json_object_new_int(1));
    json_object_object_add(object, "files", json_object_new_int(request->file_count));
    json_object_object_add(object, "ranks", json_object_new_int64(ranks_told(job)));
    json_object_object_add(object, "verdicts", sl_verdicts_json(job, verdicts));
    puts(json_object_to_json_string_ext(object,
                                        JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE));
    json_object_put(object);
}

static int answer(const struct sl_job *job, const struct request *request,
                  const struct sl_verdicts *verdicts)
{
    bool is_well = true;

    for (uint32_t i = 0; i < verdicts->count; i++)
        is_well = is_well && verdicts->list[i].cls == SL_VERDICT_NOT_HUNG;
    if (request->json) {
        print_json(job, request, verdicts);
    } else {
        printf("%d files tell of %u ranks, %u communicators and %zu operations\n",
               request->file_count, ranks_told(job), job->comm_count, job->op_count);
        sl_verdicts_print(job, verdicts, stdout);
    }
    if (fflush(stdout) != 0) {
        sl_fail(-EIO, "standard output cannot be written");
        return sc_complain();
    }
    return is_well ? SC_GOOD : SC_UNHEALTHY;
}

int sc_diagnose(int count, char **words)
{
    struct request request;
    struct sl_verdicts verdicts = {.list = NULL};
    struct sl_job *job;
    int status = SC_FAILED;

    if (!take_words(count, words, &request))
        return refuse();
    job = sl_job_new();
    if (job == NULL)
        sl_fail(-ENOMEM, "no memory");
    if (job == NULL || read_files(job, &request) != 0 || judge(job, &request, &verdicts) != 0)
        sc_complain();
    else
        status = answer(job, &request, &verdicts);
    sl_verdicts_free(&verdicts);
    sl_job_free(job);
    return status;
}
