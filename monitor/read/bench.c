/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What sluice-bench measured, as JSON (--json FILE, of all ranks): of it `path_statistics`, what
 * each path of each rank carried in the whole run, becomes edges.
 */
#include "core/err.h"
#include "monitor/read/formats.h"
#include "monitor/read/json.h"
#include "monitor/read/page.h"

#include <errno.h>
#include <string.h>

struct run {
    struct sl_job *job;
    uint64_t ranks; /* 0: not told yet */
};

static int rank_at(struct sl_json *json, const struct run *run, struct json_object *path,
                   const char *key, uint32_t *out)
{
    uint64_t rank;

    if (!sl_json_u64(sl_json_get(path, key), &rank) || rank >= run->ranks)
        return sl_json_refuse(json, "a path before is of no rank of the run");
    *out = (uint32_t)rank;
    return 0;
}

static int take_path(struct run *run, struct sl_json *json, struct json_object *path)
{
    struct sl_job_edge edge = {.comm = SL_JOB_NONE};
    struct sl_state_path stat;
    int err = rank_at(json, run, path, "rank", &edge.src);

    if (err == 0)
        err = rank_at(json, run, path, "peer", &edge.dst);
    if (err != 0)
        return err;
    if (edge.src == edge.dst)
        return 0;
    sl_page_path_of(path, &stat);
    err = sl_page_take_edge(run->job, &stat, &edge);
    if (err == 0 && edge.src < run->job->rank_count)
        run->job->ranks[edge.src].is_told = true;
    return err;
}

static int read_paths(struct run *run, struct sl_json *json)
{
    struct json_object *path;
    int got = sl_json_open(json, '[');

    while (got == 0 && (got = sl_json_next(json, NULL, 0)) == 1) {
        got = sl_json_value(json, &path);
        if (got != 0)
            break;
        got = take_path(run, json, path);
        json_object_put(path);
    }
    return got;
}

/* "ranks" stands at the beginning. */
static int take_other(struct run *run, struct sl_json *json, const char *key)
{
    struct json_object *value;
    int err = sl_json_value(json, &value);

    if (err != 0)
        return err;
    if (strcmp(key, "ranks") == 0 &&
        (!sl_json_u64(value, &run->ranks) || run->ranks > SL_JOB_RANKS_MAX))
        err = sl_json_refuse(json, "\"ranks\" before is no number of ranks");
    json_object_put(value);
    return err;
}

static int read_run(struct sl_job *job, struct sl_read_in *in)
{
    struct sl_json *json = sl_json_new(in);
    struct run run = {.job = job};
    char key[32];
    int got =
        json == NULL ? sl_fail(-ENOMEM, "no memory to read %s", in->name) : sl_json_open(json, '{');

    while (got == 0 && (got = sl_json_next(json, key, sizeof(key))) == 1)
        got = strcmp(key, "path_statistics") == 0 ? read_paths(&run, json)
                                                  : take_other(&run, json, key);
    if (got == 0)
        got = sl_json_end(json);
    sl_json_free(json);
    return got;
}

static bool is_run(const char *head, size_t len)
{
    size_t first = len < 4096 ? len : 4096;

    return len > 0 && head[0] == '{' && sl_read_has(head, first, "\"sluice-bench\"") &&
           sl_read_has(head, first, "\"algorithm\"") && sl_read_has(head, first, "\"rows\"");
}

const struct sl_read_format sl_read_bench = {
    .name = "sluice-bench's results (JSON)", .is = is_run, .read = read_run};
