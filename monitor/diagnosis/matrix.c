/* SPDX-License-Identifier: Apache-2.0 */
/* Edges into cells: three counting sorts, where they do not lie in order already. */
#include "monitor/diagnosis/matrix.h"
#include "core/err.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

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

    return edge->src != edge->dst && edge->bytes > 0 && isfinite(seconds) && seconds > 0;
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

    if (build->edge_count >= UINT32_MAX / 2)
        return sl_fail(-ENOMEM, "no memory for %zu edges of a job", build->edge_count);
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

/* ---- cells ---- */

static void fill_cells(struct build *build)
{
    struct sl_matrix *matrix = build->matrix;

    for (uint32_t i = 0; i < build->count; i++) {
        const struct sl_job_edge *edge = &build->edges[build->order[i]];
        uint32_t path = key_of(build, build->order[i], PATH);
        struct sl_matrix_cell *cell = matrix->count > 0 ? &matrix->cells[matrix->count - 1] : NULL;

        if (cell == NULL || cell->src != edge->src || cell->dst != edge->dst ||
            cell->path != path) {
            cell = &matrix->cells[matrix->count++];
            *cell = (struct sl_matrix_cell){.src = edge->src, .dst = edge->dst, .path = path};
            matrix->dst[matrix->count - 1] = edge->dst;
            matrix->first[edge->src + 1]++;
            matrix->column_first[edge->dst + 1]++;
        }
        cell->messages += (double)edge->messages;
        cell->bytes += (double)edge->bytes;
        cell->lost += (double)edge->lost;
        cell->seconds += edge->wait_s[build->state];
    }
}

/* A million cells are 12,000 pages: the kernel may take large ones. */
static void advise(void *cells, size_t len)
{
    uintptr_t page = 4096, begin = ((uintptr_t)cells + page - 1) & ~(page - 1);

    if (len > (size_t)8 << 20)
        (void)madvise((void *)begin, ((uintptr_t)cells + len - begin) & ~(page - 1), MADV_HUGEPAGE);
}

/* Where rows and columns begin: their lengths were counted. */
static void index_cells(struct sl_matrix *matrix)
{
    for (uint32_t r = 0; r < matrix->rank_count; r++) {
        matrix->first[r + 1] += matrix->first[r];
        matrix->column_first[r + 1] += matrix->column_first[r];
    }
    for (uint32_t i = 0; i < matrix->count; i++)
        matrix->column[matrix->column_first[matrix->dst[i]]++] = i;
    memmove(matrix->column_first + 1, matrix->column_first,
            matrix->rank_count * sizeof(*matrix->column_first));
    matrix->column_first[0] = 0;
}

static int make_cells(struct build *build)
{
    struct sl_matrix *matrix = build->matrix;
    size_t ranks = build->job->rank_count;

    matrix->rank_count = build->job->rank_count;
    matrix->cells = reallocarray(NULL, (size_t)build->count + 1, sizeof(*matrix->cells));
    matrix->dst = reallocarray(NULL, (size_t)build->count + 1, sizeof(*matrix->dst));
    matrix->first = calloc(ranks + 2, sizeof(*matrix->first));
    matrix->column_first = calloc(ranks + 2, sizeof(*matrix->column_first));
    matrix->column = reallocarray(NULL, (size_t)build->count + 1, sizeof(*matrix->column));
    if (matrix->cells == NULL || matrix->dst == NULL || matrix->first == NULL ||
        matrix->column_first == NULL || matrix->column == NULL)
        return sl_fail(-ENOMEM, "no memory for a matrix of %u cells", build->count);
    advise(matrix->cells, (size_t)build->count * sizeof(*matrix->cells));
    fill_cells(build);
    index_cells(matrix);
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
    int err = 0;

    *matrix = (struct sl_matrix){.count = 0};
    if (job->edge_count == 0 && state == SL_JOB_WAIT_WIRE) {
        err = sl_matrix_edges_of_ops(job, &made, &build.edge_count);
        build.edges = made;
    }
    if (err == 0)
        err = choose(&build);
    if (err == 0)
        err = number_paths(&build);
    if (err == 0)
        err = sort_edges(&build);
    if (err == 0)
        err = make_cells(&build);
    free(build.order);
    free(build.spare);
    free(build.path_of);
    free(made);
    return err;
}

void sl_matrix_fini(struct sl_matrix *matrix)
{
    free(matrix->cells);
    free(matrix->dst);
    free(matrix->first);
    free(matrix->column);
    free(matrix->column_first);
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
