/* SPDX-License-Identifier: Apache-2.0 */
/* sluicectl verdicts, ack, clear: what is wrong, and what an operator says to it. */
#include "core/err.h"
#include "tools/ctl/agent.h"
#include "tools/ctl/ask.h"
#include "tools/ctl/show.h"
#include "tools/ctl/table.h"

#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add_row(const struct sc_page *page, struct sc_table *table, struct json_object *one)
{
    char opened[80], ended[80], acked[160] = "-";

    sc_when(sc_text(one, "opened"), page->now, opened, sizeof(opened));
    sc_when(sc_text(one, "closed"), page->now, ended, sizeof(ended));
    if (sc_text(one, "acked")[0] != '\0')
        snprintf(acked, sizeof(acked), "%s", sc_text(one, "acked_by"));
    sc_table_cell(table, "%lld", sc_int(one, "id"));
    sc_table_cell(table, "%s %s", sc_text(one, "kind"), sc_text(one, "subject"));
    sc_table_cell(table, "%s", sc_text(one, "check"));
    sc_table_cell(table, "%s", sc_text(one, "class"));
    sc_table_cell(table, "%s", sc_text(one, "severity"));
    sc_table_cell(table, "%s", opened);
    sc_table_cell(table, "%s", sc_true(one, "open") ? "open" : ended);
    sc_table_cell(table, "%s", acked);
    sc_table_cell(table, "%s", sc_text(one, "text"));
}

/* All pages of them, as one array. */
static int get_all(const struct sc_context *context, bool all, struct json_object **out)
{
    long long since = 0;
    bool is_more = true;

    *out = json_object_new_array();
    while (is_more) {
        char target[96];
        struct json_object *answer, *list;
        int result;

        snprintf(target, sizeof(target), "/v1/verdicts?since=%lld&limit=1000%s", since,
                 all ? "" : "&open=1");
        result = sc_get(context->socket, target, &answer);
        if (result != 0) {
            json_object_put(*out);
            return result;
        }
        list = sc_part(answer, "verdicts");
        for (unsigned i = 0; i < sc_length(list); i++)
            json_object_array_add(*out, json_object_get(sc_at(list, i)));
        is_more = sc_true(answer, "more") && sc_int(answer, "next") > since;
        since = sc_int(answer, "next");
        json_object_put(answer);
    }
    return 0;
}

int sc_verdicts(const struct sc_context *context, int count, char **words)
{
    const struct sc_page page = sc_page_plain();
    bool all = count == 1 && strcmp(words[0], "--all") == 0;
    struct json_object *list, *answer;
    struct sc_table table;
    int result;

    if (count != (all ? 1 : 0))
        return sc_refuse("verdicts");
    result = get_all(context, all, &list);
    if (result != 0)
        return result;
    if (context->json) {
        answer = json_object_new_object();
        json_object_object_add(answer, "version", json_object_new_int(1));
        json_object_object_add(answer, "verdicts", list);
        return sc_print_json(answer);
    }
    if (sc_length(list) == 0) {
        puts(all ? "there were no verdicts" : "there is no open verdict");
        json_object_put(list);
        return SC_GOOD;
    }
    sc_table_begin(&table, ">ID", "SUBJECT", "CHECK", "CLASS", "SEVERITY", "OPENED", "CLOSED",
                   "SEEN BY", "WHAT", NULL);
    for (unsigned i = 0; i < sc_length(list); i++)
        add_row(&page, &table, sc_at(list, i));
    sc_table_print(&table, page.end, page.width, page.out);
    json_object_put(list);
    return SC_GOOD;
}

/* ---- what an operator says ---- */

static int post(const struct sc_context *context, const char *target, struct json_object **out)
{
    int err = sc_ask(context->socket, "POST", target, 0, out);

    if (err == 0)
        return 0;
    sc_complain();
    return err == -ECONNREFUSED || err == -ETIMEDOUT ? SC_UNREACHABLE : SC_FAILED;
}

int sc_ack(const struct sc_context *context, int count, char **words)
{
    char target[256], by[128] = "", id_text[32] = "";
    const char *name = getenv("SUDO_USER") ?: getenv("USER");
    unsigned long long id = 0;
    struct json_object *answer;
    int result;

    for (int i = 0; i < count; i++) {
        const char *given = sc_option(count, words, &i, "by");

        if (given != NULL)
            name = given;
        else if (id_text[0] == '\0' && strlen(words[i]) < sizeof(id_text))
            strcpy(id_text, words[i]);
        else
            return sc_refuse("ack");
    }
    if (!sc_number(id_text, INT64_MAX, &id) || id == 0)
        return sc_refuse("ack");
    sc_escape(name != NULL ? name : "", by, sizeof(by));
    snprintf(target, sizeof(target), "/v1/verdicts/%llu/ack?by=%s", id, by);
    result = post(context, target, &answer);
    if (result != 0)
        return result;
    if (context->json)
        return sc_print_json(answer);
    json_object_put(answer);
    printf("verdict %llu is acknowledged\n", id);
    return SC_GOOD;
}

int sc_clear(const struct sc_context *context, int count, char **words)
{
    char target[512], kind[64], subject[256];
    struct json_object *answer;
    int result;

    if (count != 2)
        return sc_refuse("clear");
    sc_escape(words[0], kind, sizeof(kind));
    sc_escape(words[1], subject, sizeof(subject));
    snprintf(target, sizeof(target), "/v1/clear?kind=%s&subject=%s", kind, subject);
    result = post(context, target, &answer);
    if (result != 0)
        return result;
    if (context->json)
        return sc_print_json(answer);
    printf(sc_true(answer, "cleared") ? "what was wrong with %s %s has ended\n"
                                      : "nothing was wrong with %s %s\n",
           words[0], words[1]);
    json_object_put(answer);
    return SC_GOOD;
}
