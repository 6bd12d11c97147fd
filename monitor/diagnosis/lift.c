/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of the network, and which messages pass them. */
#include "monitor/diagnosis/lift.h"
#include "core/err.h"

/* One row a kind. */
static const struct {
    double prior;
    enum sl_verdict_class cls;
    enum sl_object_kind object;
    int family;       /* -1: a rank, a pair of ranks, a switch on the way */
    const char *text; /* before its name, where a name is all */
} kinds[SL_ELEMENT_KINDS] = {
    [SL_ELEMENT_LINK] = {1.0, SL_VERDICT_SLOW_LINK, SL_OBJECT_LINK, -1, ""},
    [SL_ELEMENT_LANE] = {1.0, SL_VERDICT_SLOW_LINK, SL_OBJECT_LINK, -1, ""},
    [SL_ELEMENT_TX] = {0.9, SL_VERDICT_SLOW_SENDER, SL_OBJECT_RANK, -1, ""},
    [SL_ELEMENT_RX] = {0.9, SL_VERDICT_SLOW_RECEIVER, SL_OBJECT_RANK, -1, ""},
    [SL_ELEMENT_NODE] = {0.9, SL_VERDICT_SLOW_LINK, SL_OBJECT_NIC, -1, ""},
    [SL_ELEMENT_NIC_TX] = {0.9, SL_VERDICT_SLOW_SENDER, SL_OBJECT_NIC, -1, ""},
    [SL_ELEMENT_NIC_RX] = {0.9, SL_VERDICT_SLOW_RECEIVER, SL_OBJECT_NIC, -1, ""},
    [SL_ELEMENT_NIC] = {0.9, SL_VERDICT_SLOW_LINK, SL_OBJECT_NIC, -1, ""},
    [SL_ELEMENT_HOST_TX] = {0.6, SL_VERDICT_SLOW_GROUP, SL_OBJECT_HOST, SL_FAMILY_HOST,
                            "what leaves host "},
    [SL_ELEMENT_HOST_RX] = {0.6, SL_VERDICT_SLOW_GROUP, SL_OBJECT_HOST, SL_FAMILY_HOST,
                            "what comes to host "},
    [SL_ELEMENT_HOST] = {0.6, SL_VERDICT_SLOW_GROUP, SL_OBJECT_HOST, SL_FAMILY_HOST, "host "},
    [SL_ELEMENT_LEAF_TX] = {0.4, SL_VERDICT_SLOW_GROUP, SL_OBJECT_SWITCH, SL_FAMILY_LEAF,
                            "what goes up from leaf "},
    [SL_ELEMENT_LEAF_RX] = {0.4, SL_VERDICT_SLOW_GROUP, SL_OBJECT_SWITCH, SL_FAMILY_LEAF,
                            "what comes down to leaf "},
    [SL_ELEMENT_LEAF_UP] = {0.4, SL_VERDICT_SLOW_GROUP, SL_OBJECT_SWITCH, SL_FAMILY_LEAF,
                            "the uplinks of leaf "},
    [SL_ELEMENT_LEAF] = {0.4, SL_VERDICT_SLOW_GROUP, SL_OBJECT_SWITCH, SL_FAMILY_LEAF, "leaf "},
    [SL_ELEMENT_RAIL] = {0.3, SL_VERDICT_SLOW_GROUP, SL_OBJECT_RAIL, SL_FAMILY_RAIL, "rail "},
    [SL_ELEMENT_PLANE] = {0.3, SL_VERDICT_SLOW_GROUP, SL_OBJECT_PLANE, SL_FAMILY_PLANE, "plane "},
    [SL_ELEMENT_SPINE] = {0.4, SL_VERDICT_SLOW_GROUP, SL_OBJECT_SWITCH, -1, "switch "},
};

bool sl_element_is(const struct sl_element *a, const struct sl_element *b)
{
    return a->kind == b->kind && a->a == b->a && a->b == b->b && a->path == b->path;
}

double sl_element_prior(const struct sl_element *element)
{
    return kinds[element->kind].prior;
}

enum sl_verdict_class sl_element_class(const struct sl_element *element)
{
    return kinds[element->kind].cls;
}

/* ---- what a message passes ---- */

static unsigned add(struct sl_element *out, unsigned count, enum sl_element_kind kind, uint32_t a,
                    uint32_t b, uint32_t path)
{
    out[count] = (struct sl_element){.kind = (uint8_t)kind, .a = a, .b = b, .path = path};
    return count + 1;
}

/* Kinds of both ends of a message that may be alike: one element then. */
static unsigned add_both(struct sl_element *out, unsigned count, enum sl_element_kind kind,
                         uint32_t from, uint32_t to)
{
    if (from != SL_PLACE_NONE)
        count = add(out, count, kind, from, 0, 0);
    if (to != SL_PLACE_NONE && to != from)
        count = add(out, count, kind, to, 0, 0);
    return count;
}

/* Where a pair's routes begin. */
static size_t find_routes(const struct sl_places *places, uint32_t src, uint32_t dst)
{
    size_t low = 0, high = places->route_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct sl_job_route *route = places->routes[middle];

        if (route->src < src || (route->src == src && route->dst < dst))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool is_on(const struct sl_places *places, const struct sl_job_route *route, uint32_t path)
{
    return route->path == 0 ||
           (path < places->matrix->path_count && route->path == places->matrix->paths[path]);
}

static unsigned add_routes(const struct sl_places *places, uint32_t src, uint32_t dst,
                           uint32_t path, struct sl_element *out, unsigned count)
{
    uint32_t last = 0;

    if (places->route_count == 0)
        return count;
    for (size_t i = find_routes(places, src, dst);
         i < places->route_count && count < SL_ELEMENTS_MAX; i++) {
        const struct sl_job_route *route = places->routes[i];

        if (route->src != src || route->dst != dst)
            break;
        if (!is_on(places, route, path) || route->via == last)
            continue;
        last = route->via;
        count = add(out, count, SL_ELEMENT_SPINE, route->via, 0, 0);
    }
    return count;
}

static unsigned add_groups(const struct sl_places *places, uint32_t src, uint32_t dst,
                           uint32_t path, struct sl_element *out, unsigned count)
{
    uint32_t from = sl_place_of(places, SL_FAMILY_HOST, src, path);
    uint32_t to = sl_place_of(places, SL_FAMILY_HOST, dst, path);

    if (from != to && from != SL_PLACE_NONE)
        count = add(out, count, SL_ELEMENT_HOST_TX, from, 0, 0);
    if (from != to && to != SL_PLACE_NONE)
        count = add(out, count, SL_ELEMENT_HOST_RX, to, 0, 0);
    count = add_both(out, count, SL_ELEMENT_HOST, from, to);
    from = sl_place_of(places, SL_FAMILY_LEAF, src, path);
    to = sl_place_of(places, SL_FAMILY_LEAF, dst, path);
    if (from != to && from != SL_PLACE_NONE)
        count = add(out, count, SL_ELEMENT_LEAF_TX, from, 0, 0);
    if (from != to && to != SL_PLACE_NONE)
        count = add(out, count, SL_ELEMENT_LEAF_RX, to, 0, 0);
    if (from != to)
        count = add_both(out, count, SL_ELEMENT_LEAF_UP, from, to);
    count = add_both(out, count, SL_ELEMENT_LEAF, from, to);
    count = add_both(out, count, SL_ELEMENT_RAIL, sl_place_of(places, SL_FAMILY_RAIL, src, path),
                     sl_place_of(places, SL_FAMILY_RAIL, dst, path));
    return add_both(out, count, SL_ELEMENT_PLANE, sl_place_of(places, SL_FAMILY_PLANE, src, path),
                    sl_place_of(places, SL_FAMILY_PLANE, dst, path));
}

unsigned sl_elements_of(const struct sl_places *places, uint32_t src, uint32_t dst, uint32_t path,
                        struct sl_element out[SL_ELEMENTS_MAX])
{
    unsigned count = 0;

    count = add(out, count, SL_ELEMENT_LINK, src, dst, 0);
    count = add(out, count, SL_ELEMENT_TX, src, 0, 0);
    count = add(out, count, SL_ELEMENT_RX, dst, 0, 0);
    count = add(out, count, SL_ELEMENT_NODE, src, 0, 0);
    count = add(out, count, SL_ELEMENT_NODE, dst, 0, 0);
    if (places->path_count > 1) {
        count = add(out, count, SL_ELEMENT_LANE, src, dst, path);
        count = add(out, count, SL_ELEMENT_NIC_TX, src, 0, path);
        count = add(out, count, SL_ELEMENT_NIC_RX, dst, 0, path);
        count = add(out, count, SL_ELEMENT_NIC, src, 0, path);
        count = add(out, count, SL_ELEMENT_NIC, dst, 0, path);
    }
    count = add_groups(places, src, dst, path, out, count);
    return add_routes(places, src, dst, path, out, count);
}

bool sl_element_covers(const struct sl_places *places, const struct sl_element *element,
                       uint32_t src, uint32_t dst, uint32_t path)
{
    struct sl_element list[SL_ELEMENTS_MAX];
    unsigned count = sl_elements_of(places, src, dst, path, list);

    for (unsigned i = 0; i < count; i++)
        if (sl_element_is(&list[i], element))
            return true;
    return false;
}

/* ---- for people ---- */

static uint32_t name_of(const struct sl_places *places, const struct sl_element *element)
{
    int family = kinds[element->kind].family;

    if (element->kind == SL_ELEMENT_SPINE)
        return element->a;
    if (family >= 0)
        return places->names[family][element->a];
    if (kinds[element->kind].object == SL_OBJECT_RANK || element->kind == SL_ELEMENT_LINK ||
        element->kind == SL_ELEMENT_NODE || element->path >= places->matrix->path_count)
        return 0;
    return places->matrix->paths[element->path];
}

struct sl_object sl_element_object(const struct sl_places *places, const struct sl_element *element)
{
    struct sl_object object = {.kind = (uint8_t)kinds[element->kind].object,
                               .a = SL_JOB_NONE,
                               .b = SL_JOB_NONE,
                               .name = name_of(places, element)};

    if (kinds[element->kind].family < 0 && element->kind != SL_ELEMENT_SPINE)
        object.a = element->a;
    if (object.kind == SL_OBJECT_LINK)
        object.b = element->b;
    return object;
}

void sl_element_text(const struct sl_places *places, const struct sl_element *element, char *out,
                     size_t cap)
{
    const char *name = sl_job_string(places->job, name_of(places, element));

    out[0] = '\0';
    if (name[0] == '\0')
        name = "the path";
    switch (element->kind) {
    case SL_ELEMENT_LINK:
        sl_text_add(out, cap, "the link from rank %u to rank %u", element->a, element->b);
        break;
    case SL_ELEMENT_LANE:
        sl_text_add(out, cap, "%.100s from rank %u to rank %u", name, element->a, element->b);
        break;
    case SL_ELEMENT_TX: sl_text_add(out, cap, "rank %u as a sender", element->a); break;
    case SL_ELEMENT_RX: sl_text_add(out, cap, "rank %u as a receiver", element->a); break;
    case SL_ELEMENT_NODE: sl_text_add(out, cap, "rank %u both ways", element->a); break;
    case SL_ELEMENT_NIC_TX:
        sl_text_add(out, cap, "%.100s of rank %u outwards", name, element->a);
        break;
    case SL_ELEMENT_NIC_RX:
        sl_text_add(out, cap, "%.100s of rank %u inwards", name, element->a);
        break;
    case SL_ELEMENT_NIC:
        sl_text_add(out, cap, "%.100s of rank %u both ways", name, element->a);
        break;
    default: sl_text_add(out, cap, "%s%.150s", kinds[element->kind].text, name);
    }
}
