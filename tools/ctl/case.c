/* SPDX-License-Identifier: Apache-2.0 */
/* sluicectl replay of a diagnosis' bundle, explain, graph. */
#include "tools/ctl/case.h"
#include "core/err.h"
#include "monitor/cases/explain.h"
#include "monitor/diagnosis/wait_graph.h"
#include "monitor/read/read.h"
#include "tools/ctl/command.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FOLDER "/var/lib/sluiced-cluster/cases"

const char sc_case_usage[] = "       sluicectl [-o json] replay BUNDLE\n"
                             "       sluicectl explain BUNDLE [ID]\n"
                             "       sluicectl explain [--folder DIR] ID\n"
                             "       sluicectl graph [-o dot|svg] [--stall SECONDS] [--at TIME] "
                             "FILE...\n";
const char sc_case_help[] =
    "\n"
    "  replay      judges a bundle's inputs once more: is the result the same, byte for byte?\n"
    "  explain     a verdict in prose: of a bundle, or by its id of the bundles in DIR\n"
    "              (" FOLDER ")\n"
    "  graph       who waits for whom in a hang, of a bundle or of files; svg\n";

struct request {
    const char *command, *folder, *output;
    struct sl_case_options options;
    char **words; /* the rest */
    int count;
};

static int refuse(void)
{
    fputs("usage:\n", stderr);
    fputs(sc_case_usage, stderr);
    return SC_ARGUMENTS;
}

static bool take_seconds(const char *text, int64_t *out)
{
    char *end;
    double seconds = strtod(text, &end);

    if (text[0] < '0' || text[0] > '9' || *end != '\0' || !(seconds < 9e9))
        return false;
    *out = (int64_t)(seconds * 1e3 + 0.5) * 1000000;
    return true;
}

/* Options may stand anywhere. False: one is wrong. */
static bool take_words(int count, char **words, struct request *out)
{
    for (int i = 0; i < count; i++) {
        const char *value;

        if ((value = sc_option(count, words, &i, "folder")) != NULL) {
            out->folder = value;
        } else if ((value = sc_option(count, words, &i, "output")) != NULL ||
                   strcmp(words[i], "-o") == 0) {
            out->output = value != NULL ? value : i + 1 < count ? words[++i] : "";
        } else if ((value = sc_option(count, words, &i, "stall")) != NULL) {
            if (!take_seconds(value, &out->options.stall_ns))
                return false;
        } else if ((value = sc_option(count, words, &i, "at")) != NULL) {
            if (!take_seconds(value, &out->options.now_ns))
                return false;
        } else if (words[i][0] == '-' && words[i][1] != '\0') {
            return false;
        } else if (out->command == NULL) {
            out->command = words[i];
        } else {
            out->words[out->count++] = words[i];
        }
    }
    return true;
}

/* Its first bytes say so. */
static bool is_case(const char *path)
{
    char head[16];
    FILE *file = fopen(path, "re");
    size_t len = file != NULL ? fread(head, 1, sizeof(head), file) : 0;

    if (file != NULL)
        fclose(file);
    return sl_case_is(head, len);
}

/* ---- replay ---- */

/* The first lines that differ. */
static void show_difference(const char *recorded, const char *replayed)
{
    unsigned line = 1;

    while (*recorded != '\0' || *replayed != '\0') {
        size_t m = strcspn(recorded, "\n"), n = strcspn(replayed, "\n");

        if (m != n || memcmp(recorded, replayed, m) != 0) {
            fprintf(stderr, "line %u: recorded %.*s\n", line, (int)m, recorded);
            fprintf(stderr, "line %u: replayed %.*s\n", line, (int)n, replayed);
            return;
        }
        recorded += m + (recorded[m] == '\n');
        replayed += n + (replayed[n] == '\n');
        line++;
    }
}

static int replay(const struct request *request)
{
    struct sl_case it;
    struct sl_case_result result;
    bool is_same;

    if (request->count != 1 || (request->output != NULL && strcmp(request->output, "json") != 0))
        return refuse();
    if (sl_case_read(request->words[0], &it) != 0)
        return sc_complain();
    if (sl_case_judge(it.inputs, &it.options, &result) != 0) {
        sl_case_free(&it);
        return sc_complain();
    }
    is_same = it.result_len == result.len && memcmp(it.result, result.text, result.len) == 0;
    if (request->output != NULL)
        printf("{\"version\":1,\"type\":\"result\",\"inputs\":%zu,\"verdicts\":%u,\"rules\":%u,"
               "\"rules_now\":%d,\"same\":%s}\n",
               it.inputs->count, result.verdicts.count, it.rules, SL_RULES_VERSION,
               is_same ? "true" : "false");
    else
        printf("%zu inputs, %u verdicts: the result %s\n", it.inputs->count, result.verdicts.count,
               is_same ? "is the same, byte for byte" : "differs");
    if (!is_same && it.rules != SL_RULES_VERSION)
        fprintf(stderr, "the bundle was made by rules of version %u, this program has %d\n",
                it.rules, SL_RULES_VERSION);
    if (!is_same)
        show_difference(it.result, result.text);
    sl_case_result_free(&result);
    sl_case_free(&it);
    return is_same ? SC_GOOD : SC_UNHEALTHY;
}

/* ---- explain ---- */

static bool is_id(const char *text)
{
    size_t len = strlen(text);

    return len >= 4 && len < SL_VERDICT_ID && strspn(text, "0123456789abcdef") == len;
}

/* id: NULL, or with what the verdict's begins. *found: how many there were. */
static int explain_file(const char *path, const char *id, unsigned *found)
{
    struct sl_case it;
    struct sl_case_result result;
    int err = sl_case_read(path, &it);

    if (err != 0)
        return err;
    err = sl_case_judge(it.inputs, &it.options, &result);
    if (err != 0) {
        sl_case_free(&it);
        return err;
    }
    for (uint32_t i = 0; i < result.verdicts.count && err == 0; i++) {
        if (id != NULL && strncmp(result.verdicts.list[i].id, id, strlen(id)) != 0)
            continue;
        if ((*found)++ > 0)
            fputs("\n----\n\n", stdout);
        err = sl_explain(&it, &result, &result.verdicts.list[i], stdout);
    }
    if (*found > 0 && (it.result_len != result.len || strcmp(it.result, result.text) != 0))
        printf("\nThe bundle has another result than these rules find: sluicectl replay %s\n",
               path);
    sl_case_result_free(&result);
    sl_case_free(&it);
    return err;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Bundles of the folder that name such a verdict. */
static int explain_folder(const char *folder, const char *id, unsigned *found)
{
    char path[4096], *names[4096];
    DIR *dir = opendir(folder);
    struct dirent *entry;
    size_t count = 0;
    int err = 0;

    if (dir == NULL)
        return sl_fail(-errno, "%s cannot be read for verdict %s: %s; give the bundle's name",
                       folder, id, sluice_strerror(-errno));
    while (count < SL_ARRAY_LEN(names) && (entry = readdir(dir)) != NULL) {
        size_t len = strlen(entry->d_name);

        if (len > 5 && strcmp(entry->d_name + len - 5, ".case") == 0 &&
            (names[count] = strdup(entry->d_name)) != NULL)
            count++;
    }
    closedir(dir);
    qsort(names, count, sizeof(*names), by_text);
    for (size_t i = 0; i < count; i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        free(names[i]);
        if (err == 0 && *found == 0)
            err = explain_file(path, id, found);
    }
    return err;
}

static int explain(const struct request *request)
{
    const char *file = request->count > 0 ? request->words[0] : "", *id = NULL;
    unsigned found = 0;
    int err;

    if (request->count < 1 || request->count > 2 || request->output != NULL ||
        (request->count == 2 && !is_id(request->words[1])))
        return refuse();
    if (request->count == 2)
        id = request->words[1];
    if (request->count == 1 && is_id(file) && !is_case(file)) {
        id = file;
        err = explain_folder(request->folder, id, &found);
    } else {
        err = explain_file(file, id, &found);
    }
    if (err == 0 && found == 0)
        err = sl_fail(-ENOENT, "no verdict with id %s is there", id != NULL ? id : "");
    if (err == 0 && fflush(stdout) != 0)
        err = sl_fail(-EIO, "standard output cannot be written");
    return err == 0 ? SC_GOOD : sc_complain();
}

/* ---- graph ---- */

static int read_inputs(struct request *request, struct sl_inputs **out)
{
    struct sl_case it;
    int err = 0;

    if (request->count == 1 && is_case(request->words[0])) {
        err = sl_case_read(request->words[0], &it);
        if (err != 0)
            return err;
        *out = it.inputs;
        it.inputs = NULL;
        request->options = it.options;
        sl_case_free(&it);
        return 0;
    }
    *out = sl_inputs_new();
    if (*out == NULL)
        return sl_fail(-ENOMEM, "no memory");
    for (int i = 0; i < request->count && err == 0; i++)
        err = sl_inputs_add_file(*out, request->words[i]);
    return err;
}

static int graph(struct request *request)
{
    bool is_dot = request->output != NULL && strcmp(request->output, "dot") == 0;
    struct sl_inputs *inputs = NULL;
    struct sl_case_result result = {.job = NULL};
    struct sl_judge_options rules;
    struct sl_wait_graph waits = {.boxes = NULL};
    int err;

    if (request->count < 1 ||
        (request->output != NULL && !is_dot && strcmp(request->output, "svg") != 0))
        return refuse();
    err = read_inputs(request, &inputs);
    if (err == 0)
        err = sl_case_judge(inputs, &request->options, &result);
    rules = sl_case_rules(&request->options);
    if (err == 0)
        err = sl_wait_graph_make(result.job, &rules.hang, &result.verdicts, &waits);
    if (err == 0)
        (is_dot ? sl_wait_graph_dot : sl_wait_graph_svg)(&waits, stdout);
    if (err == 0 && fflush(stdout) != 0)
        err = sl_fail(-EIO, "standard output cannot be written");
    sl_wait_graph_free(&waits);
    sl_case_result_free(&result);
    sl_inputs_free(inputs);
    return err == 0 ? SC_GOOD : sc_complain();
}

bool sc_case(int count, char **words, int *status)
{
    char **rest = calloc((size_t)count + 1, sizeof(*rest));
    struct request request = {.folder = FOLDER, .options = SL_CASE_OPTIONS, .words = rest};
    bool is_good = rest != NULL && take_words(count, words, &request);
    const char *command = request.command != NULL ? request.command : "";
    bool is_mine = strcmp(command, "explain") == 0 || strcmp(command, "graph") == 0 ||
                   (strcmp(command, "replay") == 0 && request.count > 0 && is_case(rest[0]));

    if (is_mine && !is_good)
        *status = refuse();
    else if (is_mine)
        *status = command[0] == 'e'   ? explain(&request)
                  : command[0] == 'g' ? graph(&request)
                                      : replay(&request);
    free(rest);
    return is_mine;
}
