/* SPDX-License-Identifier: Apache-2.0 */
/* The table of other ranks: pages that are made when they are first used. */
#include "collectives/peers.h"

#include "core/err.h"

#include <stdlib.h>
#include <string.h>

const struct sl_peer sl_peers_blank[SL_PEERS_PAGE];

static uint32_t count_pages(const struct sl_peers *peers)
{
    return (uint32_t)(((uint64_t)peers->size + SL_PEERS_PAGE - 1) / SL_PEERS_PAGE);
}

int sl_peers_init(struct sl_peers *peers, uint32_t size)
{
    *peers = (struct sl_peers){.size = size};
    peers->pages = calloc(count_pages(peers), sizeof(struct sl_peer *));
    if (peers->pages == NULL)
        return sl_fail(-ENOMEM, "no memory for a communicator of %u ranks", size);
    for (uint32_t page = 0; page < count_pages(peers); page++)
        peers->pages[page] = (struct sl_peer *)(uintptr_t)sl_peers_blank;
    return 0;
}

void sl_peers_fini(struct sl_peers *peers)
{
    for (uint32_t i = 0; i < peers->used_count; i++)
        free(peers->pages[peers->used[i]]);
    free(peers->used);
    free(peers->pages);
    *peers = (struct sl_peers){.size = 0};
}

/* The place in used[] of the first page from there on. */
static uint32_t find_used(const struct sl_peers *peers, uint32_t page)
{
    uint32_t low = 0, high = peers->used_count;

    while (low < high) {
        uint32_t mid = low + (high - low) / 2;

        if (peers->used[mid] < page)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static bool note_used(struct sl_peers *peers, uint32_t page)
{
    uint32_t at = find_used(peers, page);

    if (peers->used_count == peers->used_room) {
        uint32_t room = peers->used_room != 0 ? 2 * peers->used_room : 4;
        uint32_t *used = realloc(peers->used, room * sizeof(*used));

        if (used == NULL)
            return false;
        peers->used = used;
        peers->used_room = room;
    }
    memmove(peers->used + at + 1, peers->used + at,
            (peers->used_count - at) * sizeof(*peers->used));
    peers->used[at] = page;
    peers->used_count++;
    return true;
}

struct sl_peer *sl_peers_make(struct sl_peers *peers, uint32_t rank)
{
    uint32_t page = rank / SL_PEERS_PAGE;

    if (peers->pages[page] == sl_peers_blank) {
        struct sl_peer *fresh = calloc(SL_PEERS_PAGE, sizeof(*fresh));

        if (fresh == NULL || !note_used(peers, page)) {
            free(fresh);
            return NULL;
        }
        peers->pages[page] = fresh;
    }
    return sl_peers_at(peers, rank);
}

uint32_t sl_peers_next(const struct sl_peers *peers, uint32_t rank)
{
    uint32_t page = rank / SL_PEERS_PAGE, at;

    if (rank >= peers->size || peers->pages[page] != sl_peers_blank)
        return rank < peers->size ? rank : peers->size;
    at = find_used(peers, page);
    return at < peers->used_count ? peers->used[at] * SL_PEERS_PAGE : peers->size;
}
