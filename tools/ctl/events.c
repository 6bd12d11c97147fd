/* SPDX-License-Identifier: Apache-2.0 */
/* sluicectl events: what changed, and what changes while one looks on. */
#include "core/err.h"
#include "tools/ctl/agent.h"
#include "tools/ctl/ask.h"
#include "tools/ctl/table.h"

#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LAST 20 /* shown where nobody says from which on */
#define WAIT_S 30
#define RETRY_S 2
#define SUBJECT 96

struct options {
    bool has_since, follow;
    unsigned long long since;
};

static bool take_options(int count, char **words, struct options *out)
{
    *out = (struct options){.has_since = false};
    for (int i = 0; i < count; i++) {
        const char *since = sc_option(count, words, &i, "since");

        if (since != NULL) {
            if (!sc_number(since, INT64_MAX, &out->since))
                return false;
            out->has_since = true;
        } else if (strcmp(words[i], "--follow") == 0 || strcmp(words[i], "-f") == 0) {
            out->follow = true;
        } else {
            return false;
        }
    }
    return true;
}

/* What was bad, or why it is so no more. */
static const char *reason(struct json_object *event)
{
    const char *to = sc_text(event, "to");
    bool is_better = strcmp(to, "ok") == 0 || strcmp(to, "recovering") == 0;

    return sc_text(event, is_better && strcmp(sc_text(event, "from"), to) != 0 ? "cause" : "text");
}

/* One a line, as they come: widths that do for nearly all. */
static void print_text(struct json_object *event)
{
    double at = sc_time(sc_text(event, "time"));
    time_t seconds = (time_t)at;
    char local[32] = "?", what[64], subject[SUBJECT];
    struct tm parts;

    if (localtime_r(&seconds, &parts) != NULL)
        strftime(local, sizeof(local), "%F %T", &parts);
    if (strcmp(sc_text(event, "type"), "event") == 0)
        snprintf(what, sizeof(what), "again");
    else
        snprintf(what, sizeof(what), "%.20s -> %.20s", sc_text(event, "from"),
                 sc_text(event, "to"));
    snprintf(subject, sizeof(subject), "%s %s", sc_text(event, "kind"), sc_text(event, "subject"));
    printf("%6lld  %s.%03d  %-16s %-16s %-18s %s\n", sc_int(event, "id"), local,
           (int)((at - (double)seconds) * 1000 + 0.5) % 1000, subject, sc_text(event, "check"),
           what, reason(event));
}

static void print_events(const struct sc_context *context, struct json_object *events)
{
    for (unsigned i = 0; i < sc_length(events); i++) {
        if (context->json)
            puts(json_object_to_json_string_ext(
                sc_at(events, i), JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE));
        else
            print_text(sc_at(events, i));
    }
}

/* Prints what is after *since, and moves it. True: there is more at once. */
static int take_batch(const struct sc_context *context, unsigned long long *since, unsigned wait_s,
                      bool *is_more)
{
    char target[96];
    struct json_object *answer;
    int err;

    snprintf(target, sizeof(target), "/v1/events?since=%llu&wait=%u", *since, wait_s);
    err = sc_ask(context->socket, "GET", target, wait_s, &answer);
    if (err != 0)
        return err;
    print_events(context, sc_part(answer, "events"));
    if (sc_true(answer, "reset"))
        fprintf(stderr, "sluicectl: the agent's numbers began anew; going on after %lld\n",
                sc_int(answer, "last"));
    *since = (unsigned long long)sc_int(answer, "next");
    *is_more = sc_int(answer, "next") < sc_int(answer, "last");
    json_object_put(answer);
    return fflush(stdout) == 0 ? 0 : sl_fail(-EPIPE, "standard output cannot be written");
}

/* An agent that begins anew is waited for. */
static int follow(const struct sc_context *context, unsigned long long since)
{
    bool is_away = false, is_more;

    for (;;) {
        double began = sc_now();
        int err = take_batch(context, &since, WAIT_S, &is_more);

        if (err == -EPIPE)
            return SC_FAILED;
        if (err == -EREMOTEIO)
            return sc_complain();
        if (err != 0 && !is_away)
            sc_complain();
        is_away = err != 0;
        /* One that does not wait, for there are too many who do, is not asked all the time. */
        if (is_away || (!is_more && sc_now() - began < 0.1))
            sleep(is_away ? RETRY_S : 1);
    }
}

static int last_events(const struct sc_context *context, unsigned long long *since)
{
    struct json_object *answer;
    long long last;
    int result = sc_get(context->socket, "/v1/events?limit=1", &answer);

    if (result != 0)
        return result;
    last = sc_int(answer, "last");
    *since = last > LAST ? (unsigned long long)last - LAST : 0;
    json_object_put(answer);
    return SC_GOOD;
}

int sc_events(const struct sc_context *context, int count, char **words)
{
    struct options options;
    bool is_more = true;
    int result = SC_GOOD;

    if (!take_options(count, words, &options))
        return sc_refuse("events");
    if (!options.has_since)
        result = last_events(context, &options.since);
    while (result == SC_GOOD && is_more)
        if (take_batch(context, &options.since, 0, &is_more) != 0)
            result = sc_complain();
    return result == SC_GOOD && options.follow ? follow(context, options.since) : result;
}
