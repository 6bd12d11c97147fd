/* SPDX-License-Identifier: Apache-2.0 */
/* Hosts, leaves, rails and planes of each rank's ports, by number. */
#include "core/err.h"
#include "monitor/diagnosis/lift.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PORTS_MAX ((size_t)1 << 26) /* beyond it paths are not told apart */

static int by_host(const void *a, const void *b)
{
    const struct sl_job_port *x = a, *y = b;

    if (x->host != y->host)
        return x->host < y->host ? -1 : 1;
    return x->device < y->device ? -1 : x->device > y->device;
}

static int by_pair(const void *a, const void *b)
{
    const struct sl_job_route *x = *(const struct sl_job_route *const *)a;
    const struct sl_job_route *y = *(const struct sl_job_route *const *)b;

    if (x->src != y->src)
        return x->src < y->src ? -1 : 1;
    if (x->dst != y->dst)
        return x->dst < y->dst ? -1 : 1;
    return x->via < y->via ? -1 : x->via > y->via;
}

/* Of the host: the device's, or what all of its ports have in common (texts; 0: nothing). */
static struct sl_job_port look_up(const struct sl_job_port *ports, size_t count, uint32_t host,
                                  uint32_t device)
{
    struct sl_job_port found = {.host = host};
    size_t low = 0, high = count;
    bool is_first = true;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (ports[middle].host < host)
            low = middle + 1;
        else
            high = middle;
    }
    for (size_t i = low; i < count && ports[i].host == host; i++)
        if (device != 0 && ports[i].device == device)
            return ports[i];
    for (size_t i = low; i < count && ports[i].host == host; i++) {
        if (is_first)
            found = ports[i];
        found.leaf = ports[i].leaf == found.leaf ? found.leaf : 0;
        found.rail = ports[i].rail == found.rail ? found.rail : 0;
        found.plane = ports[i].plane == found.plane ? found.plane : 0;
        is_first = false;
    }
    return found;
}

/* ---- numbers of texts ---- */

struct named {
    const char *string;
    uint32_t text;
};

static int by_string(const void *a, const void *b)
{
    const struct named *x = a, *y = b;

    return strcmp(x->string, y->string);
}

/* groups holds texts, 0: none; it becomes numbers, in the order of the texts. */
static int number(struct sl_places *places, enum sl_family family, size_t ports)
{
    uint32_t *groups = places->group[family], most = 0, count = 0, *of;
    struct named *named;

    for (size_t i = 0; i < ports; i++)
        most = groups[i] > most ? groups[i] : most;
    of = calloc((size_t)most + 1, sizeof(*of));
    for (size_t i = 0; of != NULL && i < ports; i++) {
        count += groups[i] != 0 && of[groups[i]] == 0;
        of[groups[i]] = 1;
    }
    named = reallocarray(NULL, (size_t)count + 1, sizeof(*named));
    places->names[family] = reallocarray(NULL, (size_t)count + 1, sizeof(uint32_t));
    if (of == NULL || named == NULL || places->names[family] == NULL) {
        free(of);
        free(named);
        return sl_fail(-ENOMEM, "no memory for the places of ranks");
    }
    for (uint32_t text = 1, at = 0; text <= most; text++)
        if (of[text] != 0)
            named[at++] = (struct named){sl_job_string(places->job, text), text};
    qsort(named, count, sizeof(*named), by_string);
    for (uint32_t i = 0; i < count; i++) {
        places->names[family][i] = named[i].text;
        of[named[i].text] = i;
    }
    for (size_t i = 0; i < ports; i++)
        groups[i] = groups[i] != 0 ? of[groups[i]] : SL_PLACE_NONE;
    places->counts[family] = count;
    free(of);
    free(named);
    return 0;
}

/* ---- what is known of each port ---- */

static void fill(struct sl_places *places, const struct sl_job_port *ports, size_t count)
{
    const struct sl_job *job = places->job;

    for (uint32_t rank = 0; rank < places->matrix->rank_count; rank++) {
        uint32_t host = job->ranks[rank].host;

        for (uint32_t path = 0; path < places->path_count; path++) {
            uint32_t device = places->path_count > 1 || places->matrix->path_count == 1
                                  ? places->matrix->paths[path]
                                  : 0;
            size_t at = (size_t)rank * places->path_count + path;
            struct sl_job_port port = {0};

            if (host != 0 && count > 0)
                port = look_up(ports, count, host, device);
            places->group[SL_FAMILY_HOST][at] = host;
            places->group[SL_FAMILY_LEAF][at] = port.leaf;
            places->group[SL_FAMILY_RAIL][at] = port.rail;
            places->group[SL_FAMILY_PLANE][at] = port.plane;
        }
    }
}

/* Each path is a rail, where no port tells another. */
static void name_rails(struct sl_places *places, size_t ports)
{
    uint32_t *rails = places->group[SL_FAMILY_RAIL];

    for (size_t i = 0; i < ports; i++)
        if (rails[i] != 0)
            return;
    if (places->path_count < 2)
        return;
    for (size_t i = 0; i < ports; i++)
        rails[i] = places->matrix->paths[i % places->path_count];
}

static int sort_routes(struct sl_places *places)
{
    const struct sl_job *job = places->job;

    if (job->route_count == 0)
        return 0;
    places->routes = reallocarray(NULL, job->route_count, sizeof(*places->routes));
    if (places->routes == NULL)
        return sl_fail(-ENOMEM, "no memory for the routes of a job");
    for (size_t i = 0; i < job->route_count; i++)
        places->routes[i] = &job->routes[i];
    places->route_count = job->route_count;
    qsort(places->routes, places->route_count, sizeof(*places->routes), by_pair);
    return 0;
}

int sl_places_find(const struct sl_job *job, const struct sl_matrix *matrix,
                   struct sl_places *places)
{
    size_t ports = (size_t)matrix->rank_count * matrix->path_count, count = job->port_count;
    struct sl_job_port *sorted = reallocarray(NULL, count + 1, sizeof(*sorted));
    int err = 0;

    *places = (struct sl_places){.job = job, .matrix = matrix, .path_count = matrix->path_count};
    if (ports > PORTS_MAX || matrix->path_count == 0) {
        places->path_count = 1;
        ports = matrix->rank_count;
    }
    for (int family = 0; family < SL_FAMILIES; family++) {
        places->group[family] = calloc(ports + 1, sizeof(uint32_t));
        err = places->group[family] == NULL || sorted == NULL ? -ENOMEM : err;
    }
    if (err != 0) {
        free(sorted);
        return sl_fail(-ENOMEM, "no memory for the places of ranks");
    }
    if (count > 0)
        memcpy(sorted, job->ports, count * sizeof(*sorted));
    qsort(sorted, count, sizeof(*sorted), by_host);
    if (matrix->count > 0)
        fill(places, sorted, count);
    free(sorted);
    name_rails(places, ports);
    for (int family = 0; family < SL_FAMILIES && err == 0; family++) {
        err = number(places, family, ports);
        if (err == 0 && places->counts[family] == 0) {
            free(places->group[family]);
            places->group[family] = NULL;
        }
    }
    return err != 0 ? err : sort_routes(places);
}

void sl_places_fini(struct sl_places *places)
{
    for (int family = 0; family < SL_FAMILIES; family++) {
        free(places->group[family]);
        free(places->names[family]);
    }
    free(places->routes);
    *places = (struct sl_places){.path_count = 0};
}

uint32_t sl_place_of(const struct sl_places *places, enum sl_family family, uint32_t rank,
                     uint32_t path)
{
    const uint32_t *group = places->group[family];

    if (group == NULL)
        return SL_PLACE_NONE;
    return group[(size_t)rank * places->path_count + (places->path_count > 1 ? path : 0)];
}
