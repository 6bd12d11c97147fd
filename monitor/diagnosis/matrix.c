/* SPDX-License-Identifier: Apache-2.0 */
/* Edges into cells: in one pass where they lie in order and on one path, as those of a collective
 * among all ranks do; else by three counting sorts. */
#include "monitor/diagnosis/matrix.h"
#include "core/err.h"
#include "monitor/diagnosis/matrix_cells.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct build {
    const struct sl_job *job;
    enum sl_job_wait state;
    enum sl_matrix_side side;
    const struct sl_job_edge *edges;
    size_t edge_count;
    uint32_t *order, *spare; /* numbers of edges that count, sorted */
    uint32_t count;
    bool is_one_path, is_by_rank; /* they have one path; they lie by src and dst */
    uint32_t *path_of;            /* by text */
    uint32_t path_cap;
    struct sl_matrix *matrix;
};

/* 0 for what is no text: all edges of a job may be on one path without a name. */
static uint32_t path_text(const struct build *build, uint32_t path)
{
    return sl_job_string(build->job, path)[0] != '\0' ? path : 0;
}

static bool is_usable(const struct sl_job_edge *edge, enum sl_job_wait state)
{
    double seconds = edge->wait_s[state];

    return edge->src != edge->dst && edge->bytes > 0 && seconds > 0 && seconds < INFINITY;
}

static bool is_on_side(const struct build *build, const struct sl_job_edge *edge)
{
    uint32_t host = build->job->ranks[edge->src].host;
    bool is_local = host != 0 && host == build->job->ranks[edge->dst].host;

    return build->side == SL_MATRIX_ALL || is_local == (build->side == SL_MATRIX_LOCAL);
}

/* The next edge that counts. */
static void take(struct build *build, size_t edge, uint32_t path)
{
    const struct sl_job_edge *it = &build->edges[edge], *before;

    if (build->count > 0) {
        before = &build->edges[build->order[build->count - 1]];
        build->is_one_path = build->is_one_path && path + 1 == build->path_cap;
        build->is_by_rank =
            build->is_by_rank &&
            (before->src < it->src || (before->src == it->src && before->dst <= it->dst));
    }
    build->path_cap = path >= build->path_cap ? path + 1 : build->path_cap;
    build->order[build->count++] = (uint32_t)edge;
}

static int choose(struct build *build)
{
    uint32_t last = 0, text = 0;

    build->matrix->others = build->matrix->flushes = build->matrix->refused = 0;
    build->order = reallocarray(NULL, build->edge_count + 1, sizeof(*build->order));
    if (build->order == NULL)
        return sl_fail(-ENOMEM, "no memory to sort the edges of a job");
    build->is_one_path = build->is_by_rank = true;
    for (size_t i = 0; i < build->edge_count; i++) {
        const struct sl_job_edge *edge = &build->edges[i];

        build->matrix->flushes += edge->wait_s[SL_JOB_WAIT_FLUSH] > 0;
        if (!is_on_side(build, edge)) {
            build->matrix->others++;
            continue;
        }
        if (!is_usable(edge, build->state)) {
            build->matrix->refused++;
            continue;
        }
        if (edge->path != last) {
            last = edge->path;
            text = path_text(build, last);
        }
        take(build, i, text);
    }
    return 0;
}

/* ---- paths ---- */

struct named {
    const char *string;
    uint32_t text;
};

static int by_string(const void *a, const void *b)
{
    const struct named *x = a, *y = b;

    return strcmp(x->string, y->string);
}

/* Numbers paths in the order of their texts, so that nothing depends on which came first. */
static int number_paths(struct build *build)
{
    struct sl_matrix *matrix = build->matrix;
    struct named *named;

    build->path_of = calloc((size_t)build->path_cap + 1, sizeof(*build->path_of));
    if (build->path_of == NULL)
        return sl_fail(-ENOMEM, "no memory for the paths of a job");
    if (build->is_one_path && build->count > 0) {
        matrix->path_count = 1;
        build->path_of[build->path_cap - 1] = 1;
    }
    for (uint32_t i = 0; i < build->count && !build->is_one_path; i++) {
        uint32_t path = build->edges[build->order[i]].path;
        uint32_t *known = &build->path_of[path < build->path_cap ? path : 0];

        matrix->path_count += *known == 0;
        *known = 1;
    }
    matrix->paths = reallocarray(NULL, (size_t)matrix->path_count + 1, sizeof(*matrix->paths));
    named = reallocarray(NULL, (size_t)matrix->path_count + 1, sizeof(*named));
    if (matrix->paths == NULL || named == NULL) {
        free(named);
        return sl_fail(-ENOMEM, "no memory for the paths of a job");
    }
    for (uint32_t text = 0, at = 0; text < build->path_cap; text++)
        if (build->path_of[text] != 0)
            named[at++] = (struct named){sl_job_string(build->job, text), text};
    qsort(named, matrix->path_count, sizeof(*named), by_string);
    for (uint32_t i = 0; i < matrix->path_count; i++) {
        matrix->paths[i] = named[i].text;
        build->path_of[named[i].text] = i;
    }
    free(named);
    return 0;
}

/* ---- the order ---- */

enum key { PATH, DST, SRC };

static uint32_t key_of(const struct build *build, uint32_t edge, enum key key)
{
    const struct sl_job_edge *it = &build->edges[edge];

    switch (key) {
    case PATH: return build->path_of[it->path < build->path_cap ? it->path : 0];
    case DST: return it->dst;
    default: return it->src;
    }
}

static bool is_sorted(const struct build *build)
{
    for (uint32_t i = 1; i < build->count; i++)
        for (int key = SRC; key >= PATH; key--) {
            uint32_t before = key_of(build, build->order[i - 1], key);
            uint32_t now = key_of(build, build->order[i], key);

            if (before > now)
                return false;
            if (before < now)
                break;
        }
    return true;
}

/* Stable. counts: room for as many as there are keys, and one. */
static void sort_by(struct build *build, enum key key, uint32_t *counts, uint32_t keys)
{
    uint32_t *swap = build->order, at = 0;

    memset(counts, 0, ((size_t)keys + 1) * sizeof(*counts));
    for (uint32_t i = 0; i < build->count; i++)
        counts[key_of(build, build->order[i], key)]++;
    for (uint32_t k = 0; k < keys; k++) {
        uint32_t count = counts[k];

        counts[k] = at;
        at += count;
    }
    for (uint32_t i = 0; i < build->count; i++)
        build->spare[counts[key_of(build, build->order[i], key)]++] = build->order[i];
    build->order = build->spare;
    build->spare = swap;
}

static int sort_edges(struct build *build)
{
    uint32_t ranks = build->job->rank_count, paths = build->matrix->path_count;
    uint32_t keys = ranks > paths ? ranks : paths, *counts;

    if (build->is_one_path ? build->is_by_rank : is_sorted(build))
        return 0;
    build->spare = reallocarray(NULL, (size_t)build->count + 1, sizeof(*build->spare));
    counts = reallocarray(NULL, (size_t)keys + 1, sizeof(*counts));
    if (build->spare == NULL || counts == NULL) {
        free(counts);
        return sl_fail(-ENOMEM, "no memory to sort the edges of a job");
    }
    sort_by(build, PATH, counts, paths);
    sort_by(build, DST, counts, ranks);
    sort_by(build, SRC, counts, ranks);
    free(counts);
    return 0;
}

/* Cells of edges in whatever order, which have been sorted. */
static int fill_cells(struct build *build)
{
    int err = sl_matrix_new_cells(build->matrix, build->job->rank_count, build->count);

    if (err != 0)
        return err;
    for (uint32_t i = 0; i < build->count; i++)
        sl_matrix_add_edge(build->matrix, &build->edges[build->order[i]],
                           key_of(build, build->order[i], PATH), build->state);
    sl_matrix_take_logs(build->matrix, 0, build->matrix->count);
    sl_matrix_index_cells(build->matrix);
    return 0;
}

/* ---- edges that lie in order ---- */

#define LOGS 2048 /* cells whose logarithms are taken while they are still in the cache */

/* The next edge that counts, behind the one before it. False: it lies before that one, or it is on
 * another path. */
static bool follows(const struct sl_job_edge *before, const struct sl_job_edge *edge)
{
    return before == NULL ||
           (edge->path == before->path &&
            (before->src < edge->src || (before->src == edge->src && before->dst <= edge->dst)));
}

/* *is_done: they do, and all cells are there. */
static int fill_in_order(struct build *build, bool *is_done)
{
    struct sl_matrix *matrix = build->matrix;
    const struct sl_job_edge *before = NULL;
    uint32_t logs = 0;
    int err = sl_matrix_new_cells(matrix, build->job->rank_count, build->edge_count);

    *is_done = false;
    for (size_t i = 0; i < build->edge_count && err == 0; i++) {
        const struct sl_job_edge *edge = &build->edges[i];

        matrix->flushes += edge->wait_s[SL_JOB_WAIT_FLUSH] > 0;
        if (!is_on_side(build, edge)) {
            matrix->others++;
            continue;
        }
        if (!is_usable(edge, build->state)) {
            matrix->refused++;
            continue;
        }
        if (!follows(before, edge)) {
            sl_matrix_free_cells(matrix);
            return 0;
        }
        sl_matrix_add_edge(matrix, edge, 0, build->state);
        before = edge;
        if (matrix->count > logs + LOGS) { /* the last one may get more */
            sl_matrix_take_logs(matrix, logs, matrix->count - 1);
            logs = matrix->count - 1;
        }
    }
    if (err != 0)
        return err;
    sl_matrix_take_logs(matrix, logs, matrix->count);
    sl_matrix_index_cells(matrix);
    matrix->path_count = before != NULL;
    matrix->paths = calloc(1, sizeof(*matrix->paths));
    if (matrix->paths == NULL)
        return sl_fail(-ENOMEM, "no memory for the paths of a job");
    if (before != NULL)
        matrix->paths[0] = path_text(build, before->path);
    *is_done = true;
    return 0;
}

int sl_matrix_build(const struct sl_job *job, enum sl_job_wait state, enum sl_matrix_side side,
                    struct sl_matrix *matrix)
{
    struct build build = {.job = job,
                          .state = state,
                          .side = side,
                          .edges = job->edges,
                          .edge_count = job->edge_count,
                          .matrix = matrix};
    struct sl_job_edge *made = NULL;
    bool is_done = false;
    int err = 0;

    *matrix = (struct sl_matrix){.count = 0};
    if (job->edge_count == 0 && state == SL_JOB_WAIT_WIRE) {
        err = sl_matrix_edges_of_ops(job, &made, &build.edge_count);
        build.edges = made;
    }
    if (err == 0 && build.edge_count >= UINT32_MAX / 2)
        err = sl_fail(-ENOMEM, "no memory for %zu edges of a job", build.edge_count);
    if (err == 0)
        err = fill_in_order(&build, &is_done);
    if (err == 0 && !is_done)
        err = choose(&build);
    if (err == 0 && !is_done)
        err = number_paths(&build);
    if (err == 0 && !is_done)
        err = sort_edges(&build);
    if (err == 0 && !is_done)
        err = fill_cells(&build);
    free(build.order);
    free(build.spare);
    free(build.path_of);
    free(made);
    return err;
}

void sl_matrix_fini(struct sl_matrix *matrix)
{
    sl_matrix_free_cells(matrix);
    free(matrix->paths);
    *matrix = (struct sl_matrix){.count = 0};
}

const struct sl_matrix_cell *sl_matrix_at(const struct sl_matrix *matrix, uint32_t src,
                                          uint32_t dst, uint32_t path)
{
    uint32_t low, high;

    if (src >= matrix->rank_count)
        return NULL;
    low = matrix->first[src];
    high = matrix->first[src + 1];
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const struct sl_matrix_cell *cell = &matrix->cells[middle];

        if (cell->dst < dst || (cell->dst == dst && cell->path < path))
            low = middle + 1;
        else
            high = middle;
    }
    if (low >= matrix->first[src + 1] || matrix->cells[low].dst != dst ||
        matrix->cells[low].path != path)
        return NULL;
    return &matrix->cells[low];
}
