/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/api_request.h"

#include "core/err.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The parameters that an endpoint may have. */
enum {
    SINCE = 1,
    WAIT = 2,
    LIMIT = 4,
    OPEN = 8,
    KIND = 16,
    SUBJECT = 32,
    BY = 64,
    TO = 128,
    FROM = 256,
    RAIL = 512,
    COUNT = 1024,
    GAP = 2048,
    BYTES = 4096,
    TRANSPORT = 8192,
    TO_RAIL = 16384,
    CLASS = 32768
};

static const struct {
    const char *path, *method, *help;
    enum sl_api_what what;
    unsigned parameters, needs;
} rows[] = {
    {"/", "GET", "this list", SL_API_INDEX, 0, 0},
    {"/healthz", "GET", "200, or 503 and which sources are not read", SL_API_HEALTH, 0, 0},
    {"/metrics", "GET", "OpenMetrics, or the text format 0.0.4, by Accept", SL_API_METRICS, 0, 0},
    {"/v1/status", "GET", "the host, its health, sources, and what is not ok", SL_API_STATUS, 0, 0},
    {"/v1/ports", "GET", "ports and their counters", SL_API_PORTS, 0, 0},
    {"/v1/ranks", "GET", "ranks of jobs on this host", SL_API_RANKS, 0, 0},
    {"/v1/calls", "GET",
     "since=NS, limit=N: calls of ranks that ended after that, with their times", SL_API_CALLS,
     SINCE | LIMIT, 0},
    {"/v1/events", "GET", "since=ID, wait=SECONDS (0 to 60), limit=N: events after ID",
     SL_API_EVENTS, SINCE | WAIT | LIMIT, 0},
    {"/v1/verdicts", "GET", "open=1, since=ID, limit=N: verdicts after ID", SL_API_VERDICTS,
     SINCE | LIMIT | OPEN, 0},
    {"/v1/config", "GET", "the configuration that is in force", SL_API_CONFIG, 0, 0},
    {"/v1/probes", "GET", "sources, and why one is down", SL_API_PROBES, 0, 0},
    {"/v1/observation", "GET", "what a cluster's instance reads of this node", SL_API_OBSERVATION,
     0, 0},
    {"/v1/clear", "POST", "kind=KIND, subject=NAME: an operator says that it is good", SL_API_CLEAR,
     KIND | SUBJECT | BY, KIND | SUBJECT},
    {"/v1/probe", "POST",
     "to=ADDRESS:PORT, from=ADDRESS, transport=udp|rdma, rail=NAME, to_rail=NAME, count=N, "
     "gap_us=N, bytes=N, traffic_class=N: sends packets to another agent; /v1/probing has what "
     "came of it",
     SL_API_PROBE, TO | FROM | RAIL | COUNT | GAP | BYTES | TRANSPORT | TO_RAIL | CLASS, TO},
};

static const struct {
    const char *name;
    unsigned bit;
} parameters[] = {
    {"since", SINCE}, {"wait", WAIT},           {"limit", LIMIT},     {"open", OPEN},
    {"kind", KIND},   {"subject", SUBJECT},     {"by", BY},           {"to", TO},
    {"from", FROM},   {"rail", RAIL},           {"count", COUNT},     {"gap_us", GAP},
    {"bytes", BYTES}, {"transport", TRANSPORT}, {"to_rail", TO_RAIL}, {"traffic_class", CLASS}};

const char *sl_api_endpoint(unsigned i, const char **help)
{
    if (i == SL_ARRAY_LEN(rows)) {
        *help = "by=NAME: somebody has seen it (POST)";
        return "/v1/verdicts/ID/ack";
    }
    if (i > SL_ARRAY_LEN(rows))
        return NULL;
    *help = rows[i].help;
    return rows[i].path;
}

static void refuse(struct sl_api_request *out, int status, const char *fmt, ...) SL_PRINTF(3, 4);
static void refuse(struct sl_api_request *out, int status, const char *fmt, ...)
{
    va_list args;

    if (out->status != 200)
        return; /* the first mistake is the one that is told */
    out->status = status;
    va_start(args, fmt);
    vsnprintf(out->why, sizeof(out->why), fmt, args);
    va_end(args);
}

/* ---- words ---- */

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool sl_api_decode(const char *in, size_t len, char *out, size_t cap)
{
    size_t used = 0;

    for (size_t i = 0; i < len; i++) {
        int c = (unsigned char)in[i];

        if (c == '%') {
            if (i + 2 >= len || hex(in[i + 1]) < 0 || hex(in[i + 2]) < 0)
                return false;
            c = hex(in[i + 1]) * 16 + hex(in[i + 2]);
            i += 2;
        } else if (c == '+') {
            c = ' ';
        }
        if (c < ' ' || c > '~' || used + 1 >= cap)
            return false;
        out[used++] = (char)c;
    }
    out[used] = '\0';
    return true;
}

bool sl_api_number(const char *text, uint64_t most, uint64_t *out)
{
    uint64_t value = 0;

    if (*text == '\0')
        return false;
    for (; *text != '\0'; text++) {
        unsigned digit = (unsigned)*text - '0';

        if (digit > 9 || digit > most || value > (most - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    *out = value;
    return true;
}

static bool kind_of(const char *text, enum sl_mon_kind *out)
{
    for (unsigned i = 0; i < SL_MON_KINDS; i++)
        if (strcmp(text, sl_mon_kind_name((enum sl_mon_kind)i)) == 0) {
            *out = (enum sl_mon_kind)i;
            return true;
        }
    return false;
}

/* ---- parameters ---- */

static void set_number(struct sl_api_request *out, const char *name, const char *value,
                       uint64_t least, uint64_t most, uint64_t *field)
{
    uint64_t got;

    if (!sl_api_number(value, most, &got) || got < least)
        refuse(out, 400, "%s is to be a number from %llu to %llu, and is '%.60s'", name,
               (unsigned long long)least, (unsigned long long)most, value);
    else
        *field = got;
}

static void set_text(struct sl_api_request *out, const char *name, const char *value, char *field,
                     size_t cap)
{
    if (strlen(value) >= cap)
        refuse(out, 400, "%s is longer than %zu bytes", name, cap - 1);
    else
        snprintf(field, cap, "%s", value);
}

static void set_count(struct sl_api_request *out, const char *name, const char *value,
                      unsigned *field)
{
    uint64_t got = *field;

    set_number(out, name, value, 1, 60000000, &got);
    *field = (unsigned)got;
}

static void set(struct sl_api_request *out, unsigned bit, const char *name, const char *value)
{
    uint64_t got = 0;

    switch (bit) {
    case SINCE: set_number(out, name, value, 0, INT64_MAX, &out->since); break;
    case WAIT:
        set_number(out, name, value, 0, SL_API_WAIT_MAX, &got);
        out->wait_s = (unsigned)got;
        break;
    case LIMIT:
        set_number(out, name, value, 1,
                   out->what == SL_API_CALLS ? SL_API_CALLS_MAX : SL_API_LIMIT_MAX, &got);
        out->limit = (unsigned)got;
        break;
    case OPEN:
        set_number(out, name, value, 0, 1, &got);
        out->is_open_only = got != 0;
        break;
    case KIND:
        if (!kind_of(value, &out->kind))
            refuse(out, 400, "there is no kind '%.60s': port, nic, gpu, process or host", value);
        break;
    case SUBJECT:
        if (value[0] == '\0' || strlen(value) >= sizeof(out->subject))
            refuse(out, 400, "subject is to be a name of at most %zu bytes",
                   sizeof(out->subject) - 1);
        else
            snprintf(out->subject, sizeof(out->subject), "%s", value);
        break;
    case TO: set_text(out, name, value, out->probe.to, sizeof(out->probe.to)); break;
    case FROM: set_text(out, name, value, out->probe.from, sizeof(out->probe.from)); break;
    case RAIL: set_text(out, name, value, out->probe.rail, sizeof(out->probe.rail)); break;
    case COUNT: set_count(out, name, value, &out->probe.count); break;
    case GAP: set_count(out, name, value, &out->probe.gap_us); break;
    case TRANSPORT:
        out->probe.is_rdma = strcmp(value, "rdma") == 0;
        if (!out->probe.is_rdma && strcmp(value, "udp") != 0)
            refuse(out, 400, "transport is to be udp or rdma, and is '%.60s'", value);
        break;
    case TO_RAIL: set_text(out, name, value, out->probe.to_rail, sizeof(out->probe.to_rail)); break;
    case CLASS:
        set_number(out, name, value, 0, UINT8_MAX, &got);
        out->probe.traffic_class = (unsigned)got;
        break;
    case BYTES: set_count(out, name, value, &out->probe.bytes); break;
    default: set_text(out, name, value, out->by, sizeof(out->by)); break;
    }
}

static unsigned parameter(const char *name)
{
    for (unsigned i = 0; i < SL_ARRAY_LEN(parameters); i++)
        if (strcmp(name, parameters[i].name) == 0)
            return parameters[i].bit;
    return 0;
}

/* One "name=value" of a query. */
static void take_pair(struct sl_api_request *out, const char *pair, size_t len, unsigned allowed,
                      unsigned *seen)
{
    const char *equals = memchr(pair, '=', len);
    size_t name_len = equals != NULL ? (size_t)(equals - pair) : len;
    char name[16], value[128];
    unsigned bit;

    if (len == 0)
        return;
    if (!sl_api_decode(pair, name_len, name, sizeof(name)) ||
        (bit = parameter(name) & allowed) == 0) {
        refuse(out, 400, "there is no such parameter here: '%.*s'",
               (int)strspn(pair, "abcdefghijklmnopqrstuvwxyz_"), pair);
        return;
    }
    if (equals == NULL || !sl_api_decode(equals + 1, len - name_len - 1, value, sizeof(value))) {
        refuse(out, 400, "the value of %s cannot be read", name);
        return;
    }
    if ((*seen & bit) != 0) {
        refuse(out, 400, "%s is said twice", name);
        return;
    }
    *seen |= bit;
    set(out, bit, name, value);
}

static void take_query(struct sl_api_request *out, const char *query, unsigned allowed,
                       unsigned needs)
{
    unsigned seen = 0;

    while (*query != '\0') {
        size_t len = strcspn(query, "&");

        take_pair(out, query, len, allowed, &seen);
        query += len + (query[len] == '&');
    }
    for (unsigned i = 0; i < SL_ARRAY_LEN(parameters); i++)
        if ((needs & ~seen & parameters[i].bit) != 0)
            refuse(out, 400, "%s=... is needed", parameters[i].name);
}

/* ---- paths ---- */

static void take_method(struct sl_api_request *out, const char *method, const char *wanted)
{
    bool is_good =
        strcmp(method, wanted) == 0 || (strcmp(wanted, "GET") == 0 && strcmp(method, "HEAD") == 0);

    out->is_write = strcmp(wanted, "POST") == 0;
    if (!is_good)
        refuse(out, 405, "this is asked for by %s", wanted);
}

/* "/v1/verdicts/ID/ack" */
static bool take_ack(struct sl_api_request *out, const char *path)
{
    static const char before[] = "/v1/verdicts/";
    char id[24];
    size_t len;

    if (strncmp(path, before, sizeof(before) - 1) != 0)
        return false;
    path += sizeof(before) - 1;
    len = strcspn(path, "/");
    if (strcmp(path + len, "/ack") != 0)
        return false;
    snprintf(id, sizeof(id), "%.*s", (int)len, path);
    out->what = SL_API_ACK;
    if (len >= sizeof(id) || !sl_api_number(id, INT64_MAX, &out->id) || out->id == 0)
        refuse(out, 400, "a verdict's id is a number");
    return true;
}

/* "/v1/NAME" */
static bool take_source(struct sl_api_request *out, const char *path)
{
    size_t len;

    if (strncmp(path, "/v1/", 4) != 0)
        return false;
    path += 4;
    len = strspn(path, "abcdefghijklmnopqrstuvwxyz0123456789_");
    if (len == 0 || path[len] != '\0' || len >= sizeof(out->name))
        return false;
    out->what = SL_API_SOURCE;
    memcpy(out->name, path, len + 1);
    return true;
}

void sl_api_parse(const char *method, const char *target, struct sl_api_request *out)
{
    size_t len = strcspn(target, "?#");
    const char *query = target[len] == '?' ? target + len + 1 : "";
    char path[128];

    *out = (struct sl_api_request){.status = 200,
                                   .limit = SL_API_LIMIT,
                                   .probe = {.count = 1000, .gap_us = 1000, .bytes = 256}};
    if (strlen(target) >= SL_API_TARGET_MAX) {
        refuse(out, 414, "the target is longer than %d bytes", SL_API_TARGET_MAX - 1);
        return;
    }
    if (!sl_api_decode(target, len, path, sizeof(path))) {
        refuse(out, 404, "there is no such thing here; / lists what there is");
        return;
    }
    for (unsigned i = 0; i < SL_ARRAY_LEN(rows); i++)
        if (strcmp(path, rows[i].path) == 0) {
            out->what = rows[i].what;
            out->limit = rows[i].what == SL_API_CALLS ? SL_API_CALLS_LIMIT : SL_API_LIMIT;
            take_method(out, method, rows[i].method);
            take_query(out, query, rows[i].parameters, rows[i].needs);
            return;
        }
    if (take_ack(out, path)) {
        take_method(out, method, "POST");
        take_query(out, query, BY, 0);
    } else if (take_source(out, path)) {
        take_method(out, method, "GET");
        take_query(out, query, 0, 0);
    } else {
        refuse(out, 404, "there is no such thing here; / lists what there is");
    }
}

/* ---- which format ---- */

/* Thousandths, of the parameters "; q=0.5; ...": 1000 where there is no q. */
static unsigned quality(const char *at, const char *end)
{
    while (at < end) {
        unsigned whole, used = 0, value = 0, scale = 100;

        at += strspn(at, "; \t");
        if (at >= end)
            break;
        if (at + 1 < end && (at[0] == 'q' || at[0] == 'Q') && at[1] == '=') {
            if (at + 2 == end)
                return 0;
            whole = (unsigned)at[2] - '0';
            if (whole > 1)
                return 0;
            for (const char *digit = at + 4; at + 3 < end && at[3] == '.' && digit < end &&
                                             used < 3 && *digit >= '0' && *digit <= '9';
                 digit++, used++, scale /= 10)
                value += (unsigned)(*digit - '0') * scale;
            return whole == 1 ? 1000 : value;
        }
        at += strcspn(at, ";");
    }
    return 1000;
}

static bool is_type(const char *at, size_t len, const char *type)
{
    return len == strlen(type) && strncasecmp(at, type, len) == 0;
}

bool sl_api_wants_openmetrics(const char *accept)
{
    unsigned open = 0, plain = 0;

    while (accept != NULL && *accept != '\0') {
        accept += strspn(accept, ", \t");
        const char *end = accept + strcspn(accept, ",");
        size_t len = strcspn(accept, ";, \t");
        unsigned q = accept + len < end ? quality(accept + len, end) : 1000;

        if (is_type(accept, len, "application/openmetrics-text") && q > open)
            open = q;
        if ((is_type(accept, len, "text/plain") || is_type(accept, len, "text/*")) && q > plain)
            plain = q;
        accept = end;
    }
    return open > 0 && open >= plain;
}
