/* SPDX-License-Identifier: Apache-2.0 */
/* Expressions and stretches of memory for the prover of schedules. */
#include "testing/check_mem.h"

#include "core/err.h"
#include "core/rng.h"

#include <stdlib.h>
#include <string.h>

static uint32_t slot_of(const struct sl_sym_nodes *nodes, uint32_t tag, uint32_t a, uint32_t b)
{
    uint64_t hash = ((uint64_t)a << 32 | b) * UINT64_C(0x9e3779b97f4a7c15) + tag;

    hash = (hash ^ (hash >> 31)) * UINT64_C(0xbf58476d1ce4e5b9);
    return (uint32_t)(hash >> 32) & (nodes->table_len - 1);
}

static void table_put(struct sl_sym_nodes *nodes, uint32_t node)
{
    const struct sl_sym_node *n = &nodes->nodes[node];
    uint32_t slot = slot_of(nodes, n->tag, n->a, n->b);

    while (nodes->table[slot] != 0)
        slot = (slot + 1) & (nodes->table_len - 1);
    nodes->table[slot] = node;
}

static int nodes_grow(struct sl_sym_nodes *nodes)
{
    uint32_t cap = nodes->cap * 2;
    struct sl_sym_node *bigger = realloc(nodes->nodes, cap * sizeof(*bigger));

    if (bigger == NULL)
        return -ENOMEM;
    nodes->nodes = bigger;
    nodes->cap = cap;
    uint32_t *table = calloc((size_t)cap * 2, sizeof(*table));
    if (table == NULL)
        return -ENOMEM;
    free(nodes->table);
    nodes->table = table;
    nodes->table_len = cap * 2;
    for (uint32_t i = nodes->ranks + 1; i < nodes->count; i++)
        table_put(nodes, i);
    return 0;
}

int sl_sym_nodes_init(struct sl_sym_nodes *nodes, uint32_t ranks)
{
    struct sl_rng rng;
    uint32_t cap = 64;

    while (cap < ranks + 2)
        cap *= 2;
    *nodes = (struct sl_sym_nodes){.ranks = ranks, .cap = cap, .table_len = cap * 2};
    nodes->nodes = malloc(cap * sizeof(*nodes->nodes));
    nodes->table = calloc(nodes->table_len, sizeof(*nodes->table));
    if (nodes->nodes == NULL || nodes->table == NULL) {
        sl_sym_nodes_fini(nodes);
        return sl_fail(-ENOMEM, "no memory to prove a schedule");
    }
    sl_rng_init(&rng, 0x5eed);
    nodes->nodes[0] = (struct sl_sym_node){0};
    for (uint32_t r = 0; r < ranks; r++) {
        unsigned __int128 sign = (unsigned __int128)sl_rng_u64(&rng) << 64;
        sign |= sl_rng_u64(&rng);
        nodes->nodes[r + 1] = (struct sl_sym_node){.a = r, .leaves = 1, .sign = sign};
        nodes->full += sign;
    }
    nodes->count = ranks + 1;
    return 0;
}

void sl_sym_nodes_fini(struct sl_sym_nodes *nodes)
{
    free(nodes->nodes);
    free(nodes->table);
    *nodes = (struct sl_sym_nodes){0};
}

uint32_t sl_sym_node(struct sl_sym_nodes *nodes, enum sl_sym_tag tag, uint32_t a, uint32_t b)
{
    uint32_t slot = slot_of(nodes, tag, a, b);

    for (; nodes->table[slot] != 0; slot = (slot + 1) & (nodes->table_len - 1)) {
        const struct sl_sym_node *n = &nodes->nodes[nodes->table[slot]];
        if (n->a == a && n->b == b && n->tag == tag)
            return nodes->table[slot];
    }
    if (nodes->count == nodes->cap && nodes_grow(nodes) != 0) {
        sl_fail(-ENOMEM, "no memory to prove a schedule");
        return SL_SYM_NONE;
    }
    struct sl_sym_node *n = &nodes->nodes[nodes->count];
    bool two = tag == SL_SYM_PAIR || tag == SL_SYM_OPEN;
    *n = (struct sl_sym_node){.a = a, .b = b, .tag = tag};
    n->leaves = nodes->nodes[a].leaves + (two ? nodes->nodes[b].leaves : 0);
    n->sign = nodes->nodes[a].sign + (two ? nodes->nodes[b].sign : 0);
    n->by = tag == SL_SYM_TERM ? b : tag == SL_SYM_SUM ? 0 : nodes->nodes[a].by;
    n->final = tag == SL_SYM_FINAL || (tag == SL_SYM_CODED && nodes->nodes[a].final);
    table_put(nodes, nodes->count);
    return nodes->count++;
}

uint32_t sl_sym_bare(const struct sl_sym_nodes *nodes, uint32_t node)
{
    while (nodes->nodes[node].tag == SL_SYM_CODED)
        node = nodes->nodes[node].a;
    return node;
}

void sl_sym_count(const struct sl_sym_nodes *nodes, uint32_t node, uint32_t *times)
{
    const struct sl_sym_node *n = &nodes->nodes[node];

    if (node == SL_SYM_UNDEFINED)
        return;
    if (n->tag == SL_SYM_LEAF) {
        times[n->a]++;
        return;
    }
    if (n->tag == SL_SYM_PAIR || n->tag == SL_SYM_OPEN)
        sl_sym_count(nodes, n->b, times);
    sl_sym_count(nodes, n->a, times);
}

static int region_room(struct sl_sym_region *region, uint32_t want)
{
    if (want <= region->cap)
        return 0;
    uint32_t cap = region->cap * 2 < want ? want + 8 : region->cap * 2;
    struct sl_sym_seg *segs = realloc(region->segs, cap * sizeof(*segs));
    if (segs == NULL)
        return sl_fail(-ENOMEM, "no memory to prove a schedule");
    region->segs = segs;
    region->cap = cap;
    return 0;
}

int sl_sym_region_init(struct sl_sym_region *region, uint64_t len)
{
    *region = (struct sl_sym_region){.len = len};
    if (len == 0)
        return 0;
    int rc = region_room(region, 4);
    if (rc != 0)
        return rc;
    region->segs[0] = (struct sl_sym_seg){
        .node = SL_SYM_UNDEFINED, .writer = SL_SYM_NONE, .readers = SL_SYM_NONE};
    region->count = 1;
    return 0;
}

uint32_t sl_sym_find(const struct sl_sym_region *region, uint64_t at)
{
    uint32_t low = 0, high = region->count;

    while (high - low > 1) {
        uint32_t mid = low + (high - low) / 2;
        if (region->segs[mid].start <= at)
            low = mid;
        else
            high = mid;
    }
    return low;
}

uint32_t sl_sym_split(struct sl_sym_region *region, uint64_t at)
{
    if (at >= region->len)
        return region->count;
    uint32_t i = sl_sym_find(region, at);
    if (region->segs[i].start == at)
        return i;
    if (region_room(region, region->count + 1) != 0)
        return SL_SYM_NONE;
    memmove(&region->segs[i + 1], &region->segs[i], (region->count - i) * sizeof(*region->segs));
    region->count++;
    region->segs[i + 1].idx += at - region->segs[i].start;
    region->segs[i + 1].start = at;
    return i + 1;
}

int sl_sym_replace(struct sl_sym_region *region, uint32_t first, uint32_t last,
                   const struct sl_sym_strip *strip, uint32_t writer)
{
    uint32_t tail = region->count - last;
    uint64_t at = region->segs[first].start;
    int rc = region_room(region, first + strip->count + tail);

    if (rc != 0)
        return rc;
    if (first + strip->count != last)
        memmove(&region->segs[first + strip->count], &region->segs[last],
                tail * sizeof(*region->segs));
    for (uint32_t i = 0; i < strip->count; i++) {
        const struct sl_sym_part *part = &strip->parts[i];
        region->segs[first + i] = (struct sl_sym_seg){.start = at,
                                                      .idx = part->idx,
                                                      .node = part->node,
                                                      .writer = writer,
                                                      .readers = SL_SYM_NONE};
        at += part->len;
    }
    region->count = first + strip->count + tail;
    return 0;
}

int sl_sym_strip_add(struct sl_sym_strip *strip, uint64_t len, uint32_t node, uint64_t idx)
{
    if (strip->count > 0) {
        struct sl_sym_part *last = &strip->parts[strip->count - 1];
        if (last->node == node && last->idx + last->len == idx) {
            last->len += len;
            return 0;
        }
    }
    if (strip->count == strip->cap) {
        uint32_t cap = strip->cap == 0 ? 64 : strip->cap * 2;
        struct sl_sym_part *parts = realloc(strip->parts, cap * sizeof(*parts));
        if (parts == NULL)
            return sl_fail(-ENOMEM, "no memory to prove a schedule");
        strip->parts = parts;
        strip->cap = cap;
    }
    strip->parts[strip->count++] = (struct sl_sym_part){.len = len, .node = node, .idx = idx};
    return 0;
}

int sl_sym_strip_copy(struct sl_sym_strip *to, const struct sl_sym_strip *from)
{
    int rc = 0;

    to->count = 0;
    for (uint32_t i = 0; i < from->count && rc == 0; i++)
        rc = sl_sym_strip_add(to, from->parts[i].len, from->parts[i].node, from->parts[i].idx);
    return rc;
}

uint32_t sl_sym_code(struct sl_sym_codes *codes, const struct sl_sym_strip *strip,
                     const struct sl_sym_code *like)
{
    if (codes->count == codes->cap) {
        uint32_t cap = codes->cap == 0 ? 64 : codes->cap * 2;
        struct sl_sym_code *more = realloc(codes->codes, cap * sizeof(*more));
        if (more == NULL) {
            sl_fail(-ENOMEM, "no memory to prove a schedule");
            return SL_SYM_NONE;
        }
        codes->codes = more;
        codes->cap = cap;
    }
    struct sl_sym_code *code = &codes->codes[codes->count];
    *code = *like;
    code->values = (struct sl_sym_strip){0};
    codes->count++;
    return sl_sym_strip_copy(&code->values, strip) == 0 ? codes->count : SL_SYM_NONE;
}

void sl_sym_codes_fini(struct sl_sym_codes *codes)
{
    for (uint32_t i = 0; i < codes->count; i++)
        free(codes->codes[i].values.parts);
    free(codes->codes);
    *codes = (struct sl_sym_codes){0};
}
