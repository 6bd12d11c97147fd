/* SPDX-License-Identifier: Apache-2.0 */
/* sluicectl status, ports, ranks: one answer of the agent each, shown once. */
#include "tools/ctl/agent.h"
#include "tools/ctl/show.h"

#include <json-c/json.h>
#include <string.h>

/* Wrong: a condition that is bad, or was until a moment ago. */
static bool is_wrong(struct json_object *conditions)
{
    for (unsigned i = 0; i < sc_length(conditions); i++) {
        const char *state = sc_text(sc_at(conditions, i), "state");

        if (strcmp(state, "bad") == 0 || strcmp(state, "recovering") == 0)
            return true;
    }
    return false;
}

static int exit_status(struct json_object *status)
{
    if (is_wrong(sc_part(status, "conditions")))
        return SC_UNHEALTHY;
    return sc_true(status, "fresh") ? SC_GOOD : SC_UNREACHABLE;
}

int sc_status(const struct sc_context *context, int count, char **words)
{
    const struct sc_page page = sc_page_plain();
    struct json_object *status;
    int result;

    (void)words;
    if (count != 0)
        return sc_refuse("status");
    result = sc_get(context->socket, "/v1/status", &status);
    if (result != 0)
        return result;
    result = exit_status(status);
    if (context->json)
        return sc_print_json(status) != 0 ? SC_FAILED : result;
    sc_show_head(&page, status);
    if (sc_length(sc_part(status, "conditions")) > 0) {
        putchar('\n');
        sc_show_conditions(&page, sc_part(status, "conditions"));
    }
    sc_show_steering(&page, sc_part(status, "steering"));
    putchar('\n');
    sc_show_probes(&page, sc_part(status, "probes"));
    json_object_put(status);
    return result;
}

static int show_one(const struct sc_context *context, const char *target,
                    void (*show)(const struct sc_page *page, struct json_object *answer))
{
    const struct sc_page page = sc_page_plain();
    struct json_object *answer;
    int result = sc_get(context->socket, target, &answer);

    if (result != 0)
        return result;
    if (context->json)
        return sc_print_json(answer);
    show(&page, answer);
    json_object_put(answer);
    return SC_GOOD;
}

static void show_ports(const struct sc_page *page, struct json_object *answer)
{
    sc_show_ports(page, answer, NULL);
}

int sc_ports(const struct sc_context *context, int count, char **words)
{
    (void)words;
    return count != 0 ? sc_refuse("ports") : show_one(context, "/v1/ports", show_ports);
}

int sc_ranks(const struct sc_context *context, int count, char **words)
{
    (void)words;
    return count != 0 ? sc_refuse("ranks") : show_one(context, "/v1/ranks", sc_show_ranks);
}
