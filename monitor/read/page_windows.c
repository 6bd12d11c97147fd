/* SPDX-License-Identifier: Apache-2.0 */
/* Windows of the quickest messages that earlier looks at a page saw. */
#include "core/err.h"
#include "monitor/read/page_inside.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool is_same(const struct sl_page_windows *a, const struct sl_page_windows *b)
{
    return a->comm == b->comm && a->peer == b->peer && a->number == b->number &&
           memcmp(a->name, b->name, sizeof(a->name)) == 0;
}

/* hint: paths mostly come in the order in which they came before. */
static const struct sl_page_windows *find(const struct sl_page *page,
                                          const struct sl_page_windows *like, uint32_t hint)
{
    for (uint32_t i = 0; page != NULL && i < page->window_count; i++) {
        const struct sl_page_windows *it = &page->windows[(hint + i) % page->window_count];

        if (is_same(it, like))
            return it;
    }
    return NULL;
}

/* Those older than the look's own, which it knows better. */
static void join(struct sl_page_windows *to, const struct sl_page_windows *before)
{
    unsigned count = 0;

    while (count < SL_PAGE_WINDOWS && to->of[count].window != 0)
        count++;
    for (unsigned i = 0; i < SL_PAGE_WINDOWS && count < SL_PAGE_WINDOWS; i++) {
        const struct sl_state_quickest *it = &before->of[i];

        if (it->window != 0 && (count == 0 || it->window < to->of[count - 1].window))
            to->of[count++] = *it;
    }
}

/* In whatever order they are told. */
static void take_own(struct sl_page_windows *to, const struct sl_state_path *path)
{
    bool is_turned = path->quickest[1].window > path->quickest[0].window;

    to->of[0] = path->quickest[is_turned];
    if (path->quickest[!is_turned].window != to->of[0].window)
        to->of[1] = path->quickest[!is_turned];
}

int sl_page_join_windows(struct sl_page *page, const struct sl_page *before)
{
    struct sl_page_windows *all = calloc((size_t)page->path_count + 1, sizeof(*all));

    if (all == NULL)
        return sl_fail(-ENOMEM, "no memory for what came by %u paths", page->path_count);
    for (uint32_t i = 0; i < page->path_count; i++) {
        const struct sl_state_path *path = &page->paths[i];
        const struct sl_page_windows *was;

        all[i].comm = sl_page_comm_id(page, path->comm);
        all[i].peer = path->peer;
        all[i].number = path->number;
        memcpy(all[i].name, path->name, sizeof(all[i].name));
        take_own(&all[i], path);
        was = find(before, &all[i], i);
        if (was != NULL)
            join(&all[i], was);
    }
    free(page->windows);
    page->windows = all;
    page->window_count = page->path_count;
    return 0;
}
