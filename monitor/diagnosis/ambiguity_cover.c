/* SPDX-License-Identifier: Apache-2.0 */
/* The fewest candidates that cover all slow cells, and what could stand in the place of each. */
#include "core/err.h"
#include "monitor/diagnosis/ambiguity.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define EXACT 64      /* cells and classes of a component that is searched through */
#define DEEPEST 8     /* faults of it */
#define BUDGET 200000 /* steps of the search */
#define NOT_LIVE UINT32_MAX

/* Candidates that cover the same live cells are one class. */
struct class
{
    uint32_t candidate, count; /* the first one; how many */
    uint32_t first, len;       /* its live cells: cells[first] to cells[first + len] */
    uint64_t hash;
    uint32_t component;
};

struct cover {
    struct sl_ambiguity *out;
    uint32_t cell_count; /* live: slow, and covered by a strong candidate */
    uint32_t *cells;     /* of classes: live cells */
    struct class *classes;
    uint32_t class_count;
    uint32_t *class_of;             /* by candidate, or NOT_LIVE */
    uint32_t *of_cell, *of_first;   /* classes of each live cell */
    uint32_t *component;            /* by live cell: a root */
    uint32_t *left;                 /* by class: cells that nobody covers yet */
    uint8_t *covers;                /* by live cell: how many chosen ones cover it, up to 2 */
    uint32_t *chosen, chosen_count; /* classes */
};

static int no_memory(void)
{
    return sl_fail(-ENOMEM, "no memory to tell slow parts of the network apart");
}

static uint64_t mix(uint64_t value)
{
    value = (value + 1) * 0x9e3779b97f4a7c15u;
    value = (value ^ value >> 31) * 0xbf58476d1ce4e5b9u;
    return value ^ value >> 29;
}

/* ---- live cells ---- */

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

/* Those of strong candidates, sorted, once each; *count of them. NULL without memory. */
static uint32_t *list_live(const struct sl_ambiguity *out, uint32_t *count)
{
    size_t room = 0;
    uint32_t *list, kept = 0;

    for (uint32_t i = 0; i < out->candidate_count; i++)
        room += out->candidates[i].is_strong ? out->candidates[i].hot : 0;
    list = reallocarray(NULL, room + 1, sizeof(*list));
    if (list == NULL)
        return NULL;
    room = 0;
    for (uint32_t i = 0; i < out->candidate_count; i++) {
        const struct sl_candidate *it = &out->candidates[i];

        if (!it->is_strong)
            continue;
        memcpy(list + room, out->slow + it->first, it->hot * sizeof(*list));
        room += it->hot;
    }
    qsort(list, room, sizeof(*list), by_number);
    for (size_t i = 0; i < room; i++)
        if (kept == 0 || list[kept - 1] != list[i])
            list[kept++] = list[i];
    *count = kept;
    return list;
}

/* ---- classes ---- */

static int by_kind(const void *a, const void *b)
{
    const struct sl_candidate *x = a, *y = b;
    double more = sl_element_prior(&y->element) - sl_element_prior(&x->element);

    if (more != 0)
        return more < 0 ? -1 : 1;
    if (x->element.kind != y->element.kind)
        return x->element.kind < y->element.kind ? -1 : 1;
    if (x->element.a != y->element.a)
        return x->element.a < y->element.a ? -1 : 1;
    if (x->element.b != y->element.b)
        return x->element.b < y->element.b ? -1 : 1;
    return x->element.path < y->element.path ? -1 : x->element.path > y->element.path;
}

struct keyed {
    uint64_t hash;
    uint32_t len, candidate;
};

static int by_set(const void *a, const void *b)
{
    const struct keyed *x = a, *y = b;

    if (x->hash != y->hash)
        return x->hash < y->hash ? -1 : 1;
    if (x->len != y->len)
        return x->len < y->len ? -1 : 1;
    return x->candidate < y->candidate ? -1 : x->candidate > y->candidate;
}

/* Live cells of candidates replace their numbers; others become NOT_LIVE and go. */
static uint32_t take_live(struct cover *cover, const uint32_t *live, uint32_t candidate,
                          uint32_t *cells, uint64_t *hash)
{
    const struct sl_candidate *it = &cover->out->candidates[candidate];
    uint32_t len = 0;

    *hash = 0;
    for (uint32_t i = 0; i < it->hot; i++) {
        uint32_t cell = cover->out->slow[it->first + i];
        const uint32_t *found = bsearch(&cell, live, cover->cell_count, sizeof(*live), by_number);

        if (found == NULL)
            continue;
        cells[len++] = (uint32_t)(found - live);
        *hash += mix((uint64_t)(found - live));
    }
    return len;
}

static int by_candidate(const void *a, const void *b)
{
    const struct class *x = a, *y = b;

    return x->candidate < y->candidate ? -1 : x->candidate > y->candidate;
}

/* In the order of their first candidates. */
static void sort_classes(struct cover *cover)
{
    for (uint32_t c = 0; c < cover->class_count; c++)
        cover->classes[c].component = c; /* its number before */
    qsort(cover->classes, cover->class_count, sizeof(*cover->classes), by_candidate);
    for (uint32_t c = 0; c < cover->class_count; c++)
        cover->left[cover->classes[c].component] = c;
    for (uint32_t i = 0; i < cover->out->candidate_count; i++)
        if (cover->class_of[i] != NOT_LIVE)
            cover->class_of[i] = cover->left[cover->class_of[i]];
}

/* Candidates lie by prior: the first of a class is its likeliest. */
static int make_classes(struct cover *cover, const uint32_t *live)
{
    uint32_t count = cover->out->candidate_count, at = 0, keyed_count = 0;
    struct keyed *keyed = reallocarray(NULL, (size_t)count + 1, sizeof(*keyed));
    uint32_t *begin = reallocarray(NULL, (size_t)count + 1, sizeof(*begin));

    if (keyed == NULL || begin == NULL) {
        free(keyed);
        free(begin);
        return no_memory();
    }
    for (uint32_t i = 0; i < count; i++) {
        uint64_t hash;
        uint32_t len = take_live(cover, live, i, cover->cells + at, &hash);

        begin[i] = at;
        at += len;
        cover->class_of[i] = NOT_LIVE;
        if (len > 0)
            keyed[keyed_count++] = (struct keyed){hash, len, i};
    }
    qsort(keyed, keyed_count, sizeof(*keyed), by_set);
    for (uint32_t i = 0; i < keyed_count; i++) {
        if (i == 0 || keyed[i].hash != keyed[i - 1].hash || keyed[i].len != keyed[i - 1].len)
            cover->classes[cover->class_count++] =
                (struct class){.candidate = keyed[i].candidate,
                               .first = begin[keyed[i].candidate],
                               .len = keyed[i].len,
                               .hash = keyed[i].hash};
        cover->classes[cover->class_count - 1].count++;
        cover->class_of[keyed[i].candidate] = cover->class_count - 1;
    }
    free(keyed);
    free(begin);
    sort_classes(cover);
    return 0;
}

static int index_cells(struct cover *cover)
{
    size_t pairs = 0;
    uint32_t at = 0;

    for (uint32_t c = 0; c < cover->class_count; c++)
        pairs += cover->classes[c].len;
    cover->of_first = calloc((size_t)cover->cell_count + 2, sizeof(*cover->of_first));
    cover->of_cell = reallocarray(NULL, pairs + 1, sizeof(*cover->of_cell));
    if (cover->of_first == NULL || cover->of_cell == NULL)
        return no_memory();
    for (uint32_t c = 0; c < cover->class_count; c++)
        for (uint32_t i = 0; i < cover->classes[c].len; i++)
            cover->of_first[cover->cells[cover->classes[c].first + i]]++;
    for (uint32_t cell = 0; cell <= cover->cell_count; cell++) {
        uint32_t count = cover->of_first[cell];

        cover->of_first[cell] = at;
        at += count;
    }
    for (uint32_t c = 0; c < cover->class_count; c++)
        for (uint32_t i = 0; i < cover->classes[c].len; i++)
            cover->of_cell[cover->of_first[cover->cells[cover->classes[c].first + i]]++] = c;
    memmove(cover->of_first + 1, cover->of_first, cover->cell_count * sizeof(*cover->of_first));
    cover->of_first[0] = 0;
    return 0;
}

/* ---- components ---- */

static uint32_t root_of(uint32_t *component, uint32_t cell)
{
    while (component[cell] != cell) {
        component[cell] = component[component[cell]];
        cell = component[cell];
    }
    return cell;
}

static void find_components(struct cover *cover)
{
    for (uint32_t cell = 0; cell < cover->cell_count; cell++)
        cover->component[cell] = cell;
    for (uint32_t c = 0; c < cover->class_count; c++) {
        const uint32_t *cells = cover->cells + cover->classes[c].first;

        for (uint32_t i = 1; i < cover->classes[c].len; i++) {
            uint32_t a = root_of(cover->component, cells[0]);
            uint32_t b = root_of(cover->component, cells[i]);

            /* The lower one: components lie in the order of the cells. */
            if (a < b)
                cover->component[b] = a;
            else
                cover->component[a] = b;
        }
    }
    for (uint32_t c = 0; c < cover->class_count; c++)
        cover->classes[c].component =
            root_of(cover->component, cover->cells[cover->classes[c].first]);
}

/* ---- all smallest covers of a small component ---- */

struct search {
    uint64_t sets[EXACT]; /* of classes: cells as bits */
    uint32_t classes[EXACT];
    double priors[EXACT];
    uint32_t class_count;
    uint64_t all;
    unsigned budget;
    unsigned depth;
    uint32_t path[DEEPEST], best[DEEPEST]; /* of the component's classes */
    double best_prior;
    uint64_t used; /* classes of any smallest cover */
};

static void take_cover(struct search *search)
{
    double prior = 0;

    for (unsigned i = 0; i < search->depth; i++) {
        prior += search->priors[search->path[i]];
        search->used |= (uint64_t)1 << search->path[i];
    }
    if (prior > search->best_prior) {
        search->best_prior = prior;
        memcpy(search->best, search->path, sizeof(search->best));
    }
}

/* Each cover covers the cell that the fewest classes do: by one of them. */
static void search_on(struct search *search, uint64_t covered, unsigned at)
{
    unsigned fewest = EXACT + 1;
    uint64_t bit = 0;

    if (covered == search->all) {
        if (at == search->depth)
            take_cover(search);
        return;
    }
    if (at == search->depth || search->budget == 0)
        return;
    search->budget--;
    for (uint64_t open = search->all & ~covered; open != 0; open &= open - 1) {
        uint64_t lowest = open & -open;
        unsigned count = 0;

        for (uint32_t c = 0; c < search->class_count; c++)
            count += (search->sets[c] & lowest) != 0;
        if (count < fewest) {
            fewest = count;
            bit = lowest;
        }
    }
    for (uint32_t c = 0; c < search->class_count; c++)
        if ((search->sets[c] & bit) != 0) {
            search->path[at] = c;
            search_on(search, covered | search->sets[c], at + 1);
        }
}

/* False: it is too large, or takes too many steps. */
static bool fill_search(const struct cover *cover, uint32_t root, struct search *search)
{
    uint32_t numbers[EXACT], count = 0;

    *search = (struct search){.best_prior = -1};
    for (uint32_t cell = root; cell < cover->cell_count; cell++) {
        if (cover->component[cell] != root)
            continue;
        if (count == EXACT)
            return false;
        numbers[count++] = cell;
    }
    search->all = count == 64 ? UINT64_MAX : ((uint64_t)1 << count) - 1;
    for (uint32_t c = 0; c < cover->class_count; c++) {
        const struct class *it = &cover->classes[c];

        if (it->component != root)
            continue;
        if (search->class_count == EXACT)
            return false;
        for (uint32_t i = 0; i < it->len; i++) {
            const uint32_t *at =
                bsearch(&cover->cells[it->first + i], numbers, count, sizeof(*numbers), by_number);

            search->sets[search->class_count] |= (uint64_t)1 << (at - numbers);
        }
        search->priors[search->class_count] =
            sl_element_prior(&cover->out->candidates[it->candidate].element);
        search->classes[search->class_count++] = c;
    }
    return true;
}

static bool search_through(const struct cover *cover, uint32_t root, struct search *search)
{
    if (!fill_search(cover, root, search))
        return false;
    search->budget = BUDGET;
    for (search->depth = 1; search->depth <= DEEPEST; search->depth++) {
        search_on(search, 0, 0);
        if (search->budget == 0)
            return false;
        if (search->used != 0)
            return true;
    }
    return false;
}

/* ---- a cover of a large one ---- */

static void choose(struct cover *cover, uint32_t chosen)
{
    const struct class *it = &cover->classes[chosen];

    cover->chosen[cover->chosen_count++] = chosen;
    for (uint32_t i = 0; i < it->len; i++) {
        uint32_t cell = cover->cells[it->first + i];

        if (cover->covers[cell]++ > 0) {
            cover->covers[cell] = 2;
            continue;
        }
        for (uint32_t k = cover->of_first[cell]; k < cover->of_first[cell + 1]; k++)
            cover->left[cover->of_cell[k]]--;
    }
}

static void choose_greedily(struct cover *cover, uint32_t root)
{
    while (cover->chosen_count < SL_COMM_FAULTS_MAX) {
        uint32_t best = NOT_LIVE;

        for (uint32_t c = 0; c < cover->class_count; c++)
            if (cover->classes[c].component == root && cover->left[c] > 0 &&
                (best == NOT_LIVE || cover->left[c] > cover->left[best] ||
                 (cover->left[c] == cover->left[best] &&
                  cover->classes[c].candidate < cover->classes[best].candidate)))
                best = c;
        if (best == NOT_LIVE)
            return;
        choose(cover, best);
    }
    for (uint32_t c = 0; c < cover->class_count; c++)
        cover->out->has_more |= cover->left[c] > 0 && cover->classes[c].component == root;
}

/* ---- the set of each fault ---- */

static int add_class(const struct cover *cover, struct sl_comm_fault *fault, uint32_t class)
{
    const struct class *it = &cover->classes[class];
    uint32_t *more =
        reallocarray(fault->set, (size_t)fault->set_count + it->count, sizeof(*fault->set));

    if (more == NULL)
        return no_memory();
    fault->set = more;
    for (uint32_t i = it->candidate, left = it->count; left > 0; i++)
        if (cover->class_of[i] == class) {
            fault->set[fault->set_count++] = i;
            left--;
        }
    return 0;
}

/* Does the class cover all that the chosen one alone covers? */
static bool stands_in(const struct cover *cover, uint32_t class, uint32_t chosen)
{
    const struct class *it = &cover->classes[chosen];
    uint32_t alone = 0, common = 0;

    for (uint32_t i = 0; i < it->len; i++)
        alone += cover->covers[cover->cells[it->first + i]] == 1;
    it = &cover->classes[class];
    for (uint32_t i = 0; i < it->len; i++) {
        uint32_t cell = cover->cells[it->first + i];
        bool is_of_chosen = false;

        if (cover->covers[cell] != 1)
            continue;
        for (uint32_t k = cover->of_first[cell]; k < cover->of_first[cell + 1]; k++)
            is_of_chosen = is_of_chosen || cover->of_cell[k] == chosen;
        common += is_of_chosen;
    }
    return alone > 0 && common == alone;
}

/* A class of some smallest cover that can replace no single chosen one goes to that with which it
 * has a cell in common. */
static bool has_common(const struct cover *cover, uint32_t class, uint32_t chosen)
{
    const struct class *it = &cover->classes[class];

    for (uint32_t i = 0; i < it->len; i++) {
        uint32_t cell = cover->cells[it->first + i];

        for (uint32_t k = cover->of_first[cell]; k < cover->of_first[cell + 1]; k++)
            if (cover->of_cell[k] == chosen)
                return true;
    }
    return false;
}

static bool is_chosen(const struct cover *cover, uint32_t class)
{
    for (uint32_t i = 0; i < cover->chosen_count; i++)
        if (cover->chosen[i] == class)
            return true;
    return false;
}

/* used: by the search's class, those of smallest covers; NULL: any that stands in. */
static int add_faults(struct cover *cover, uint32_t root, uint32_t from,
                      const struct search *search)
{
    for (uint32_t i = from; i < cover->chosen_count; i++) {
        struct sl_comm_fault *fault = &cover->out->faults[cover->out->fault_count++];
        int err;

        *fault = (struct sl_comm_fault){.set = NULL};
        err = add_class(cover, fault, cover->chosen[i]);
        for (uint32_t c = 0; err == 0 && c < cover->class_count; c++)
            if (cover->classes[c].component == root && !is_chosen(cover, c) &&
                stands_in(cover, c, cover->chosen[i]))
                err = add_class(cover, fault, c);
        if (err != 0)
            return err;
    }
    for (uint32_t k = 0; search != NULL && k < search->class_count; k++) {
        uint32_t class = search->classes[k], home = NOT_LIVE;
        bool is_told = (search->used >> k & 1) == 0 || is_chosen(cover, class);

        for (uint32_t i = from; i < cover->chosen_count && !is_told; i++) {
            is_told = stands_in(cover, class, cover->chosen[i]);
            if (home == NOT_LIVE && has_common(cover, class, cover->chosen[i]))
                home = i;
        }
        if (!is_told && home != NOT_LIVE &&
            add_class(cover,
                      &cover->out->faults[cover->out->fault_count - (cover->chosen_count - home)],
                      class) != 0)
            return -ENOMEM;
    }
    return 0;
}

static int cover_component(struct cover *cover, uint32_t root)
{
    uint32_t from = cover->chosen_count;
    struct search search;
    bool is_exact = search_through(cover, root, &search);

    if (is_exact && from + search.depth > SL_COMM_FAULTS_MAX) {
        cover->out->has_more = true;
        return 0;
    }
    if (is_exact)
        for (unsigned i = 0; i < search.depth; i++)
            choose(cover, search.classes[search.best[i]]);
    else
        choose_greedily(cover, root);
    return add_faults(cover, root, from, is_exact ? &search : NULL);
}

static int allocate(struct cover *cover)
{
    size_t candidates = (size_t)cover->out->candidate_count + 1, cells = 0;

    for (uint32_t i = 0; i < cover->out->candidate_count; i++)
        cells += cover->out->candidates[i].hot;
    cover->cells = reallocarray(NULL, cells + 1, sizeof(*cover->cells));
    cover->classes = calloc(candidates, sizeof(*cover->classes));
    cover->class_of = calloc(candidates, sizeof(*cover->class_of));
    cover->component = calloc((size_t)cover->cell_count + 1, sizeof(*cover->component));
    cover->covers = calloc((size_t)cover->cell_count + 1, sizeof(*cover->covers));
    cover->left = calloc(candidates, sizeof(*cover->left));
    cover->chosen = calloc(SL_COMM_FAULTS_MAX + DEEPEST, sizeof(*cover->chosen));
    return cover->cells != NULL && cover->classes != NULL && cover->class_of != NULL &&
                   cover->component != NULL && cover->covers != NULL && cover->left != NULL &&
                   cover->chosen != NULL
               ? 0
               : no_memory();
}

static int cover_all(struct cover *cover, const uint32_t *live)
{
    int err = make_classes(cover, live);

    if (err == 0)
        err = index_cells(cover);
    if (err != 0)
        return err;
    find_components(cover);
    for (uint32_t c = 0; c < cover->class_count; c++)
        cover->left[c] = cover->classes[c].len;
    for (uint32_t cell = 0; cell < cover->cell_count && err == 0; cell++) {
        if (root_of(cover->component, cell) != cell)
            continue;
        cover->out->has_more = cover->out->has_more || cover->chosen_count == SL_COMM_FAULTS_MAX;
        if (cover->chosen_count < SL_COMM_FAULTS_MAX)
            err = cover_component(cover, cell);
    }
    return err;
}

int sl_ambiguity_cover(struct sl_ambiguity *ambiguity)
{
    struct cover cover = {.out = ambiguity};
    uint32_t *live;
    int err;

    qsort(ambiguity->candidates, ambiguity->candidate_count, sizeof(*ambiguity->candidates),
          by_kind);
    live = list_live(ambiguity, &cover.cell_count);
    if (live == NULL)
        return no_memory();
    err = allocate(&cover);
    if (err == 0)
        err = cover_all(&cover, live);
    free(live);
    free(cover.cells);
    free(cover.classes);
    free(cover.class_of);
    free(cover.component);
    free(cover.covers);
    free(cover.left);
    free(cover.chosen);
    free(cover.of_cell);
    free(cover.of_first);
    return err;
}
