/* SPDX-License-Identifier: Apache-2.0 */
/* sluicectl doctor: what of the agent works on this host, with or without an agent that runs. */
#include "tools/ctl/doctor.h"

#include "core/err.h"
#include "tools/ctl/agent.h"
#include "tools/ctl/ask.h"
#include "tools/ctl/table.h"

#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

#define FINDINGS 64
#define STORE "/var/lib/sluiced/state.db"

struct doctor {
    struct sc_host host;
    struct sc_finding findings[FINDINGS];
    char names[FINDINGS][48]; /* of sources */
    unsigned count;
    struct json_object *status, *config; /* NULL: no agent answers */
};

static struct sc_finding *next(struct doctor *doctor, const char *name)
{
    struct sc_finding *finding = &doctor->findings[doctor->count];

    doctor->count += doctor->count + 1 < FINDINGS;
    finding->name = name;
    return finding;
}

/* ---- the agent ---- */

static void look_agent(const struct sc_context *context, struct doctor *doctor)
{
    struct sc_finding *finding = next(doctor, "agent");
    int err = sc_ask(context->socket, "GET", "/v1/status", 0, &doctor->status);

    if (err != 0) {
        doctor->status = NULL;
        sc_find(finding, SC_WRONG,
                err == -ENOTSUP ? "apt install libcurl4, or what has libcurl.so.4 elsewhere"
                                : "systemctl start sluiced; [api] socket and group say who may ask",
                "%.400s", sluice_last_error());
        return;
    }
    if (sc_ask(context->socket, "GET", "/v1/config", 0, &doctor->config) != 0)
        doctor->config = NULL;
    if (doctor->host.root[0] == '\0')
        doctor->host.pid = (long)sc_int(doctor->status, "pid");
    sc_find(finding, SC_WELL, "", "sluiced %s answers at %s",
            sc_text(doctor->status, "agent_version"), context->socket);
    finding = next(doctor, "configuration");
    if (sc_true(doctor->status, "config_is_good"))
        sc_find(finding, SC_WELL, "", "the file that was read last is in force");
    else
        sc_find(finding, SC_WRONG, "sluiced --check names the line",
                "the file that was read last was refused; an older one is in force");
}

static void look_sources(struct doctor *doctor)
{
    struct json_object *probes = sc_part(doctor->status, "probes");

    for (unsigned i = 0; i < sc_length(probes); i++) {
        struct json_object *one = sc_at(probes, i);
        const char *state = sc_text(one, "state"), *why = sc_text(one, "why");
        bool is_up = strcmp(state, "up") == 0;

        snprintf(doctor->names[i % FINDINGS], sizeof(doctor->names[0]), "source %s",
                 sc_text(one, "name"));
        sc_find(next(doctor, doctor->names[i % FINDINGS]),
                is_up                      ? SC_WELL
                : sc_true(one, "is_alarm") ? SC_WRONG
                                           : SC_LESS,
                "", "%s (%s)%s%s", state, sc_text(one, "how"), why[0] != '\0' ? ": " : "", why);
    }
}

static void look_all(const struct sc_context *context, struct doctor *doctor)
{
    static const struct {
        const char *name;
        void (*look)(const struct sc_host *host, struct sc_finding *out);
    } looks[] = {{"BTF", sc_look_btf},           {"capabilities", sc_look_caps},
                 {"lockdown", sc_look_lockdown}, {"kernel's log", sc_look_kmsg},
                 {"RDMA", sc_look_rdma},         {"tracefs", sc_look_tracefs},
                 {"cgroup", sc_look_cgroup},     {"pressure", sc_look_pressure},
                 {"NVML", sc_look_nvml}};
    const char *store;

    look_agent(context, doctor);
    look_sources(doctor);
    for (unsigned i = 0; i < SL_ARRAY_LEN(looks); i++)
        looks[i].look(&doctor->host, next(doctor, looks[i].name));
    store = sc_text(sc_part(sc_part(doctor->config, "config"), "store"), "path");
    sc_look_store(store[0] != '\0' ? store : STORE, doctor->status != NULL, next(doctor, "store"));
}

/* ---- showing ---- */

static const char *const words_of[] = {[SC_WELL] = "ok", [SC_LESS] = "less", [SC_WRONG] = "WRONG"};

static int print_json(const struct doctor *doctor)
{
    static const char *const states[] = {
        [SC_WELL] = "ok", [SC_LESS] = "less", [SC_WRONG] = "wrong"};
    struct json_object *object = json_object_new_object(), *list = json_object_new_array();

    for (unsigned i = 0; i < doctor->count; i++) {
        const struct sc_finding *finding = &doctor->findings[i];
        struct json_object *one = json_object_new_object();

        json_object_object_add(one, "name", json_object_new_string(finding->name));
        json_object_object_add(one, "state", json_object_new_string(states[finding->found]));
        json_object_object_add(one, "text", json_object_new_string(finding->text));
        json_object_object_add(one, "advice", json_object_new_string(finding->advice));
        json_object_array_add(list, one);
    }
    json_object_object_add(object, "version", json_object_new_int(1));
    json_object_object_add(object, "findings", list);
    return sc_print_json(object);
}

static void print_text(const struct doctor *doctor)
{
    struct sc_table table;

    sc_table_begin(&table, "WHAT", "", "FOUND", NULL);
    for (unsigned i = 0; i < doctor->count; i++) {
        const struct sc_finding *finding = &doctor->findings[i];

        sc_table_cell(&table, "%s", finding->name);
        sc_table_cell(&table, "%s", words_of[finding->found]);
        sc_table_cell(&table, "%s", finding->text);
        if (finding->advice[0] == '\0')
            continue;
        sc_table_cell(&table, "%s", "");
        sc_table_cell(&table, "%s", "");
        sc_table_cell(&table, "  -> %s", finding->advice);
    }
    sc_table_print(&table, "\n", 0, stdout);
}

int sc_doctor(const struct sc_context *context, int count, char **words)
{
    static struct doctor doctor;
    bool is_wrong = false;

    doctor.host.root = "";
    for (int i = 0; i < count; i++) {
        const char *root = sc_option(count, words, &i, "root");

        if (root == NULL || root[0] == '\0')
            return sc_refuse("doctor");
        doctor.host.root = root;
    }
    look_all(context, &doctor);
    for (unsigned i = 0; i < doctor.count; i++)
        is_wrong |= doctor.findings[i].found == SC_WRONG;
    if (!context->json)
        print_text(&doctor);
    else if (print_json(&doctor) != 0)
        return SC_FAILED;
    json_object_put(doctor.status);
    json_object_put(doctor.config);
    return is_wrong ? SC_UNHEALTHY : SC_GOOD;
}
