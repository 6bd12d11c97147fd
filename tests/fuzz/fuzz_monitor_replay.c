/* SPDX-License-Identifier: Apache-2.0 */
/* A bundle, of whatever origin: it is replayed or refused with its line, and its events are lines
 * of JSON. */
#include "core/err.h"
#include "monitor/replay.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void on_event(void *arg, const char *line)
{
    (void)arg;
    sl_assert(line[0] == '{' && line[strlen(line) - 1] == '}' && strchr(line, '\n') == NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct sl_replay_sink sink = {.on_event = on_event};
    struct sl_replay_result result;
    char *text = malloc(size + 1);
    FILE *file;
    int err;

    if (text == NULL || size == 0) {
        free(text);
        return 0;
    }
    memcpy(text, data, size);
    file = fmemopen(text, size, "r");
    sl_assert(file != NULL);
    err = sl_replay(file, "bundle", &sink, &result);
    sl_assert(err == 0 || err == -EINVAL || err == -ENOMEM);
    sl_assert(err == 0 || sluice_last_error()[0] != '\0');
    fclose(file);
    free(text);
    return 0;
}
