/* SPDX-License-Identifier: Apache-2.0 */
/* What is kept of pages from look to look: as they were some time ago, and what they have forgotten
 * since: calls of their rings, and windows of the quickest messages. */
#include "core/clock.h"
#include "tools/ctl/live.h"

#include <string.h>

#define SECOND ((int64_t)1000000000)
#define CALLS_NS (60 * SECOND)
#define CALLS_MAX 4096u         /* of a process */
#define CALLS_OF_ALL (1u << 20) /* of all processes together */

/* Without an earlier one it is the page itself: what passed before it was looked at may be long
 * ago. */
const struct sl_page *sc_kept_before(const struct sc_kept *kept, const struct sl_page *page)
{
    for (unsigned k = 0; k < kept->count; k++)
        for (unsigned i = 0; i < kept->looks[k].pages.count; i++)
            if (sl_page_is_same(&kept->looks[k].pages.list[i], page))
                return &kept->looks[k].pages.list[i];
    return page;
}

/* hint: pages mostly come in the order in which they came before. */
static struct sl_page *find_last(struct sc_kept *kept, const struct sl_page *page, unsigned hint)
{
    struct sc_pages *last = &kept->last;

    for (unsigned i = 0; i < last->count; i++) {
        struct sl_page *it = &last->list[(hint + i) % last->count];

        if (sl_page_is_same(it, page))
            return it;
    }
    return NULL;
}

int sc_kept_recall(struct sc_kept *kept, struct sc_pages *pages)
{
    uint32_t most = pages->count > 0 ? CALLS_OF_ALL / pages->count : 0;
    int err = 0;

    most = most < CALLS_MAX ? most : CALLS_MAX;
    for (unsigned i = 0; i < pages->count && err == 0; i++) {
        struct sl_page *page = &pages->list[i], *last = find_last(kept, page, i);
        uint64_t latest = sl_page_latest(page);

        if (last != NULL)
            err = sl_page_join_calls(page, last, latest > CALLS_NS ? latest - CALLS_NS : 0, most);
        if (err == 0)
            err = sl_page_join_windows(page, last);
    }
    return err;
}

/* They go on to the next look, and not with the pages that are kept for longer. */
static int hand_on(struct sc_kept *kept, struct sc_pages *pages)
{
    int err = 0;

    sc_pages_free(&kept->last);
    for (unsigned i = 0; i < pages->count && err == 0; i++) {
        struct sl_page *page = &pages->list[i];
        struct sl_page it = {.self = page->self,
                             .calls = page->calls,
                             .windows = page->windows,
                             .call_count = page->call_count,
                             .window_count = page->window_count};

        page->calls = NULL;
        page->windows = NULL;
        page->call_count = page->window_count = 0;
        err = sc_pages_add(&kept->last, &it);
    }
    return err;
}

int sc_kept_add(struct sc_kept *kept, struct sc_pages *pages)
{
    int64_t now = (int64_t)sl_now(&sl_clock_monotonic);
    struct sc_kept_look *looks = kept->looks;
    int err = hand_on(kept, pages);

    if (err != 0 || (kept->count > 0 &&
                     now - looks[kept->count - 1].at_ns < SC_WINDOW_NS / (SC_KEPT_MAX - 1))) {
        sc_pages_free(pages);
        return err;
    }
    if (kept->count == SC_KEPT_MAX) {
        sc_pages_free(&looks[0].pages);
        memmove(looks, looks + 1, --kept->count * sizeof(*looks));
    }
    looks[kept->count++] = (struct sc_kept_look){*pages, now};
    return 0;
}

void sc_kept_free(struct sc_kept *kept)
{
    for (unsigned i = 0; i < kept->count; i++)
        sc_pages_free(&kept->looks[i].pages);
    sc_pages_free(&kept->last);
    kept->count = 0;
}
