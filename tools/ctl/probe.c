/* SPDX-License-Identifier: Apache-2.0 */
/* sluicectl probe: asks agents to send packets to each other, and says what came of them. */
#include "tools/ctl/agent.h"
#include "tools/ctl/ask.h"

#include "core/err.h"

#include <errno.h>
#include <json-c/json.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PORT "9495"      /* of probes */
#define HTTP_PORT "9494" /* of agents */
#define PAIRS_MAX 10000
#define NAME_MAX_ 128
#define ASK_MS 200 /* between two looks at whether it is over */

struct pair {
    char from[NAME_MAX_], to[NAME_MAX_], rail[64]; /* from "": the agent of this host */
};

struct request {
    struct pair pair;
    const char *plan, *address, *to_rail;
    bool is_rdma;
    unsigned long long count, gap_us, bytes, traffic_class; /* the latter 0: not said */
};

/* ---- the command line ---- */

static bool take_number(const char *text, unsigned long long *out)
{
    return sc_number(text, 60000000, out) && *out > 0;
}

static bool take_name(const char *text, char *out, size_t cap)
{
    return text[0] != '\0' && (size_t)snprintf(out, cap, "%s", text) < cap;
}

static bool take_words(int count, char **words, struct request *out)
{
    *out = (struct request){.count = 1000, .gap_us = 1000, .bytes = 256};
    for (int i = 0; i < count; i++) {
        const char *value;
        bool good;

        if (strcmp(words[i], "--rdma") == 0)
            good = out->is_rdma = true;
        else if ((value = sc_option(count, words, &i, "from")) != NULL)
            good = take_name(value, out->pair.from, sizeof(out->pair.from));
        else if ((value = sc_option(count, words, &i, "to")) != NULL)
            good = take_name(value, out->pair.to, sizeof(out->pair.to));
        else if ((value = sc_option(count, words, &i, "rail")) != NULL)
            good = take_name(value, out->pair.rail, sizeof(out->pair.rail));
        else if ((value = sc_option(count, words, &i, "to-rail")) != NULL)
            good = (out->to_rail = value)[0] != '\0';
        else if ((value = sc_option(count, words, &i, "traffic-class")) != NULL)
            good = take_number(value, &out->traffic_class);
        else if ((value = sc_option(count, words, &i, "plan")) != NULL)
            good = (out->plan = value)[0] != '\0';
        else if ((value = sc_option(count, words, &i, "address")) != NULL)
            good = (out->address = value)[0] != '\0';
        else if ((value = sc_option(count, words, &i, "count")) != NULL)
            good = take_number(value, &out->count);
        else if ((value = sc_option(count, words, &i, "gap-us")) != NULL)
            good = take_number(value, &out->gap_us);
        else if ((value = sc_option(count, words, &i, "bytes")) != NULL)
            good = take_number(value, &out->bytes);
        else
            good = false;
        if (!good)
            return false;
    }
    if (!out->is_rdma && (out->to_rail != NULL || out->traffic_class != 0))
        return false;
    return (out->plan != NULL) != (out->pair.to[0] != '\0');
}

/* ---- names ---- */

/* "node18", "node18:9495", "[fd00::2]:9495": an address and a port as an agent takes it. */
static int resolve(const char *name, char *out, size_t cap)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_DGRAM};
    char host[NAME_MAX_], port[16] = PORT, number[64];
    const char *colon = strrchr(name, ':'), *end = strchr(name, ']');
    struct addrinfo *list = NULL;
    int err;

    if (name[0] == '[' && end != NULL) {
        snprintf(host, sizeof(host), "%.*s", (int)(end - name - 1), name + 1);
        if (end[1] == ':')
            snprintf(port, sizeof(port), "%.15s", end + 2);
    } else if (colon != NULL && strchr(name, ':') == colon) {
        snprintf(host, sizeof(host), "%.*s", (int)(colon - name), name);
        snprintf(port, sizeof(port), "%.15s", colon + 1);
    } else {
        snprintf(host, sizeof(host), "%s", name);
    }
    err = getaddrinfo(host, port, &hints, &list);
    if (err == 0)
        err = getnameinfo(list->ai_addr, list->ai_addrlen, number, sizeof(number), port,
                          sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV | NI_DGRAM);
    if (list != NULL && err == 0)
        snprintf(out, cap, list->ai_family == AF_INET6 ? "[%s]:%s" : "%s:%s", number, port);
    if (list != NULL)
        freeaddrinfo(list);
    return err == 0 ? 0 : sl_fail(-EINVAL, "%s is no host: %s", name, gai_strerror(err));
}

/* What to ask: a socket as it is, a host by its agent's usual port. */
static void agent_of(const struct sc_context *context, const char *from, char *out, size_t cap)
{
    if (from[0] == '\0' || strcmp(from, "-") == 0)
        snprintf(out, cap, "%s", context->socket);
    else if (strchr(from, '/') != NULL)
        snprintf(out, cap, "%s", from);
    else
        snprintf(out, cap, strchr(from, ':') != NULL ? "http://%s" : "http://%s:" HTTP_PORT, from);
}

/* ---- one probe ---- */

static void add(char *target, size_t cap, const char *key, const char *value)
{
    char escaped[256];
    size_t len = strlen(target);

    sc_escape(value, escaped, sizeof(escaped));
    snprintf(target + len, cap - len, "&%s=%s", key, escaped);
}

static int begin(const char *agent, const struct request *request, const struct pair *pair,
                 long long *id)
{
    char target[1024], to[96], escaped[256];
    struct json_object *answer;
    int err = resolve(pair->to, to, sizeof(to));

    if (err != 0)
        return err;
    sc_escape(to, escaped, sizeof(escaped));
    snprintf(target, sizeof(target), "/v1/probe?to=%s&count=%llu&gap_us=%llu&bytes=%llu", escaped,
             request->count, request->gap_us, request->bytes);
    if (pair->rail[0] != '\0')
        add(target, sizeof(target), "rail", pair->rail);
    if (request->is_rdma)
        add(target, sizeof(target), "transport", "rdma");
    if (request->to_rail != NULL)
        add(target, sizeof(target), "to_rail", request->to_rail);
    if (request->traffic_class != 0) {
        snprintf(escaped, sizeof(escaped), "%llu", request->traffic_class);
        add(target, sizeof(target), "traffic_class", escaped);
    }
    if (request->address != NULL)
        add(target, sizeof(target), "from", request->address);
    err = sc_ask(agent, "POST", target, 0, &answer);
    if (err != 0)
        return err;
    *id = sc_int(answer, "probe");
    json_object_put(answer);
    return 0;
}

static struct json_object *find(struct json_object *answer, long long id)
{
    struct json_object *list = sc_part(sc_part(answer, "probing"), "results");

    for (unsigned i = 0; i < sc_length(list); i++)
        if (sc_int(sc_at(list, i), "id") == id)
            return json_object_get(sc_at(list, i));
    return NULL;
}

static int end(const char *agent, const struct request *request, long long id,
               struct json_object **out)
{
    const struct timespec pause = {.tv_nsec = ASK_MS * 1000000};
    /* Others may be before it in the agent's list, and RDMA devices take a while to open. */
    unsigned long long left =
        ((request->is_rdma ? 180000 : 120000) + 2 * request->count * request->gap_us / 1000) /
        ASK_MS;

    for (; left > 0; left--) {
        struct json_object *answer;
        int err = sc_ask(agent, "GET", "/v1/probing", 0, &answer);

        if (err != 0)
            return err;
        *out = find(answer, id);
        json_object_put(answer);
        if (*out != NULL)
            return 0;
        nanosleep(&pause, NULL);
    }
    return sl_fail(-ETIMEDOUT, "probe %lld is not over: /v1/probing of the agent may say more", id);
}

static double us(struct json_object *spread, const char *key)
{
    return (double)sc_int(spread, key) / 1e3;
}

static void show(struct json_object *one)
{
    struct json_object *rtt = sc_part(one, "rtt_ns");
    long long sent = sc_int(one, "sent"), lost = sent - sc_int(one, "answered");
    const char *rail = sc_text(one, "rail"), *why = sc_text(one, "why");
    const char *to_rail = sc_text(one, "to_rail");

    printf("%s -> %s (%s)%s%s%s%s: ", sc_text(one, "from"),
           sc_text(one, "to")[0] != '\0' ? sc_text(one, "to") : "?", sc_text(one, "address"),
           rail[0] != '\0' ? " by " : "", rail, to_rail[0] != '\0' ? " to " : "", to_rail);
    if (why[0] != '\0') {
        printf("%s\n", why);
        return;
    }
    printf("%lld of %lld packets lost (%.2f %%; %lld on the way there, %lld back)", lost, sent,
           sent > 0 ? 100.0 * (double)lost / (double)sent : 0, sc_int(one, "lost_there"),
           sc_int(one, "lost_back"));
    if (lost < sent)
        printf(", round trip %.0f us (%.0f to %.0f, p99 %.0f), delay there +%.0f us at p99, back "
               "+%.0f",
               us(rtt, "p50"), us(rtt, "least"), us(rtt, "most"), us(rtt, "p99"),
               us(sc_part(one, "there_ns"), "p99"), us(sc_part(one, "back_ns"), "p99"));
    putchar('\n');
}

static int probe_one(const struct sc_context *context, const struct request *request,
                     const struct pair *pair, const char *agent)
{
    struct json_object *one = NULL;
    long long id = 0;
    int err;

    err = begin(agent, request, pair, &id);
    if (err == 0)
        err = end(agent, request, id, &one);
    if (err != 0) {
        sc_complain();
        return err == -ECONNREFUSED || err == -ETIMEDOUT ? SC_UNREACHABLE : SC_FAILED;
    }
    if (context->json) {
        puts(json_object_to_json_string_ext(one, JSON_C_TO_STRING_PLAIN |
                                                     JSON_C_TO_STRING_NOSLASHESCAPE));
        fflush(stdout);
    } else {
        show(one);
    }
    err = sc_text(one, "why")[0] != '\0' ? SC_FAILED : SC_GOOD;
    json_object_put(one);
    return err;
}

/* Over each RDMA port that is up, as the agent that sends knows them. */
static int probe_ports(const struct sc_context *context, const struct request *request,
                       const struct pair *pair, const char *agent)
{
    struct json_object *answer, *ports;
    struct pair by = *pair;
    int worst = SC_GOOD, result;
    unsigned count = 0;

    result = sc_get(agent, "/v1/ports", &answer);
    if (result != 0)
        return result;
    ports = sc_part(answer, "ports");
    for (unsigned i = 0; i < sc_length(ports); i++) {
        const char *name = sc_text(sc_at(ports, i), "subject");

        if (strchr(name, ':') == NULL || !sc_true(sc_at(ports, i), "up") ||
            !take_name(name, by.rail, sizeof(by.rail)))
            continue;
        count++;
        result = probe_one(context, request, &by, agent);
        worst = result > worst ? result : worst;
    }
    json_object_put(answer);
    if (count > 0)
        return worst;
    sl_fail(-ENODEV, "the agent that is to send knows no RDMA port that is up: --rail names one");
    return sc_complain();
}

static int probe(const struct sc_context *context, const struct request *request,
                 const struct pair *pair)
{
    char agent[160];

    agent_of(context, pair->from, agent, sizeof(agent));
    if (request->is_rdma && pair->rail[0] == '\0')
        return probe_ports(context, request, pair, agent);
    return probe_one(context, request, pair, agent);
}

/* ---- a list of them ---- */

/* "FROM TO [RAIL]", FROM - for the agent of this host. */
static int plan(const struct sc_context *context, const struct request *request)
{
    FILE *file = strcmp(request->plan, "-") == 0 ? stdin : fopen(request->plan, "re");
    int worst = SC_GOOD, result;
    unsigned count = 0, line_count = 0;
    char line[512];

    if (file == NULL) {
        sl_fail(-errno, "%s cannot be opened: %s", request->plan, strerror(errno));
        return sc_complain();
    }
    while (fgets(line, sizeof(line), file) != NULL && count < PAIRS_MAX) {
        struct pair pair = {.rail = ""};
        char more[2];
        int words = sscanf(line, "%127s %127s %63s %1s", pair.from, pair.to, pair.rail, more);

        line_count++;
        if (words <= 0 || pair.from[0] == '#')
            continue;
        if (words < 2 || words > 3) {
            sl_fail(-EINVAL, "%s:%u: a line says FROM TO [RAIL]", request->plan, line_count);
            worst = sc_complain();
            break;
        }
        count++;
        result = probe(context, request, &pair);
        worst = result > worst ? result : worst;
    }
    if (file != stdin)
        fclose(file);
    return worst;
}

int sc_probe(const struct sc_context *context, int count, char **words)
{
    struct request request;

    if (!take_words(count, words, &request))
        return sc_refuse("probe");
    return request.plan != NULL ? plan(context, &request) : probe(context, &request, &request.pair);
}
