/* SPDX-License-Identifier: Apache-2.0 */
/* The path table, for an operator: read, changed under a lock, written whole. */
#include "tools/ctl/paths.h"

#include "core/err.h"
#include "core/path_watch.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RULE_TEXT 512

/* A table, and the text that its rules lie in. */
struct table {
    struct sl_path_table rules;
    char *text;
};

static int complain(void)
{
    fprintf(stderr, "sluicectl: %s\n", sluice_last_error());
    return 1;
}

static void table_free(struct table *table)
{
    sl_path_table_fini(&table->rules);
    free(table->text);
}

/* Of no file: an empty one. */
static int table_read(const char *file, struct table *out)
{
    size_t len;
    int err;

    *out = (struct table){0};
    err = sl_path_file_read(file, &out->text, &len);
    if (err == 0 && out->text != NULL)
        err = sl_path_table_parse(out->text, len, &out->rules);
    return err;
}

/* ---- showing ---- */

static void print_number(const char *name, int number)
{
    if (number < 0)
        printf("\"%s\": null, ", name);
    else
        printf("\"%s\": %d, ", name, number);
}

static void print_rule(const struct sl_path_rule *rule)
{
    printf("    {\"job\": ");
    if (rule->job_len > 0) /* no character of it needs an escape: sl_path_rule_check() */
        printf("\"%.*s\", ", (int)rule->job_len, rule->job);
    else
        printf("null, ");
    if (rule->port_len > 0) /* as above */
        printf("\"port\": \"%.*s\", ", (int)rule->port_len, rule->port);
    else
        printf("\"port\": null, ");
    print_number("rank", rule->rank);
    print_number("peer", rule->peer);
    print_number("path", rule->path);
    print_number("label", rule->label);
    print_number("weight", rule->weight);
    printf("\"avoid\": %s}", rule->avoid < 0 ? "null" : rule->avoid == 1 ? "true" : "false");
}

static void print_json(const struct sl_path_table *table)
{
    printf("{\n  \"version\": 1,\n  \"until\": ");
    if (table->until_s != 0)
        printf("%" PRIu64, table->until_s);
    else
        printf("null");
    printf(",\n  \"rules\": [");
    for (size_t i = 0; i < table->count; i++) {
        printf(i == 0 ? "\n" : ",\n");
        print_rule(&table->rules[i]);
    }
    printf("%s]\n}\n", table->count > 0 ? "\n  " : "");
}

static int print_text(const struct sl_path_table *table)
{
    char *text;
    size_t len;
    int err = sl_path_table_print(table, &text, &len);

    if (err != 0)
        return err;
    fwrite(text, 1, len, stdout);
    free(text);
    return 0;
}

int sc_paths_show(const char *file, bool json)
{
    struct table table;
    int err = table_read(file, &table);

    if (err == 0 && json)
        print_json(&table.rules);
    else if (err == 0)
        err = print_text(&table.rules);
    table_free(&table);
    if (err == 0 && fflush(stdout) != 0)
        err = sl_fail(-EIO, "standard output cannot be written");
    return err != 0 ? complain() : 0;
}

/* ---- changing ---- */

static bool same_paths(const struct sl_path_rule *a, const struct sl_path_rule *b)
{
    return a->job_len == b->job_len && (a->job_len == 0 || !memcmp(a->job, b->job, a->job_len)) &&
           a->port_len == b->port_len &&
           (a->port_len == 0 || !memcmp(a->port, b->port, a->port_len)) && a->rank == b->rank &&
           a->peer == b->peer && a->path == b->path;
}

/* Takes the rules of exactly these paths out; what the last of them said, where they say nothing,
 * goes into *rule. */
static void take_out(struct sl_path_table *table, struct sl_path_rule *rule)
{
    size_t left = 0;
    struct sl_path_rule said = *rule;

    for (size_t i = 0; i < table->count; i++) {
        const struct sl_path_rule *old = &table->rules[i];

        if (!same_paths(old, rule)) {
            table->rules[left++] = *old;
            continue;
        }
        if (rule->label < 0 && old->label >= 0)
            said.label = old->label;
        if (rule->weight < 0 && old->weight >= 0)
            said.weight = old->weight;
        if (rule->avoid < 0 && old->avoid >= 0)
            said.avoid = old->avoid;
    }
    table->count = left;
    *rule = said;
}

static int join_words(int count, char **words, const char *more, char *out, size_t cap)
{
    int len = 0;

    out[0] = '\0';
    for (int i = 0; i < count && (size_t)len < cap; i++)
        len += snprintf(out + len, cap - (size_t)len, "%s%s", i > 0 ? " " : "", words[i]);
    if ((size_t)len < cap)
        len += snprintf(out + len, cap - (size_t)len, "%s", more);
    return (size_t)len < cap ? 0 : sl_fail(-EINVAL, "the rule is too long");
}

/* Nobody else's change is lost between reading and writing. */
static int change(const char *file, struct sl_path_rule *rule, bool add)
{
    struct table table = {0};
    int lock = sl_path_file_lock(file);
    int err = lock < 0 ? lock : table_read(file, &table);

    if (err == 0) {
        struct sl_path_rule *more =
            reallocarray(table.rules.rules, table.rules.count + 1, sizeof(*more));

        if (more == NULL)
            err = sl_fail(-ENOMEM, "no memory for a path table");
        else
            table.rules.rules = more;
    }
    if (err == 0)
        take_out(&table.rules, rule);
    if (err == 0 && add)
        table.rules.rules[table.rules.count++] = *rule;
    if (err == 0)
        err = sl_path_file_write(file, &table.rules);
    table_free(&table);
    if (lock >= 0)
        sl_path_file_unlock(lock);
    return err != 0 ? complain() : 0;
}

int sc_paths_set(const char *file, int count, char **words)
{
    char text[RULE_TEXT];
    struct sl_path_rule rule;
    int err = join_words(count, words, "", text, sizeof(text));

    err = err ?: sl_path_rule_parse(text, strlen(text), &rule);
    return err != 0 ? complain() : change(file, &rule, true);
}

int sc_paths_clear(const char *file, int count, char **words)
{
    char text[RULE_TEXT];
    struct sl_path_rule rule;
    const struct sl_path_table none = {0};
    int err;

    if (count == 0)
        return sl_path_file_write(file, &none) != 0 ? complain() : 0;
    /* A rule says something; what, is no matter here. */
    err = join_words(count, words, " use", text, sizeof(text));
    err = err ?: sl_path_rule_parse(text, strlen(text), &rule);
    return err != 0 ? complain() : change(file, &rule, false);
}

int sc_paths_load(const char *file)
{
    size_t len = 0, room = SL_PATH_TABLE_BYTES_MAX + 1, got;
    char *text = malloc(room);
    struct sl_path_table table = {0};
    int err = text == NULL ? sl_fail(-ENOMEM, "no memory for a path table") : 0;

    while (err == 0 && len < room && (got = fread(text + len, 1, room - len, stdin)) > 0)
        len += got;
    err = err ?: sl_path_table_parse(text, len, &table);
    err = err ?: sl_path_file_write(file, &table);
    sl_path_table_fini(&table);
    free(text);
    return err != 0 ? complain() : 0;
}
