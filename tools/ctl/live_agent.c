/* SPDX-License-Identifier: Apache-2.0 */
/* Asks a node agent for its ranks. */
#include "core/err.h"
#include "tools/ctl/ask.h"
#include "tools/ctl/live.h"

#include <errno.h>
#include <json-c/json.h>
#include <pthread.h>
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

/* It may take longer than the deadline: whoever waits does not wait for this thread. */
static int fetch(const struct sc_source *source, int64_t deadline_ns, char **bytes, size_t *len)
{
    struct json_object *answer;
    int err = open_once();

    (void)deadline_ns;
    err = err ?: sc_ask(source->address, "GET", "/v1/ranks", 0, &answer);
    if (err != 0)
        return err;
    *bytes = strdup(json_object_to_json_string_ext(answer, JSON_C_TO_STRING_PLAIN));
    json_object_put(answer);
    if (*bytes == NULL)
        return sl_fail(-ENOMEM, "no memory for what %s says", source->word);
    *len = strlen(*bytes);
    return 0;
}

sc_fetch *const sc_agent_fetch = fetch;
