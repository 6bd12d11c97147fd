/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the node agent over its unix socket, or over HTTP (docs/monitor-api.md). libcurl speaks
 * HTTP; it is opened when it is first needed, so that the rest works without it. */
#ifndef SLUICE_CTL_ASK_H
#define SLUICE_CTL_ASK_H

#include <stdbool.h>

struct json_object;

#define SC_ANSWER_MAX (64 << 20)

/* Opens libcurl, which the first question does else; by one thread at a time. -ENOTSUP. */
int sc_ask_open(void);

/* method: "GET", "POST". wait_s: how long the agent may think about it. On success *out is the
 * answer; the caller's. -ECONNREFUSED: nobody is there; -ENOTSUP: no libcurl; -EREMOTEIO: the agent
 * refuses, by the last error; -EPROTO: that is no answer. */
int sc_ask(const char *socket, const char *method, const char *target, unsigned wait_s,
           struct json_object **out);

/* The same, of which a failure is said. 0, or an exit status. */
int sc_get(const char *socket, const char *target, struct json_object **out);

/* A value of a query, with its escapes. */
void sc_escape(const char *value, char *out, unsigned cap);

/* ---- what is in an answer: of a key that is not there, the least ---- */

const char *sc_text(struct json_object *object, const char *key); /* "" */
double sc_real(struct json_object *object, const char *key);
long long sc_int(struct json_object *object, const char *key);
bool sc_true(struct json_object *object, const char *key);
/* NULL: there is none. */
struct json_object *sc_part(struct json_object *object, const char *key);
/* Of an array; 0: it is none. */
unsigned sc_length(struct json_object *array);
struct json_object *sc_at(struct json_object *array, unsigned i); /* NULL: there are not so many */
/* Prints it on standard output, as it came, and lets go of it. */
int sc_print_json(struct json_object *answer);

#endif
