/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes the text of path tables. */
#include "core/path_table.h"

#include "core/err.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_LINE "sluice-paths 1"

struct slice {
    const char *at;
    size_t len;
};

static bool is_word(struct slice slice, const char *word)
{
    return slice.len == strlen(word) && memcmp(slice.at, word, slice.len) == 0;
}

/* "key=value": the value; at NULL: it is not of that key. */
static struct slice value_of(struct slice word, const char *key)
{
    size_t len = strlen(key);

    if (word.len <= len || memcmp(word.at, key, len) != 0)
        return (struct slice){0};
    return (struct slice){.at = word.at + len, .len = word.len - len};
}

/* Digits alone, and no more than max. -1: anything else. */
static int64_t read_number(struct slice text, unsigned base, uint64_t max)
{
    static const char digits[] = "0123456789abcdef";
    uint64_t number = 0;

    for (size_t i = 0; i < text.len; i++) {
        const char *digit = memchr(digits, text.at[i], base);

        if (digit == NULL)
            return -1;
        number = number * base + (uint64_t)(digit - digits);
        if (number > max)
            return -1;
    }
    return text.len == 0 ? -1 : (int64_t)number;
}

/* Cuts the next of what sep separates off. False: there is none. */
static bool take(struct slice *rest, char sep, struct slice *out)
{
    if (rest->len == 0)
        return false;
    const char *end = memchr(rest->at, sep, rest->len);

    out->at = rest->at;
    out->len = end == NULL ? rest->len : (size_t)(end - rest->at);
    size_t used = out->len + (end != NULL);

    rest->at += used;
    rest->len -= used;
    return true;
}

/* ---- a rule ---- */

struct sl_path_rule sl_path_rule_empty(void)
{
    return (struct sl_path_rule){.rank = SL_PATH_TABLE_ALL,
                                 .peer = SL_PATH_TABLE_ALL,
                                 .path = SL_PATH_TABLE_ALL,
                                 .label = SL_PATH_TABLE_UNSAID,
                                 .weight = SL_PATH_TABLE_UNSAID,
                                 .avoid = SL_PATH_TABLE_UNSAID};
}

/* Letters, digits and signs that neither this text nor JSON has a use for. */
static bool is_name(const char *name, size_t len, size_t max)
{
    for (size_t i = 0; i < len; i++)
        if (name[i] <= ' ' || name[i] > '~' || name[i] == '"' || name[i] == '\\')
            return false;
    return len <= max;
}

static bool is_number(int64_t number, int64_t max)
{
    return number >= -1 && number <= max; /* -1: all, or unsaid */
}

int sl_path_rule_check(const struct sl_path_rule *rule)
{
    if (!is_name(rule->job, rule->job_len, SL_PATH_TABLE_JOB_MAX))
        return sl_fail(-EINVAL,
                       "a job's name in a path table has 1 to %u printable characters, no space, "
                       "quote or backslash among them",
                       SL_PATH_TABLE_JOB_MAX);
    if (!is_name(rule->port, rule->port_len, SL_PATH_TABLE_PORT_MAX))
        return sl_fail(-EINVAL,
                       "a port's name in a path table has 1 to %u such characters, as mlx5_0:1",
                       SL_PATH_TABLE_PORT_MAX);
    if (!is_number(rule->rank, SL_PATH_TABLE_NUMBER_MAX) ||
        !is_number(rule->peer, SL_PATH_TABLE_NUMBER_MAX) ||
        !is_number(rule->path, SL_PATH_TABLE_NUMBER_MAX))
        return sl_fail(-EINVAL, "rank, peer and path are 0 to %d, or none for all",
                       SL_PATH_TABLE_NUMBER_MAX);
    if (!is_number(rule->label, SL_PATH_TABLE_LABEL_MAX))
        return sl_fail(-EINVAL, "a label is 0 to %x in hex", SL_PATH_TABLE_LABEL_MAX);
    if (!is_number(rule->weight, SL_PATH_TABLE_WEIGHT_MAX) || rule->weight == 0)
        return sl_fail(-EINVAL, "a weight is 1 to %d; a path of which nothing is wanted is avoided",
                       SL_PATH_TABLE_WEIGHT_MAX);
    if (!is_number(rule->avoid, 1))
        return sl_fail(-EINVAL, "a path is to be used or avoided");
    if (rule->label < 0 && rule->weight < 0 && rule->avoid < 0)
        return sl_fail(-EINVAL, "a rule says label=, weight=, use or avoid, and this one none");
    return 0;
}

/* The field that a word sets, and its value; NULL: no word of a rule. */
static int32_t *number_of(struct sl_path_rule *rule, struct slice word, struct slice *value)
{
    *value = value_of(word, "rank=");
    if (value->at != NULL)
        return &rule->rank;
    *value = value_of(word, "peer=");
    if (value->at != NULL)
        return &rule->peer;
    *value = value_of(word, "path=");
    return value->at != NULL ? &rule->path : NULL;
}

static bool read_avoid(struct sl_path_rule *rule, struct slice word)
{
    bool avoid = is_word(word, "avoid");

    if ((!avoid && !is_word(word, "use")) || rule->avoid >= 0)
        return false;
    rule->avoid = avoid;
    return true;
}

static bool read_word(struct sl_path_rule *rule, struct slice word)
{
    struct slice value = value_of(word, "job=");
    int32_t *number;

    if (value.at != NULL) {
        bool first = rule->job_len == 0;

        rule->job = value.at;
        rule->job_len = value.len;
        return first;
    }
    value = value_of(word, "port=");
    if (value.at != NULL) {
        bool first = rule->port_len == 0;

        rule->port = value.at;
        rule->port_len = value.len;
        return first;
    }
    number = number_of(rule, word, &value);
    if (number != NULL) {
        bool first = *number < 0;

        *number = (int32_t)read_number(value, 10, SL_PATH_TABLE_NUMBER_MAX);
        return first && *number >= 0;
    }
    value = value_of(word, "label=");
    if (value.at != NULL) {
        bool first = rule->label < 0;

        rule->label = (int32_t)read_number(value, 16, SL_PATH_TABLE_LABEL_MAX);
        return first && rule->label >= 0;
    }
    value = value_of(word, "weight=");
    if (value.at != NULL) {
        bool first = rule->weight < 0;

        rule->weight = (int16_t)read_number(value, 10, SL_PATH_TABLE_WEIGHT_MAX);
        return first && rule->weight >= 0;
    }
    return read_avoid(rule, word);
}

int sl_path_rule_parse(const char *text, size_t len, struct sl_path_rule *out)
{
    struct slice rest = {.at = text, .len = len}, word;
    struct sl_path_rule rule = sl_path_rule_empty();

    while (take(&rest, ' ', &word))
        if (!read_word(&rule, word))
            return sl_fail(-EINVAL, "'%.*s' is no word of a rule, or comes twice",
                           (int)(word.len < 80 ? word.len : 80), word.at);
    int err = sl_path_rule_check(&rule);

    if (err == 0)
        *out = rule;
    return err;
}

bool sl_path_rule_is_for(const struct sl_path_rule *rule, const char *job, int rank)
{
    return (rule->rank < 0 || rule->rank == rank) &&
           (rule->job_len == 0 ||
            (strlen(job) == rule->job_len && memcmp(job, rule->job, rule->job_len) == 0));
}

static bool is_port(const struct sl_path_rule *rule, const char *port)
{
    return rule->port_len == 0 || (port != NULL && strlen(port) == rule->port_len &&
                                   memcmp(port, rule->port, rule->port_len) == 0);
}

struct sl_path_setting sl_path_rules_apply(const struct sl_path_rule *rules, size_t count, int peer,
                                           int path, const char *port)
{
    struct sl_path_setting out = {.label = SL_PATH_TABLE_UNSAID,
                                  .weight = SL_PATH_TABLE_WEIGHT_MAX};

    for (size_t i = 0; i < count; i++) {
        const struct sl_path_rule *rule = &rules[i];

        if ((rule->peer >= 0 && rule->peer != peer) || (rule->path >= 0 && rule->path != path) ||
            !is_port(rule, port))
            continue;
        if (rule->label >= 0)
            out.label = rule->label;
        if (rule->weight >= 0)
            out.weight = (uint8_t)rule->weight;
        if (rule->avoid >= 0)
            out.avoid = rule->avoid == 1;
    }
    return out;
}

/* ---- a table ---- */

static int bad_line(unsigned line, const char *why)
{
    char text[256];

    snprintf(text, sizeof(text), "%s", why); /* it may be the last error itself */
    return sl_fail(-EBADMSG, "line %u of the path table: %s", line, text);
}

static int rule_add(struct sl_path_table *table, struct slice line, unsigned number)
{
    struct sl_path_rule rule;

    if (table->count == SL_PATH_TABLE_RULES_MAX)
        return bad_line(number, "there are more rules than a table holds");
    if (sl_path_rule_parse(line.at, line.len, &rule) != 0)
        return bad_line(number, sluice_last_error());
    if ((table->count & (table->count - 1)) == 0) { /* room for twice as many */
        size_t room = table->count == 0 ? 1 : 2 * table->count;
        struct sl_path_rule *more = reallocarray(table->rules, room, sizeof(*more));

        if (more == NULL)
            return sl_fail(-ENOMEM, "no memory for a path table");
        table->rules = more;
    }
    table->rules[table->count++] = rule;
    return 0;
}

/* The last line says how many rules there are: what was cut off, or is being written, lacks it. */
static int read_end(const struct sl_path_table *table, struct slice line, struct slice rest,
                    unsigned number)
{
    int64_t count = read_number(value_of(line, "end "), 10, SL_PATH_TABLE_RULES_MAX);

    if (count != (int64_t)table->count)
        return bad_line(number, "its number of rules is another one");
    return rest.len == 0 ? 0 : bad_line(number, "something follows the end");
}

static int read_until(struct sl_path_table *table, struct slice line, unsigned number)
{
    int64_t until_s = read_number(value_of(line, "until "), 10, INT64_MAX / 16);

    if (until_s <= 0 || table->until_s != 0)
        return bad_line(number, "until has a time in seconds since 1970, once");
    table->until_s = (uint64_t)until_s;
    return 0;
}

static int read_table(struct slice rest, struct sl_path_table *table)
{
    struct slice line;
    int err = 0;

    if (rest.len > SL_PATH_TABLE_BYTES_MAX)
        return sl_fail(-EBADMSG, "the path table has more than %u bytes", SL_PATH_TABLE_BYTES_MAX);
    if (rest.len == 0 || rest.at[rest.len - 1] != '\n')
        return sl_fail(-EBADMSG, "the path table does not end with a whole line");
    if (!take(&rest, '\n', &line) || !is_word(line, FIRST_LINE))
        return bad_line(1, "it is not '" FIRST_LINE "'");
    for (unsigned number = 2; err == 0; number++) {
        if (!take(&rest, '\n', &line))
            return bad_line(number, "the end is missing");
        if (line.len == 0 || line.at[0] == '#')
            continue;
        if (value_of(line, "end ").at != NULL)
            return read_end(table, line, rest, number);
        err = value_of(line, "until ").at != NULL ? read_until(table, line, number)
                                                  : rule_add(table, line, number);
    }
    return err;
}

int sl_path_table_parse(const char *text, size_t len, struct sl_path_table *out)
{
    struct sl_path_table table = {0};
    int err = read_table((struct slice){.at = text, .len = len}, &table);

    if (err != 0)
        sl_path_table_fini(&table);
    else
        *out = table;
    return err;
}

void sl_path_table_fini(struct sl_path_table *table)
{
    free(table->rules);
    *table = (struct sl_path_table){0};
}

/* ---- writing ---- */

static int print_rule(FILE *out, const struct sl_path_rule *rule)
{
    const char *sep = "";
    int err = sl_path_rule_check(rule);

    if (err != 0)
        return err;
    if (rule->job_len > 0) {
        fprintf(out, "job=%.*s", (int)rule->job_len, rule->job);
        sep = " ";
    }
    if (rule->port_len > 0) {
        fprintf(out, "%sport=%.*s", sep, (int)rule->port_len, rule->port);
        sep = " ";
    }
    const struct {
        const char *key;
        int number;
    } words[] = {{"rank=", rule->rank},
                 {"peer=", rule->peer},
                 {"path=", rule->path},
                 {"weight=", rule->weight}};

    for (size_t i = 0; i < SL_ARRAY_LEN(words); i++)
        if (words[i].number >= 0) {
            fprintf(out, "%s%s%d", sep, words[i].key, words[i].number);
            sep = " ";
        }
    if (rule->label >= 0) {
        fprintf(out, "%slabel=%x", sep, (unsigned)rule->label);
        sep = " ";
    }
    if (rule->avoid >= 0)
        fprintf(out, "%s%s", sep, rule->avoid ? "avoid" : "use");
    fputc('\n', out);
    return 0;
}

int sl_path_table_print(const struct sl_path_table *table, char **out, size_t *len)
{
    char *text = NULL;
    int err = 0;

    if (table->count > SL_PATH_TABLE_RULES_MAX)
        return sl_fail(-E2BIG, "a path table holds %u rules", SL_PATH_TABLE_RULES_MAX);
    FILE *file = open_memstream(&text, len);

    if (file == NULL)
        return sl_fail(-ENOMEM, "no memory for a path table");
    fputs(FIRST_LINE "\n", file);
    if (table->until_s != 0)
        fprintf(file, "until %" PRIu64 "\n", table->until_s);
    for (size_t i = 0; i < table->count && err == 0; i++)
        err = print_rule(file, &table->rules[i]);
    fprintf(file, "end %zu\n", table->count);
    if (fclose(file) != 0 && err == 0)
        err = sl_fail(-ENOMEM, "no memory for a path table");
    if (err == 0 && *len > SL_PATH_TABLE_BYTES_MAX)
        err = sl_fail(-E2BIG, "a path table has at most %u bytes", SL_PATH_TABLE_BYTES_MAX);
    if (err != 0)
        free(text);
    else
        *out = text;
    return err;
}
