/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/cluster/request.h"

#include "monitor/api_request.h"

#include "core/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The parameters that an endpoint may have. */
enum { NAME = 1, JOB = 2, STATE = 4, LIMIT = 8, OPEN = 16, AFTER = 32, ID = 64 };

static const struct {
    const char *path, *help;
    enum sl_cluster_what what;
    unsigned parameters, needs;
} rows[] = {
    {"/", "a page for people", SL_CLUSTER_PAGE, 0, 0},
    {"/v1", "this list", SL_CLUSTER_INDEX, 0, 0},
    {"/healthz", "200, or 503: nothing comes in", SL_CLUSTER_HEALTH, 0, 0},
    {"/metrics", "OpenMetrics, or the text format 0.0.4, by Accept", SL_CLUSTER_METRICS, 0, 0},
    {"/v1/cluster", "how many nodes, jobs and verdicts there are, and of what state",
     SL_CLUSTER_STATE, 0, 0},
    {"/v1/nodes", "state=ok|degraded|bad|silent, after=NAME, limit=N: nodes", SL_CLUSTER_NODES,
     STATE | AFTER | LIMIT, 0},
    {"/v1/map", "all nodes' names, and the first letter of each one's state", SL_CLUSTER_MAP, 0, 0},
    {"/v1/node", "name=NAME: all that a node said last", SL_CLUSTER_NODE, NAME, NAME},
    {"/v1/jobs", "jobs, and how many of their ranks wait", SL_CLUSTER_JOBS, 0, 0},
    {"/v1/matrix", "job=NAME: from which rank to which one, how long a message takes",
     SL_CLUSTER_MATRIX, JOB, JOB},
    {"/v1/graph", "job=NAME: who waits for whom", SL_CLUSTER_GRAPH, JOB, JOB},
    {"/v1/ports", "name=NAME: a node's ports, and what they carried in the last minutes",
     SL_CLUSTER_PORTS, NAME, NAME},
    {"/v1/verdicts", "open=1: what is wrong, and what was", SL_CLUSTER_VERDICTS, OPEN, 0},
    {"/v1/bundle", "id=VERDICT: what led to it, for sluicectl replay and explain",
     SL_CLUSTER_BUNDLE, ID, ID},
    {"/v1/live", "server-sent events: /v1/cluster, when it changes", SL_CLUSTER_LIVE, 0, 0},
};

static const struct {
    const char *name;
    unsigned bit;
} parameters[] = {{"name", NAME}, {"job", JOB},     {"state", STATE}, {"limit", LIMIT},
                  {"open", OPEN}, {"after", AFTER}, {"id", ID}};

const char *sl_cluster_endpoint(unsigned i, const char **help)
{
    if (i >= SL_ARRAY_LEN(rows))
        return NULL;
    *help = rows[i].help;
    return rows[i].path;
}

static void refuse(struct sl_cluster_request *out, int status, const char *fmt, ...)
    SL_PRINTF(3, 4);
static void refuse(struct sl_cluster_request *out, int status, const char *fmt, ...)
{
    va_list args;

    if (out->status != 200)
        return; /* the first mistake is the one that is told */
    out->status = status;
    va_start(args, fmt);
    vsnprintf(out->why, sizeof(out->why), fmt, args);
    va_end(args);
}

/* ---- parameters ---- */

static void set_node(struct sl_cluster_request *out, const char *value)
{
    if (!sl_observe_is_node(value))
        refuse(out, 400, "'%.40s' is no name of a node", value);
    else
        snprintf(out->name, sizeof(out->name), "%s", value);
}

static void set_state(struct sl_cluster_request *out, const char *value)
{
    static const char *const states[] = {"ok", "degraded", "bad", "silent"};

    for (unsigned i = 0; i < SL_ARRAY_LEN(states); i++)
        if (strcmp(value, states[i]) == 0) {
            snprintf(out->state, sizeof(out->state), "%s", value);
            return;
        }
    refuse(out, 400, "state is to be ok, degraded, bad or silent");
}

static void set(struct sl_cluster_request *out, unsigned bit, const char *value)
{
    uint64_t number;

    switch (bit) {
    case NAME:
    case AFTER: set_node(out, value); break;
    case STATE: set_state(out, value); break;
    case ID:
        if (strspn(value, "0123456789abcdef") != sizeof(out->id) - 1 ||
            value[sizeof(out->id) - 1] != '\0')
            refuse(out, 400, "id is to be the 16 digits of a verdict's id");
        else
            memcpy(out->id, value, sizeof(out->id));
        break;
    case JOB:
        if (strlen(value) >= sizeof(out->job))
            refuse(out, 400, "job is longer than %zu bytes", sizeof(out->job) - 1);
        else
            snprintf(out->job, sizeof(out->job), "%s", value);
        break;
    case LIMIT:
        if (!sl_api_number(value, SL_CLUSTER_LIMIT_MAX, &number) || number == 0)
            refuse(out, 400, "limit is to be a number from 1 to %d", SL_CLUSTER_LIMIT_MAX);
        else
            out->limit = (unsigned)number;
        break;
    default:
        if (!sl_api_number(value, 1, &number))
            refuse(out, 400, "open is to be 0 or 1");
        else
            out->is_open_only = number != 0;
        break;
    }
}

static void take_pair(struct sl_cluster_request *out, const char *pair, size_t len,
                      unsigned allowed, unsigned *seen)
{
    const char *equals = memchr(pair, '=', len);
    size_t name_len = equals != NULL ? (size_t)(equals - pair) : len;
    char name[16], value[128];
    unsigned bit = 0;

    if (len == 0)
        return;
    if (sl_api_decode(pair, name_len, name, sizeof(name)))
        for (unsigned i = 0; i < SL_ARRAY_LEN(parameters); i++)
            if (strcmp(name, parameters[i].name) == 0)
                bit = parameters[i].bit & allowed;
    if (bit == 0)
        refuse(out, 400, "there is no such parameter here: '%.*s'",
               (int)strspn(pair, "abcdefghijklmnopqrstuvwxyz_"), pair);
    else if (equals == NULL || !sl_api_decode(equals + 1, len - name_len - 1, value, sizeof(value)))
        refuse(out, 400, "the value of %s cannot be read", name);
    else if ((*seen & bit) != 0)
        refuse(out, 400, "%s is said twice", name);
    else
        set(out, bit, value);
    *seen |= bit;
}

void sl_cluster_parse(const char *method, const char *target, struct sl_cluster_request *out)
{
    size_t len = strcspn(target, "?#");
    const char *query = target[len] == '?' ? target + len + 1 : "";
    char path[64];
    unsigned seen = 0;

    *out = (struct sl_cluster_request){.status = 200, .limit = SL_CLUSTER_LIMIT};
    if (strlen(target) >= SL_CLUSTER_TARGET_MAX) {
        refuse(out, 414, "the target is longer than %d bytes", SL_CLUSTER_TARGET_MAX - 1);
        return;
    }
    if (!sl_api_decode(target, len, path, sizeof(path)))
        path[0] = '\0';
    for (unsigned i = 0; i < SL_ARRAY_LEN(rows); i++) {
        if (strcmp(path, rows[i].path) != 0)
            continue;
        out->what = rows[i].what;
        if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
            refuse(out, 405, "one may only read here");
        while (*query != '\0') {
            size_t part = strcspn(query, "&");

            take_pair(out, query, part, rows[i].parameters, &seen);
            query += part + (query[part] == '&');
        }
        for (unsigned k = 0; k < SL_ARRAY_LEN(parameters); k++)
            if ((rows[i].needs & ~seen & parameters[k].bit) != 0)
                refuse(out, 400, "%s=... is needed", parameters[k].name);
        return;
    }
    refuse(out, 404, "there is no such thing here; /v1 lists what there is");
}
