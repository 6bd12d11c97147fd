/* SPDX-License-Identifier: Apache-2.0 */
/* Where the ranks of a collective over several hosts are, and how their windows are cut. */
#include "schedules/hier.h"

#include "core/err.h"

#include <stdlib.h>

int sl_hier_map_init(struct sl_hier_map *map, const struct sl_shape *shape)
{
    uint32_t n = shape->size;

    *map = (struct sl_hier_map){.least = UINT32_MAX};
    if (shape->host == NULL || sl_one_host(shape))
        return sl_fail(-ENOTSUP, "hier needs ranks on several hosts");
    map->ranks = calloc(2 * (size_t)n + 2, sizeof(*map->ranks));
    if (map->ranks == NULL)
        return sl_fail(-ENOMEM, "no memory for the hosts of %u ranks", n);
    map->first = map->ranks + n;
    /* Counting sort: first[h + 2] counts host h, then first[h + 1] is where its next rank goes. */
    for (uint32_t r = 0; r < n; r++) {
        map->hosts = (uint32_t)sl_max(map->hosts, shape->host[r] + 1);
        map->first[shape->host[r] + 2]++;
        map->idx += r < shape->rank && shape->host[r] == shape->host[shape->rank];
    }
    for (uint32_t h = 0; h < map->hosts; h++) {
        uint32_t ranks = map->first[h + 2];
        map->most = (uint32_t)sl_max(map->most, ranks);
        map->least = (uint32_t)sl_min(map->least, ranks);
        map->first[h + 2] += map->first[h + 1];
    }
    for (uint32_t r = 0; r < n; r++)
        map->ranks[map->first[shape->host[r] + 1]++] = r;
    map->me = shape->host[shape->rank];
    map->local = sl_hier_ranks_of(map, map->me);
    if (map->most > 1)
        return 0;
    sl_hier_map_fini(map);
    return sl_fail(-ENOTSUP, "hier needs a host with several ranks");
}

void sl_hier_map_fini(struct sl_hier_map *map)
{
    free(map->ranks);
    map->ranks = map->first = NULL;
}

int sl_hier_group(struct sl_schedule *s, const struct sl_shape *shape,
                  const struct sl_hier_map *map)
{
    if (map->local == 1)
        return 0;
    s->group = sl_host_members(shape, &s->group_count);
    if (s->group == NULL)
        return sl_fail(-ENOMEM, "no memory for a group of %u ranks", map->local);
    return 0;
}

uint64_t sl_hier_piece(const struct sl_shape *shape, uint64_t default_bytes, uint64_t areas,
                       uint64_t *base)
{
    uint64_t line = shape->esize < 64 ? 64 / shape->esize : 1;
    uint64_t piece = sl_min(sl_piece(shape, default_bytes), shape->count);

    *base = SL_WIN_INLINE_BYTES / shape->esize;
    if (shape->win_count <= *base)
        return 0;
    uint64_t room = (shape->win_count - *base) / areas;
    room -= room % line;
    return sl_min(piece, room);
}
