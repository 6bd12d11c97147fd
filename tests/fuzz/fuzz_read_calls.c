/* SPDX-License-Identifier: Apache-2.0 */
/* Answers to /v1/calls of whatever origin, one after another (parted by zeroes): taken or refused
 * whole, and what is kept is sound and becomes a part of a job. */
#include "core/err.h"
#include "monitor/diagnosis/slow.h"
#include "monitor/read/calls.h"

#include <errno.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void take(struct sl_calls *calls, const char *text, size_t len)
{
    struct json_tokener *tokener = json_tokener_new();
    struct json_object *answer;
    struct sl_calls before = *calls;
    int err;

    sl_assert(tokener != NULL);
    answer = json_tokener_parse_ex(tokener, text, (int)len);
    err = sl_calls_take(calls, answer);
    sl_assert(err == 0 || err == -EBADMSG);
    sl_assert(err == 0 || (before.list == calls->list && before.count == calls->count));
    json_object_put(answer);
    json_tokener_free(tokener);
}

static void check(const struct sl_calls *calls)
{
    sl_assert(calls->next <= (uint64_t)calls->now_ns);
    for (uint32_t i = 0; i < calls->count; i++) {
        const struct sl_calls_process *process = &calls->list[i];

        sl_assert(process->call_count <= SL_CALLS_EACH);
        for (uint32_t k = 0; k < process->call_count; k++) {
            const struct sl_state_call *call = &process->calls[k];

            sl_assert(k == 0 || call[-1].turn < call->turn);
            sl_assert(call->issued_ns <= call->ended_ns && call->ended_ns <= INT64_MAX);
        }
    }
}

/* A page that each process of the answer could be. */
static void give(const struct sl_calls *calls, struct sl_job *job)
{
    for (uint32_t i = 0; i < calls->count && i < 4; i++) {
        struct sl_page page = {.self = calls->list[i].self, .now_ns = SL_JOB_NEVER};
        struct sl_page_comm comm = {.number = 1};

        if (calls->list[i].comm_count == 0)
            continue;
        comm = calls->list[i].comms[0];
        comm.begun[0] = comm.ended[0] = INT64_MAX;
        page.self.rank = (int32_t)(comm.rank % 64);
        page.comms = &comm;
        page.comm_count = 1;
        sl_assert(sl_calls_give(calls, &page) == 0);
        if (comm.size <= 4096)
            sl_assert(sl_page_take(job, &page, NULL) != -ENOMEM);
        free(page.calls);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct sl_slow_options options = SL_SLOW_OPTIONS;
    struct sl_verdicts verdicts = {.list = NULL};
    struct sl_calls calls = {.list = NULL};
    struct sl_job *job = sl_job_new();
    size_t at = 0;

    sl_assert(job != NULL);
    while (at < size) {
        const uint8_t *end = memchr(data + at, 0, size - at);
        size_t len = end != NULL ? (size_t)(end - data) - at : size - at;

        take(&calls, (const char *)data + at, len);
        at += len + 1;
    }
    check(&calls);
    give(&calls, job);
    if (sl_job_seal(job) == 0 && job->rank_count <= 4096)
        sl_assert(sl_slow_find(job, &options, &verdicts) == 0);
    sl_verdicts_free(&verdicts);
    sl_calls_free(&calls);
    sl_job_free(job);
    return 0;
}
