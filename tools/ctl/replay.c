/* SPDX-License-Identifier: Apache-2.0 */
/* sluicectl replay: what an agent recorded, through this program's rules. */
#include "core/err.h"
#include "monitor/replay.h"
#include "tools/ctl/agent.h"
#include "tools/ctl/ask.h"

#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SHOWN 10 /* differences */

struct view {
    bool json;
    unsigned differences;
};

/* A file, or a folder that has it as "inputs.jsonl". */
static FILE *open_bundle(const char *path, char *name, size_t cap)
{
    struct stat info;
    FILE *file;

    snprintf(name, cap, "%s", path);
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode))
        snprintf(name, cap, "%s/inputs.jsonl", path);
    file = fopen(name, "re");
    if (file == NULL)
        sl_fail(-errno, "%s cannot be read: %s", name, sluice_strerror(-errno));
    return file;
}

static void on_event(void *arg, const char *line)
{
    const struct view *view = arg;
    struct json_object *event;

    if (view->json) {
        puts(line);
        return;
    }
    event = json_tokener_parse(line);
    printf("%6lld  %s  %s %s  %s  %s -> %s  %s\n", sc_int(event, "id"), sc_text(event, "time"),
           sc_text(event, "kind"), sc_text(event, "subject"), sc_text(event, "check"),
           sc_text(event, "from"), sc_text(event, "to"), sc_text(event, "text"));
    json_object_put(event);
}

static void on_difference(void *arg, uint64_t line, const char *recorded, const char *replayed)
{
    struct view *view = arg;

    if (++view->differences > SHOWN)
        return;
    fprintf(stderr, "line %" PRIu64 ": recorded %s\n", line,
            recorded != NULL ? recorded : "nothing");
    fprintf(stderr, "line %" PRIu64 ": replayed %s\n", line,
            replayed != NULL ? replayed : "nothing");
}

static void print_result(const struct view *view, const struct sl_replay_result *result)
{
    struct json_object *object;

    if (!view->json) {
        printf("%" PRIu64 " inputs; %" PRIu64 " transitions and events recorded, %" PRIu64
               " replayed, %" PRIu64 " differ%s\n",
               result->inputs, result->recorded, result->replayed, result->differences,
               result->is_whole ? "" : "; the recording is cut off at its end");
        return;
    }
    object = json_object_new_object();
    json_object_object_add(object, "version", json_object_new_int(1));
    json_object_object_add(object, "type", json_object_new_string("result"));
    json_object_object_add(object, "inputs", json_object_new_uint64(result->inputs));
    json_object_object_add(object, "recorded", json_object_new_uint64(result->recorded));
    json_object_object_add(object, "replayed", json_object_new_uint64(result->replayed));
    json_object_object_add(object, "differences", json_object_new_uint64(result->differences));
    json_object_object_add(object, "whole", json_object_new_boolean(result->is_whole));
    puts(json_object_to_json_string_ext(object, JSON_C_TO_STRING_PLAIN));
    json_object_put(object);
}

int sc_replay(const struct sc_context *context, int count, char **words)
{
    struct view view = {.json = context->json};
    const struct sl_replay_sink sink = {
        .on_event = on_event, .on_difference = on_difference, .arg = &view};
    struct sl_replay_result result;
    char name[4096];
    FILE *file;
    int err;

    if (count != 1)
        return sc_refuse("replay");
    file = open_bundle(words[0], name, sizeof(name));
    if (file == NULL)
        return sc_complain();
    err = sl_replay(file, name, &sink, &result);
    fclose(file);
    if (err != 0)
        return sc_complain();
    print_result(&view, &result);
    if (fflush(stdout) != 0)
        return SC_FAILED;
    return result.differences == 0 ? SC_GOOD : SC_UNHEALTHY;
}
