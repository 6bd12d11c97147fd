/* SPDX-License-Identifier: Apache-2.0 */
/* sluicectl matrix: what messages from rank to rank took, as text, JSON or SVG. */
#include "tools/ctl/matrix.h"
#include "core/err.h"
#include "monitor/diagnosis/expect.h"
#include "monitor/read/read.h"
#include "tools/ctl/command.h"
#include "tools/ctl/heat.h"

#include <errno.h>
#include <json-c/json.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_SIZE 64 /* characters */
#define SVG_SIZE 256 /* fields */

const char sc_matrix_usage[] = "       sluicectl matrix [-o text|json|svg] [--path PATH] FILE...\n";

enum output { TEXT, JSON, SVG };

struct request {
    enum output output;
    const char *path; /* NULL: all */
    char **files;     /* in the words */
    int file_count;
};

struct result {
    struct sl_matrix matrix;
    struct sl_places places;
    float *excess; /* by cell: a logarithm */
};

static int refuse(void)
{
    fprintf(stderr, "usage: %s", sc_matrix_usage + strlen("       "));
    return SC_ARGUMENTS;
}

static bool take_output(const char *word, enum output *out)
{
    static const char *const words[] = {[TEXT] = "text", [JSON] = "json", [SVG] = "svg"};

    for (unsigned i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcmp(word, words[i]) == 0) {
            *out = (enum output)i;
            return true;
        }
    return false;
}

/* Options may stand anywhere; files are moved to the front of words. */
static bool take_words(int count, char **words, struct request *out)
{
    *out = (struct request){.files = words};
    for (int i = 0; i < count; i++) {
        const char *value;

        if ((value = sc_option(count, words, &i, "path")) != NULL) {
            out->path = value;
        } else if ((value = sc_option(count, words, &i, "output")) != NULL ||
                   strcmp(words[i], "-o") == 0) {
            value = value != NULL ? value : i + 1 < count ? words[++i] : "";
            if (!take_output(value, &out->output))
                return false;
        } else if (words[i][0] == '-' && words[i][1] != '\0') {
            return false;
        } else {
            words[out->file_count++] = words[i];
        }
    }
    return out->file_count > 0;
}

/* ---- what was measured ---- */

static int read_files(struct sl_job *job, const struct request *request)
{
    for (int i = 0; i < request->file_count; i++) {
        int err = sl_read_file(job, request->files[i]);

        if (err != 0)
            return err;
    }
    return sl_job_seal(job);
}

static int measure(const struct sl_job *job, struct result *result)
{
    uint32_t tiers;
    int err = sl_matrix_build(job, SL_JOB_WAIT_WIRE, SL_MATRIX_ALL, &result->matrix);

    if (err == 0 && result->matrix.count == 0)
        err =
            sl_fail(-EINVAL, "none of the files tells what messages from rank to rank took (edges "
                             "with bytes and time on the wire, or messages with both ends' times)");
    if (err == 0)
        err = sl_places_find(job, &result->matrix, &result->places);
    if (err != 0)
        return err;
    result->excess = reallocarray(NULL, (size_t)result->matrix.count + 1, sizeof(float));
    if (result->excess == NULL)
        return sl_fail(-ENOMEM, "no memory for a matrix");
    return sl_expect(&result->matrix, &result->places, result->excess, &tiers);
}

static bool is_asked(const struct sl_job *job, const struct request *request,
                     const struct result *result, uint32_t cell)
{
    uint32_t path = result->matrix.paths[result->matrix.cells[cell].path];

    return request->path == NULL || strcmp(sl_job_string(job, path), request->path) == 0;
}

/* 1 where there is nothing to compare with. */
static float ratio_of(const struct result *result, uint32_t cell)
{
    return isnan(result->excess[cell]) ? 1 : expf(result->excess[cell]);
}

/* ---- answers ---- */

static int draw(const struct sl_job *job, const struct request *request,
                const struct result *result)
{
    uint32_t ranks = result->matrix.rank_count,
             most = request->output == SVG ? SVG_SIZE : TEXT_SIZE;
    struct sc_heat heat = {.rank_count = ranks, .ranks_each = (ranks + most - 1) / most};

    heat.size = (ranks + heat.ranks_each - 1) / heat.ranks_each;
    heat.ratio = calloc((size_t)heat.size * heat.size + 1, sizeof(*heat.ratio));
    if (heat.ratio == NULL)
        return sl_fail(-ENOMEM, "no memory for a heat map");
    for (uint32_t i = 0; i < result->matrix.count; i++) {
        const struct sl_matrix_cell *cell = &result->matrix.cells[i];
        size_t at = (size_t)(cell->src / heat.ranks_each) * heat.size + cell->dst / heat.ranks_each;

        if (is_asked(job, request, result, i))
            heat.ratio[at] = fmaxf(heat.ratio[at], ratio_of(result, i));
    }
    if (request->output == SVG)
        sc_heat_svg(&heat, stdout);
    else
        sc_heat_text(&heat, stdout);
    free(heat.ratio);
    return 0;
}

static void add_double(struct json_object *to, const char *key, double value)
{
    char text[32];

    snprintf(text, sizeof(text), "%.9g", isfinite(value) ? value : 0);
    json_object_object_add(to, key, json_object_new_double_s(value, text));
}

static struct json_object *cell_json(const struct sl_job *job, const struct result *result,
                                     uint32_t i)
{
    const struct sl_matrix_cell *cell = &result->matrix.cells[i];
    const char *path = sl_job_string(job, result->matrix.paths[cell->path]);
    struct json_object *it = json_object_new_object();

    json_object_object_add(it, "from", json_object_new_int64(cell->src));
    json_object_object_add(it, "to", json_object_new_int64(cell->dst));
    if (path[0] != '\0')
        json_object_object_add(it, "path", json_object_new_string(path));
    add_double(it, "messages", cell->messages);
    add_double(it, "bytes", cell->bytes);
    add_double(it, "lost", cell->lost);
    add_double(it, "wire_seconds", cell->seconds);
    if (isnan(result->excess[i]))
        json_object_object_add(it, "ratio", NULL);
    else
        add_double(it, "ratio", ratio_of(result, i));
    return it;
}

static void print_json(const struct sl_job *job, const struct request *request,
                       const struct result *result)
{
    struct json_object *object = json_object_new_object(), *cells = json_object_new_array();

    for (uint32_t i = 0; i < result->matrix.count; i++)
        if (is_asked(job, request, result, i))
            json_object_array_add(cells, cell_json(job, result, i));
    json_object_object_add(object, "version", json_object_new_int(1));
    json_object_object_add(object, "ranks", json_object_new_int64(result->matrix.rank_count));
    json_object_object_add(object, "cells", cells);
    puts(json_object_to_json_string_ext(object,
                                        JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE));
    json_object_put(object);
}

static int answer(const struct sl_job *job, const struct request *request,
                  const struct result *result)
{
    int err = 0;

    if (request->output == JSON)
        print_json(job, request, result);
    else
        err = draw(job, request, result);
    if (err == 0 && fflush(stdout) != 0)
        err = sl_fail(-EIO, "standard output cannot be written");
    return err;
}

int sc_matrix(int count, char **words)
{
    struct result result = {.excess = NULL};
    struct request request;
    struct sl_job *job;
    int status = SC_GOOD;

    if (!take_words(count, words, &request))
        return refuse();
    job = sl_job_new();
    if (job == NULL)
        sl_fail(-ENOMEM, "no memory");
    if (job == NULL || read_files(job, &request) != 0 || measure(job, &result) != 0 ||
        answer(job, &request, &result) != 0)
        status = sc_complain();
    free(result.excess);
    sl_places_fini(&result.places);
    sl_matrix_fini(&result.matrix);
    sl_job_free(job);
    return status;
}
