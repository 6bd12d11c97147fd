/* SPDX-License-Identifier: Apache-2.0 */
/* Asks a node agent for its ranks, for their calls, and for what is wrong with its ports. */
#include "core/err.h"
#include "tools/ctl/ask.h"
#include "tools/ctl/live.h"

#include <errno.h>
#include <json-c/json.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* libcurl is opened once. */
static int open_once(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    int err;

    pthread_mutex_lock(&lock);
    err = sc_ask_open();
    pthread_mutex_unlock(&lock);
    return err;
}

/* Beside the ranks. An agent that does not tell of its ports is heard all the same. */
static void add_ports(const struct sc_source *source, struct json_object *answer)
{
    struct json_object *object = NULL, *ports;

    if (sc_ask(source->address, "GET", "/v1/ports", 0, &object) == 0 &&
        json_object_object_get_ex(object, "ports", &ports))
        json_object_object_add(answer, "ports", json_object_get(ports));
    json_object_put(object);
}

/* The same of its ranks' calls, after those that are known. */
static void add_calls(const struct sc_source *source, struct json_object *answer)
{
    struct json_object *calls;
    char target[64];

    snprintf(target, sizeof(target), "/v1/calls?since=%llu", (unsigned long long)source->since);
    if (sc_ask(source->address, "GET", target, 0, &calls) == 0)
        json_object_object_add(answer, "calls", calls);
}

/* It may take longer than the deadline: whoever waits does not wait for this thread. */
static int fetch(const struct sc_source *source, int64_t deadline_ns, char **bytes, size_t *len)
{
    struct json_object *answer;
    int err = open_once();

    (void)deadline_ns;
    err = err ?: sc_ask(source->address, "GET", "/v1/ranks", 0, &answer);
    if (err != 0)
        return err;
    add_ports(source, answer);
    add_calls(source, answer);
    *bytes = strdup(json_object_to_json_string_ext(answer, JSON_C_TO_STRING_PLAIN));
    json_object_put(answer);
    if (*bytes == NULL)
        return sl_fail(-ENOMEM, "no memory for what %s says", source->word);
    *len = strlen(*bytes);
    return 0;
}

sc_fetch *const sc_agent_fetch = fetch;
