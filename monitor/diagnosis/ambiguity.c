/* SPDX-License-Identifier: Apache-2.0 */
/* Candidates: parts of which all cells are slow. */
#include "monitor/diagnosis/ambiguity.h"
#include "core/err.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TOLERANT 10 /* of so many cells one may be quick */

/* How many cells each part covers. */
struct totals {
    uint32_t *nic_tx, *nic_rx;                    /* by port */
    uint32_t *out[SL_FAMILIES], *in[SL_FAMILIES]; /* by group: what crosses its border */
    uint32_t *any[SL_FAMILIES];                   /* all that touches it */
    uint32_t *senders, *receivers, *ranks;        /* by host: ranks that have cells */
};

struct find {
    const struct sl_places *places;
    const struct sl_matrix *matrix;
    const uint8_t *hot;
    struct sl_ambiguity *out;
    uint32_t *table; /* candidates by hash, + 1 */
    size_t table_len;
    uint32_t candidate_cap;
    uint32_t *pairs; /* candidate and cell in turn, as they were found */
    size_t pair_count, pair_cap;
    struct totals totals;
};

static int no_memory(void)
{
    return sl_fail(-ENOMEM, "no memory to tell slow parts of the network apart");
}

/* ---- candidates by element ---- */

static size_t hash_of(const struct sl_element *element)
{
    uint64_t hash = (uint64_t)element->a << 32 | element->b;

    hash ^= ((uint64_t)element->path << 8 | element->kind) * 0x9e3779b97f4a7c15u;
    hash = (hash ^ hash >> 29) * 0xbf58476d1ce4e5b9u;
    return (size_t)(hash ^ hash >> 32);
}

static int grow_table(struct find *find)
{
    size_t len = find->table_len == 0 ? 256 : find->table_len * 2;
    uint32_t *table = calloc(len, sizeof(*table));

    if (table == NULL)
        return no_memory();
    for (uint32_t i = 0; i < find->out->candidate_count; i++) {
        size_t at = hash_of(&find->out->candidates[i].element) & (len - 1);

        while (table[at] != 0)
            at = (at + 1) & (len - 1);
        table[at] = i + 1;
    }
    free(find->table);
    find->table = table;
    find->table_len = len;
    return 0;
}

/* *number: the element's candidate, which is made where it is not there. */
static int look_up(struct find *find, const struct sl_element *element, uint32_t *number)
{
    struct sl_ambiguity *out = find->out;
    size_t at;

    if (out->candidate_count >= find->table_len / 2 && grow_table(find) != 0)
        return -ENOMEM;
    at = hash_of(element) & (find->table_len - 1);
    for (; find->table[at] != 0; at = (at + 1) & (find->table_len - 1)) {
        *number = find->table[at] - 1;
        if (sl_element_is(&out->candidates[*number].element, element))
            return 0;
    }
    if (out->candidate_count == find->candidate_cap) {
        uint32_t cap = find->candidate_cap == 0 ? 256 : find->candidate_cap * 2;
        void *more = reallocarray(out->candidates, cap, sizeof(*out->candidates));

        if (more == NULL)
            return no_memory();
        out->candidates = more;
        find->candidate_cap = cap;
    }
    *number = out->candidate_count++;
    out->candidates[*number] = (struct sl_candidate){.element = *element};
    find->table[at] = *number + 1;
    return 0;
}

static int add_pair(struct find *find, uint32_t candidate, uint32_t cell)
{
    if (find->pair_count == find->pair_cap) {
        size_t cap = find->pair_cap == 0 ? 1024 : find->pair_cap * 2;
        void *more = reallocarray(find->pairs, cap, 2 * sizeof(*find->pairs));

        if (more == NULL)
            return no_memory();
        find->pairs = more;
        find->pair_cap = cap;
    }
    find->pairs[2 * find->pair_count] = candidate;
    find->pairs[2 * find->pair_count + 1] = cell;
    find->pair_count++;
    return 0;
}

static int list_candidates(struct find *find)
{
    struct sl_element elements[SL_ELEMENTS_MAX];

    for (uint32_t i = 0; i < find->matrix->count; i++) {
        const struct sl_matrix_cell *cell = &find->matrix->cells[i];
        unsigned count;

        if (!find->hot[i])
            continue;
        count = sl_elements_of(find->places, cell->src, cell->dst, cell->path, elements);
        for (unsigned k = 0; k < count; k++) {
            uint32_t candidate = 0;

            if (look_up(find, &elements[k], &candidate) != 0 || add_pair(find, candidate, i) != 0)
                return -ENOMEM;
            find->out->candidates[candidate].hot++;
        }
    }
    return 0;
}

/* ---- how many cells each covers ---- */

static int make_totals(struct find *find)
{
    const struct sl_places *places = find->places;
    size_t ports = (size_t)find->matrix->rank_count * places->path_count + 1;
    size_t hosts = (size_t)places->counts[SL_FAMILY_HOST] + 1;
    struct totals *totals = &find->totals;
    bool is_good;

    totals->nic_tx = calloc(ports, sizeof(uint32_t));
    totals->nic_rx = calloc(ports, sizeof(uint32_t));
    totals->senders = calloc(hosts, sizeof(uint32_t));
    totals->receivers = calloc(hosts, sizeof(uint32_t));
    totals->ranks = calloc(hosts, sizeof(uint32_t));
    is_good = totals->nic_tx != NULL && totals->nic_rx != NULL && totals->senders != NULL &&
              totals->receivers != NULL && totals->ranks != NULL;
    for (int family = 0; family < SL_FAMILIES; family++) {
        size_t count = (size_t)places->counts[family] + 1;

        totals->out[family] = calloc(count, sizeof(uint32_t));
        totals->in[family] = calloc(count, sizeof(uint32_t));
        totals->any[family] = calloc(count, sizeof(uint32_t));
        is_good = is_good && totals->out[family] != NULL && totals->in[family] != NULL &&
                  totals->any[family] != NULL;
    }
    return is_good ? 0 : no_memory();
}

static void count_groups(struct find *find, enum sl_family family)
{
    const struct sl_places *places = find->places;
    const uint32_t *group = places->group[family];
    struct totals *totals = &find->totals;
    uint32_t paths = places->path_count;

    if (group == NULL)
        return;
    for (uint32_t i = 0; i < find->matrix->count; i++) {
        const struct sl_matrix_cell *cell = &find->matrix->cells[i];
        uint32_t path = paths > 1 ? cell->path : 0;
        uint32_t from = group[(size_t)cell->src * paths + path];
        uint32_t to = group[(size_t)cell->dst * paths + path];

        if (from != SL_PLACE_NONE) {
            totals->any[family][from]++;
            totals->out[family][from] += from != to;
        }
        if (to != SL_PLACE_NONE && to != from) {
            totals->any[family][to]++;
            totals->in[family][to]++;
        }
    }
}

/* Ranks of a host that send, receive, do any: as many as have a row, a column. */
static void count_ranks(struct find *find)
{
    const struct sl_matrix *matrix = find->matrix;

    for (uint32_t r = 0; r < matrix->rank_count; r++) {
        uint32_t host = sl_place_of(find->places, SL_FAMILY_HOST, r, 0);
        bool sends = matrix->first[r] < matrix->first[r + 1];
        bool receives = matrix->column_first[r] < matrix->column_first[r + 1];

        if (host == SL_PLACE_NONE)
            continue;
        find->totals.senders[host] += sends;
        find->totals.receivers[host] += receives;
        find->totals.ranks[host] += sends || receives;
    }
}

static void count_cells(struct find *find)
{
    uint32_t paths = find->places->path_count;

    for (uint32_t i = 0; paths > 1 && i < find->matrix->count; i++) {
        const struct sl_matrix_cell *cell = &find->matrix->cells[i];

        find->totals.nic_tx[(size_t)cell->src * paths + cell->path]++;
        find->totals.nic_rx[(size_t)cell->dst * paths + cell->path]++;
    }
    for (int family = 0; family < SL_FAMILIES; family++)
        count_groups(find, family);
    count_ranks(find);
}

/* Cells that pass each switch on the way; of the candidates alone. */
static void count_routes(struct find *find)
{
    struct sl_element elements[SL_ELEMENTS_MAX];

    if (find->places->route_count == 0 || find->out->candidate_count == 0)
        return;
    for (uint32_t i = 0; i < find->matrix->count; i++) {
        const struct sl_matrix_cell *cell = &find->matrix->cells[i];
        unsigned count = sl_elements_of(find->places, cell->src, cell->dst, cell->path, elements);

        for (unsigned k = 0; k < count; k++) {
            size_t at = hash_of(&elements[k]) & (find->table_len - 1);

            if (elements[k].kind != SL_ELEMENT_SPINE)
                continue;
            for (; find->table[at] != 0; at = (at + 1) & (find->table_len - 1)) {
                struct sl_candidate *it = &find->out->candidates[find->table[at] - 1];

                if (sl_element_is(&it->element, &elements[k]))
                    it->total++;
            }
        }
    }
}

static void free_totals(struct totals *totals)
{
    free(totals->nic_tx);
    free(totals->nic_rx);
    free(totals->senders);
    free(totals->receivers);
    free(totals->ranks);
    for (int family = 0; family < SL_FAMILIES; family++) {
        free(totals->out[family]);
        free(totals->in[family]);
        free(totals->any[family]);
    }
}

/* Cells from a to b. */
static uint32_t count_pair(const struct sl_matrix *matrix, uint32_t a, uint32_t b)
{
    uint32_t count = 0;

    for (uint32_t path = 0; path < matrix->path_count; path++)
        count += sl_matrix_at(matrix, a, b, path) != NULL;
    return count;
}

/* 0: it cannot be seen apart from a smaller part, which is a candidate too. */
static uint32_t total_of_rank(const struct find *find, const struct sl_element *element)
{
    const struct sl_matrix *matrix = find->matrix;
    uint32_t a = element->a, tx = matrix->first[a + 1] - matrix->first[a];
    uint32_t rx = matrix->column_first[a + 1] - matrix->column_first[a];
    size_t port = (size_t)a * find->places->path_count + element->path;
    uint32_t nic_tx = find->totals.nic_tx[port], nic_rx = find->totals.nic_rx[port];

    switch (element->kind) {
    case SL_ELEMENT_TX: return tx;
    case SL_ELEMENT_RX: return rx;
    case SL_ELEMENT_NODE: return tx > 0 && rx > 0 ? tx + rx : 0;
    case SL_ELEMENT_NIC_TX: return nic_tx < tx ? nic_tx : 0;
    case SL_ELEMENT_NIC_RX: return nic_rx < rx ? nic_rx : 0;
    default: return nic_tx > 0 && nic_rx > 0 && nic_tx + nic_rx < tx + rx ? nic_tx + nic_rx : 0;
    }
}

static uint32_t total_of_host(const struct find *find, const struct sl_element *element)
{
    const struct totals *totals = &find->totals;
    uint32_t host = element->a, out = totals->out[SL_FAMILY_HOST][host];
    uint32_t in = totals->in[SL_FAMILY_HOST][host], any = totals->any[SL_FAMILY_HOST][host];

    if (find->places->counts[SL_FAMILY_HOST] < 2)
        return 0;
    switch (element->kind) {
    case SL_ELEMENT_HOST_TX: return totals->senders[host] > 1 ? out : 0;
    case SL_ELEMENT_HOST_RX: return totals->receivers[host] > 1 ? in : 0;
    default: return totals->ranks[host] > 1 && any > out && any > in ? any : 0;
    }
}

static uint32_t total_of_leaf(const struct find *find, const struct sl_element *element)
{
    const struct totals *totals = &find->totals;
    uint32_t out = totals->out[SL_FAMILY_LEAF][element->a];
    uint32_t in = totals->in[SL_FAMILY_LEAF][element->a];
    uint32_t any = totals->any[SL_FAMILY_LEAF][element->a];

    if (find->places->counts[SL_FAMILY_LEAF] < 2)
        return 0;
    switch (element->kind) {
    case SL_ELEMENT_LEAF_TX: return out;
    case SL_ELEMENT_LEAF_RX: return in;
    case SL_ELEMENT_LEAF_UP: return out > 0 && in > 0 ? out + in : 0;
    default: return any > out + in ? any : 0;
    }
}

static uint32_t total_of(const struct find *find, const struct sl_candidate *candidate)
{
    const struct sl_element *element = &candidate->element;
    const struct sl_places *places = find->places;

    switch (element->kind) {
    case SL_ELEMENT_LINK: return count_pair(find->matrix, element->a, element->b);
    case SL_ELEMENT_LANE: return count_pair(find->matrix, element->a, element->b) > 1;
    case SL_ELEMENT_RAIL:
        return places->counts[SL_FAMILY_RAIL] > 1 ? find->totals.any[SL_FAMILY_RAIL][element->a]
                                                  : 0;
    case SL_ELEMENT_PLANE:
        return places->counts[SL_FAMILY_PLANE] > 1 ? find->totals.any[SL_FAMILY_PLANE][element->a]
                                                   : 0;
    case SL_ELEMENT_SPINE: return candidate->total < find->matrix->count ? candidate->total : 0;
    case SL_ELEMENT_HOST_TX:
    case SL_ELEMENT_HOST_RX:
    case SL_ELEMENT_HOST: return total_of_host(find, element);
    case SL_ELEMENT_LEAF_TX:
    case SL_ELEMENT_LEAF_RX:
    case SL_ELEMENT_LEAF_UP:
    case SL_ELEMENT_LEAF: return total_of_leaf(find, element);
    default: return total_of_rank(find, element);
    }
}

/* ---- those that explain their cells ---- */

static bool is_good(const struct sl_candidate *candidate)
{
    return candidate->total >= candidate->hot &&
           candidate->total - candidate->hot <= candidate->total / TOLERANT;
}

/* Drops the others, and lists the cells of each. */
static int keep(struct find *find)
{
    struct sl_ambiguity *out = find->out;
    uint32_t *renamed = reallocarray(NULL, (size_t)out->candidate_count + 1, sizeof(*renamed));
    uint32_t kept = 0, cells = 0;

    out->slow = reallocarray(NULL, find->pair_count + 1, sizeof(*out->slow));
    if (renamed == NULL || out->slow == NULL) {
        free(renamed);
        return no_memory();
    }
    for (uint32_t i = 0; i < out->candidate_count; i++) {
        struct sl_candidate candidate = out->candidates[i];

        candidate.total = total_of(find, &candidate);
        renamed[i] = UINT32_MAX;
        if (!is_good(&candidate))
            continue;
        candidate.first = cells;
        cells += candidate.hot;
        candidate.hot = 0;
        renamed[i] = kept;
        out->candidates[kept++] = candidate;
    }
    out->candidate_count = kept;
    for (size_t i = 0; i < find->pair_count; i++) {
        uint32_t candidate = renamed[find->pairs[2 * i]];

        if (candidate != UINT32_MAX)
            out->slow[out->candidates[candidate].first + out->candidates[candidate].hot++] =
                find->pairs[2 * i + 1];
    }
    free(renamed);
    return 0;
}

int sl_ambiguity_find(const struct sl_places *places, const uint8_t *hot,
                      struct sl_ambiguity *ambiguity)
{
    struct find find = {.places = places, .matrix = places->matrix, .hot = hot, .out = ambiguity};
    int err;

    *ambiguity = (struct sl_ambiguity){.candidate_count = 0};
    err = list_candidates(&find);
    if (err == 0 && ambiguity->candidate_count > 0) {
        err = make_totals(&find);
        if (err == 0) {
            count_cells(&find);
            count_routes(&find);
        }
    }
    if (err == 0)
        err = keep(&find);
    free_totals(&find.totals);
    free(find.table);
    free(find.pairs);
    return err;
}

void sl_ambiguity_fini(struct sl_ambiguity *ambiguity)
{
    for (uint32_t i = 0; i < ambiguity->fault_count; i++)
        free(ambiguity->faults[i].set);
    free(ambiguity->candidates);
    free(ambiguity->slow);
    *ambiguity = (struct sl_ambiguity){.candidate_count = 0};
}
