/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What somebody asks of the agent's API: a method and a target, as they came over a socket, made
 * into a request that is right in all its parts, or refused with a sentence. No I/O.
 */
#ifndef SL_MONITOR_API_REQUEST_H
#define SL_MONITOR_API_REQUEST_H

#include "monitor/engine.h"
#include "monitor/probing.h"

#define SL_API_VERSION 1
#define SL_API_TARGET_MAX 1024 /* bytes of a target, "/v1/events?since=3" */
#define SL_API_WAIT_MAX 60     /* seconds */
#define SL_API_LIMIT_MAX 1000  /* events or verdicts of one answer */
#define SL_API_LIMIT 256
#define SL_API_CALLS_MAX 65536 /* calls of one answer, some 4 MB */
#define SL_API_CALLS_LIMIT 8192

enum sl_api_what {
    SL_API_INDEX,
    SL_API_HEALTH,
    SL_API_METRICS,
    SL_API_STATUS,
    SL_API_PORTS,
    SL_API_RANKS,
    SL_API_CALLS,
    SL_API_EVENTS,
    SL_API_VERDICTS,
    SL_API_CONFIG,
    SL_API_PROBES,
    SL_API_OBSERVATION,
    SL_API_SOURCE, /* /v1/NAME of a source */
    SL_API_ACK,
    SL_API_CLEAR,
    SL_API_PROBE,
};

struct sl_api_request {
    enum sl_api_what what;
    bool is_write, is_open_only;
    uint64_t since, id;
    unsigned wait_s, limit;
    enum sl_mon_kind kind;
    char name[32]; /* of a source */
    char subject[SL_MON_NAME];
    char by[40]; /* who says so, as they say; may be empty */
    struct sl_probing_wish probe;
    int status; /* of HTTP: 200, or why it is refused */
    char why[256];
};

void sl_api_parse(const char *method, const char *target, struct sl_api_request *out);

/* A part of a target without its escapes. False: too long, an escape that is none, or what no name
 * has: a control character, which might move somebody's terminal, or bytes that are no text. */
bool sl_api_decode(const char *in, size_t len, char *out, size_t cap);
/* Digits alone: no sign, no blank. False: it is none, or more than most. */
bool sl_api_number(const char *text, uint64_t most, uint64_t *out);

/* Does the value of an Accept header prefer OpenMetrics to the text format before it? NULL: no. */
bool sl_api_wants_openmetrics(const char *accept);

/* The endpoints, for people: NULL after the last one. */
const char *sl_api_endpoint(unsigned i, const char **help);

#endif
