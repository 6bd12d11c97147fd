/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the graph of the hang rules (hang_wait.c), whose nodes are ranks and what stands for several
 * of them, to boxes of ranks: backwards from the accused ones, breadth first.
 */
#include "monitor/diagnosis/wait_graph.h"
#include "core/err.h"
#include "monitor/diagnosis/hang_inside.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define ALONE_MAX 24 /* ranks that have a box each */

struct maker {
    struct sl_hang hang;
    uint32_t *first, *from;  /* edges backwards: of node n, from[first[n]] ... */
    uint32_t *depth;         /* by rank; UINT32_MAX: no way leads to an accused one */
    uint32_t *next;          /* by rank: for whom it waits; SL_JOB_NONE: the program */
    uint32_t *verdict;       /* by rank: which one accuses it, or UINT32_MAX */
    bool *is_seen;           /* by node */
    uint32_t *queue;         /* ranks, then nodes on the way to ranks */
    uint32_t *box;           /* by rank */
    uint32_t ranks, program; /* program: which verdict accuses it, or UINT32_MAX */
};

/* ---- backwards ---- */

static int turn_edges(struct maker *maker)
{
    const struct sl_graph *graph = &maker->hang.graph;
    uint32_t at = 0;

    maker->first = calloc((size_t)graph->node_count + 2, sizeof(*maker->first));
    maker->from = calloc((size_t)graph->edge_count + 1, sizeof(*maker->from));
    if (maker->first == NULL || maker->from == NULL)
        return -ENOMEM;
    for (uint32_t n = 0; n < graph->node_count; n++)
        for (uint32_t e = graph->first[n]; e != 0; e = graph->edges[e - 1].next)
            maker->first[graph->edges[e - 1].to + 2]++;
    for (uint32_t n = 0; n <= graph->node_count; n++) {
        at += maker->first[n + 1];
        maker->first[n + 1] = at;
    }
    for (uint32_t n = 0; n < graph->node_count; n++)
        for (uint32_t e = graph->first[n]; e != 0; e = graph->edges[e - 1].next)
            maker->from[maker->first[graph->edges[e - 1].to + 1]++] = n;
    return 0;
}

/* All ranks that wait for the node, by way of nodes that are no ranks. */
static void go_back(struct maker *maker, uint32_t node, uint32_t origin, uint32_t depth,
                    uint32_t *tail)
{
    uint32_t *stack = maker->queue + maker->ranks, top = 0;

    stack[top++] = node;
    while (top > 0) {
        uint32_t at = stack[--top];

        for (uint32_t i = maker->first[at]; i < maker->first[at + 1]; i++) {
            uint32_t from = maker->from[i];

            if (maker->is_seen[from])
                continue;
            maker->is_seen[from] = true;
            if (from >= maker->ranks) {
                stack[top++] = from;
                continue;
            }
            maker->depth[from] = depth;
            maker->next[from] = origin;
            maker->queue[(*tail)++] = from;
        }
    }
}

static void find_ways(struct maker *maker)
{
    uint32_t head = 0, tail = 0;

    for (uint32_t r = 0; r < maker->ranks; r++) {
        maker->depth[r] = maker->verdict[r] != UINT32_MAX ? 0 : UINT32_MAX;
        maker->next[r] = SL_JOB_NONE;
        if (maker->verdict[r] == UINT32_MAX)
            continue;
        maker->is_seen[r] = true;
        maker->queue[tail++] = r;
    }
    if (maker->program != UINT32_MAX)
        go_back(maker, sl_hang_program_node(&maker->hang), SL_JOB_NONE, 1, &tail);
    for (; head < tail; head++)
        go_back(maker, maker->queue[head], maker->queue[head], maker->depth[maker->queue[head]] + 1,
                &tail);
}

/* ---- who is accused ---- */

static void mark(struct maker *maker, uint32_t rank, uint32_t verdict)
{
    if (rank < maker->ranks && maker->verdict[rank] == UINT32_MAX)
        maker->verdict[rank] = verdict;
}

static void mark_object(struct maker *maker, const struct sl_object *object, uint32_t verdict)
{
    if (object->kind == SL_OBJECT_RANK || object->kind == SL_OBJECT_NIC ||
        object->kind == SL_OBJECT_LINK)
        mark(maker, object->a, verdict);
    if (object->kind == SL_OBJECT_LINK)
        mark(maker, object->b, verdict);
    for (uint32_t r = 0; object->kind == SL_OBJECT_HOST && r < maker->ranks; r++)
        if (maker->hang.job->ranks[r].host == object->name)
            mark(maker, r, verdict);
}

static void mark_accused(struct maker *maker)
{
    const struct sl_verdicts *verdicts = maker->hang.verdicts;

    maker->program = UINT32_MAX;
    for (uint32_t r = 0; r < maker->ranks; r++)
        maker->verdict[r] = UINT32_MAX;
    for (uint32_t i = 0; i < verdicts->count; i++) {
        const struct sl_verdict *it = &verdicts->list[i];

        if (it->cls == SL_VERDICT_NOT_HUNG)
            continue;
        if (it->cls == SL_VERDICT_MISMATCH) {
            maker->program = maker->program != UINT32_MAX ? maker->program : i;
            continue;
        }
        if (it->accused.kind == SL_OBJECT_PROGRAM) /* a deadlock: its cycle */
            mark(maker, it->accused.a, i);
        mark_object(maker, &it->accused, i);
        for (uint32_t k = 0; k < it->other_count; k++)
            mark_object(maker, &it->others[k], i);
    }
}

/* ---- boxes ---- */

/* What makes ranks one box, coarser with each level. */
struct key {
    uint32_t role, depth, verdict, rank;
    char what[160];
};

/* "TENSOR" of "TENSOR (63)" and of "tensor_63". */
static void cut_number(char *text)
{
    size_t len = strlen(text);

    while (len > 0 && (strchr(" ()_-0123456789", text[len - 1]) != NULL))
        len--;
    if (len > 0)
        text[len] = '\0';
}

static void say_at(const struct maker *maker, uint32_t rank, unsigned level, char *out, size_t cap)
{
    const struct sl_hang *hang = &maker->hang;
    const struct sl_job_op *op = NULL;
    const struct sl_hang_slot *slot = NULL;
    uint64_t seq = 0;
    uint32_t comm = SL_JOB_NONE;
    const char *kind = "collective";
    char name[120] = "";

    if (hang->index.head[rank] != SL_HANG_NO_OP)
        op = &hang->job->ops[hang->index.head[rank]];
    for (size_t i = hang->index.first_of[rank]; op == NULL && i < hang->index.first_of[rank + 1];
         i++)
        if (hang->index.slots[hang->index.slots_of[i]].has_first && slot == NULL)
            slot = &hang->index.slots[hang->index.slots_of[i]];
    out[0] = '\0';
    if (op == NULL && slot == NULL)
        return;
    comm = op != NULL ? op->comm : slot->comm;
    seq = op != NULL ? op->seq : slot->first;
    if (op != NULL)
        kind = op->kind == SL_JOB_OTHER && op->name != 0 ? sl_job_string(hang->job, op->name)
                                                         : sl_job_kind_name(op->kind);
    if (comm < hang->job->comm_count)
        snprintf(name, sizeof(name), "%s", sl_hang_comm_name(hang, comm));
    if (level >= 3) /* only how far it is from an accused one */
        return;
    if (level >= 2) {
        cut_number(name);
        snprintf(out, cap, "%.40s in %.100s", kind, name);
    } else {
        snprintf(out, cap, "%.40s %" PRIu64 " of %.90s", kind, seq, name);
    }
}

static uint32_t first_of_class(const struct maker *maker, uint32_t verdict)
{
    const struct sl_verdicts *verdicts = maker->hang.verdicts;
    uint32_t i = 0;

    while (verdicts->list[i].cls != verdicts->list[verdict].cls)
        i++;
    return i;
}

static void fill_key(const struct maker *maker, uint32_t rank, unsigned level, bool is_many,
                     struct key *out)
{
    *out = (struct key){.verdict = maker->verdict[rank], .rank = SL_JOB_NONE};
    say_at(maker, rank, level, out->what, sizeof(out->what));
    if (maker->verdict[rank] != UINT32_MAX) {
        out->role = SL_WAIT_ACCUSED;
        if (is_many && maker->hang.verdicts->count > ALONE_MAX)
            out->verdict = first_of_class(maker, out->verdict);
        out->what[0] = '\0';
        out->rank = is_many ? SL_JOB_NONE : rank;
        return;
    }
    out->depth = maker->depth[rank];
    out->role = out->depth != UINT32_MAX                        ? SL_WAIT_WAITS
                : maker->hang.index.head[rank] != SL_HANG_NO_OP ? SL_WAIT_ASTRAY
                                                                : SL_WAIT_FREE;
    if (out->depth == UINT32_MAX)
        out->depth = 0;
    if (out->depth > SL_WAIT_DEPTH_MAX)
        out->depth = SL_WAIT_DEPTH_MAX;
    if (level == 0)
        out->rank = rank;
}

static int by_key(const struct key *a, const struct key *b)
{
    if (a->role != b->role)
        return a->role < b->role ? -1 : 1;
    if (a->depth != b->depth)
        return a->depth < b->depth ? -1 : 1;
    if (a->verdict != b->verdict)
        return a->verdict < b->verdict ? -1 : 1;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    return strcmp(a->what, b->what);
}

struct place {
    struct key key;
    uint32_t rank;
};

static int by_place(const void *a, const void *b)
{
    const struct place *x = *(struct place *const *)a, *y = *(struct place *const *)b;
    int order = by_key(&x->key, &y->key);

    return order != 0 ? order : x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* How many boxes there are of that level. */
static uint32_t sort_places(const struct maker *maker, unsigned level, struct place *places,
                            struct place **order)
{
    uint32_t accused = 0, boxes = 0;

    for (uint32_t r = 0; r < maker->ranks; r++)
        accused += maker->verdict[r] != UINT32_MAX;
    for (uint32_t r = 0; r < maker->ranks; r++) {
        places[r].rank = r;
        fill_key(maker, r, level, accused > ALONE_MAX, &places[r].key);
        order[r] = &places[r];
    }
    qsort(order, maker->ranks, sizeof(*order), by_place);
    for (uint32_t i = 0; i < maker->ranks; i++)
        boxes += i == 0 || by_key(&order[i]->key, &order[i - 1]->key) != 0;
    return boxes;
}

/* Adds "3", "5-8", ... Ranks come ascending. */
static void name_ranks(const struct sl_job *job, struct place *const *order, uint32_t count,
                       struct sl_wait_box *box)
{
    uint32_t shown = 0;
    const char *host;

    if (count == 1) {
        host = sl_job_string(job, job->ranks[order[0]->rank].host);
        snprintf(box->ranks, sizeof(box->ranks), host[0] != '\0' ? "rank %u (%.60s)" : "rank %u",
                 order[0]->rank, host);
        return;
    }
    snprintf(box->ranks, sizeof(box->ranks), "%u ranks: ", count);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t from = order[i]->rank, to = from;

        while (i + 1 < count && order[i + 1]->rank == to + 1)
            to = order[++i]->rank;
        if (++shown > 4) {
            sl_text_add(box->ranks, sizeof(box->ranks), ", ...");
            return;
        }
        sl_text_add(box->ranks, sizeof(box->ranks), to == from ? "%s%u" : "%s%u-%u",
                    shown > 1 ? ", " : "", from, to);
    }
}

static void say_accused(const struct maker *maker, uint32_t verdict, struct sl_wait_box *box)
{
    const struct sl_verdict *it = &maker->hang.verdicts->list[verdict];

    bool is_set = it->other_count > 0 && it->cls != SL_VERDICT_DEADLOCK;

    if (maker->hang.verdicts->count > ALONE_MAX && box->count > 1)
        snprintf(box->what, sizeof(box->what), "%s", sl_verdict_class_name(it->cls));
    else if (is_set)
        snprintf(box->what, sizeof(box->what), "%s, one of %u", sl_verdict_class_name(it->cls),
                 it->other_count + 1);
    else
        snprintf(box->what, sizeof(box->what), "%s, %.0f %%", sl_verdict_class_name(it->cls),
                 it->probability * 100);
}

static void make_boxes(struct maker *maker, struct place **order, struct sl_wait_graph *out)
{
    uint32_t begin = 0;

    if (maker->program != UINT32_MAX) {
        struct sl_wait_box *box = &out->boxes[out->box_count++];

        *box = (struct sl_wait_box){.role = SL_WAIT_ACCUSED, .ranks = "the program"};
        say_accused(maker, maker->program, box);
    }
    for (uint32_t i = 0; i < maker->ranks; i++) {
        struct sl_wait_box *box = &out->boxes[out->box_count];
        const struct key *key = &order[i]->key;

        maker->box[order[i]->rank] = out->box_count;
        if (i + 1 < maker->ranks && by_key(key, &order[i + 1]->key) == 0)
            continue;
        *box = (struct sl_wait_box){
            .role = (enum sl_wait_role)key->role, .depth = key->depth, .count = i + 1 - begin};
        name_ranks(maker->hang.job, order + begin, box->count, box);
        snprintf(box->what, sizeof(box->what), "%s", key->what);
        if (key->role == SL_WAIT_ACCUSED)
            say_accused(maker, key->verdict, box);
        else if (key->role == SL_WAIT_FREE)
            snprintf(box->what, sizeof(box->what), "nothing is pending");
        out->box_count++;
        begin = i + 1;
    }
}

/* ---- arrows ---- */

static int by_arrow(const void *a, const void *b)
{
    const struct sl_wait_arrow *x = a, *y = b;

    if (x->from != y->from)
        return x->from < y->from ? -1 : 1;
    return x->to < y->to ? -1 : x->to > y->to;
}

static uint32_t add_arrow(struct sl_wait_graph *out, uint32_t from, uint32_t to)
{
    if (from != to)
        out->arrows[out->arrow_count++] = (struct sl_wait_arrow){from, to, 1};
    return to;
}

/* Around a deadlock. */
static void add_cycles(struct maker *maker, struct sl_wait_graph *out)
{
    const struct sl_verdicts *verdicts = maker->hang.verdicts;

    for (uint32_t i = 0; i < verdicts->count; i++) {
        const struct sl_verdict *it = &verdicts->list[i];
        uint32_t at = it->accused.a;

        if (it->cls != SL_VERDICT_DEADLOCK || at >= maker->ranks)
            continue;
        at = maker->box[at];
        for (uint32_t k = 0; k < it->other_count; k++)
            if (it->others[k].a < maker->ranks)
                at = add_arrow(out, at, maker->box[it->others[k].a]);
        add_arrow(out, at, maker->box[it->accused.a]);
    }
}

static void make_arrows(struct maker *maker, struct sl_wait_graph *out)
{
    uint32_t kept = 0;

    for (uint32_t r = 0; r < maker->ranks; r++)
        if (maker->depth[r] != UINT32_MAX && maker->depth[r] > 0)
            add_arrow(out, maker->box[r],
                      maker->next[r] != SL_JOB_NONE ? maker->box[maker->next[r]] : 0);
    add_cycles(maker, out);
    qsort(out->arrows, out->arrow_count, sizeof(*out->arrows), by_arrow);
    for (uint32_t i = 0; i < out->arrow_count; i++)
        if (kept > 0 && by_arrow(&out->arrows[kept - 1], &out->arrows[i]) == 0)
            out->arrows[kept - 1].count++;
        else
            out->arrows[kept++] = out->arrows[i];
    out->arrow_count = kept;
}

/* ---- all of it ---- */

static int fill(struct maker *maker, struct sl_wait_graph *out)
{
    struct place *places = calloc((size_t)maker->ranks + 1, sizeof(*places));
    struct place **order = calloc((size_t)maker->ranks + 1, sizeof(*order));
    uint32_t boxes = 0;
    int err = places != NULL && order != NULL ? turn_edges(maker) : -ENOMEM;

    if (err == 0) {
        mark_accused(maker);
        find_ways(maker);
        for (unsigned level = maker->ranks <= ALONE_MAX ? 0 : 1; level < 4; level++) {
            boxes = sort_places(maker, level, places, order);
            if (boxes <= SL_WAIT_BOXES_MAX)
                break;
        }
        out->boxes = calloc((size_t)boxes + 1, sizeof(*out->boxes));
        out->arrows = calloc(2 * (size_t)maker->ranks + 2, sizeof(*out->arrows));
        if (out->boxes == NULL || out->arrows == NULL)
            err = -ENOMEM;
    }
    if (err == 0) {
        make_boxes(maker, order, out);
        make_arrows(maker, out);
    }
    free(places);
    free(order);
    return err;
}

static int make_room(struct maker *maker)
{
    size_t nodes = maker->hang.graph.node_count;

    maker->depth = calloc((size_t)maker->ranks + 1, sizeof(*maker->depth));
    maker->next = calloc((size_t)maker->ranks + 1, sizeof(*maker->next));
    maker->verdict = calloc((size_t)maker->ranks + 1, sizeof(*maker->verdict));
    maker->box = calloc((size_t)maker->ranks + 1, sizeof(*maker->box));
    maker->is_seen = calloc(nodes + 1, sizeof(*maker->is_seen));
    maker->queue = calloc(maker->ranks + nodes + 2, sizeof(*maker->queue));
    return maker->depth != NULL && maker->next != NULL && maker->verdict != NULL &&
                   maker->box != NULL && maker->is_seen != NULL && maker->queue != NULL
               ? 0
               : -ENOMEM;
}

int sl_wait_graph_make(const struct sl_job *job, const struct sl_hang_options *options,
                       struct sl_verdicts *verdicts, struct sl_wait_graph *out)
{
    struct maker maker = {.hang = {.job = job, .options = options, .verdicts = verdicts},
                          .ranks = job->rank_count};
    struct sl_hang_part *parts = NULL;
    int err = sl_hang_open(&maker.hang);

    *out = (struct sl_wait_graph){.rank_count = job->rank_count};
    if (err == 0)
        err = sl_hang_see(&maker.hang);
    if (err == 0)
        parts = calloc((size_t)maker.hang.graph.node_count + 1, sizeof(*parts));
    if (err == 0)
        err = parts == NULL ? -ENOMEM : sl_hang_draw(&maker.hang, parts);
    if (err == 0)
        err = make_room(&maker);
    if (err == 0)
        err = fill(&maker, out);
    sl_hang_close(&maker.hang);
    free(parts);
    free(maker.first);
    free(maker.from);
    free(maker.depth);
    free(maker.next);
    free(maker.verdict);
    free(maker.box);
    free(maker.is_seen);
    free(maker.queue);
    if (err != 0)
        sl_wait_graph_free(out);
    return err == 0 ? 0 : sl_fail(-ENOMEM, "no memory to draw %u ranks", job->rank_count);
}

void sl_wait_graph_free(struct sl_wait_graph *graph)
{
    free(graph->boxes);
    free(graph->arrows);
    *graph = (struct sl_wait_graph){.boxes = NULL};
}
