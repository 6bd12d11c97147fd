/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/cluster/book.h"

#include "core/err.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct updating {
    struct sl_book *book;
    uint64_t now_ns, confirm_ns;
    int64_t now_ms;
    void (*changed)(void *arg, const struct sl_book_entry *entry);
    void *arg;
};

static void change(const struct updating *updating, struct sl_book_entry *entry)
{
    entry->change = ++updating->book->changes;
    if (updating->changed != NULL)
        updating->changed(updating->arg, entry);
}

/* The rules give it. */
static void seen(const struct updating *updating, struct sl_book_entry *entry)
{
    if (entry->closed_ms != 0) { /* it is back */
        entry->first_ns = updating->now_ns;
        entry->opened_ms = entry->closed_ms = 0;
        entry->has_acted = entry->has_case = entry->has_case_of_act = false;
        entry->case_tries = 0;
    }
    entry->last_ns = updating->now_ns;
    if (entry->opened_ms == 0 && updating->now_ns - entry->first_ns >= updating->confirm_ns) {
        entry->opened_ms = updating->now_ms;
        updating->book->opened++;
        entry->has_acted = entry->verdict.act;
        change(updating, entry);
    } else if (entry->opened_ms != 0 && entry->verdict.act && !entry->has_acted) {
        entry->has_acted = true;
        change(updating, entry);
    }
}

/* They do not. False: it was never open, and goes. */
static bool unseen(const struct updating *updating, struct sl_book_entry *entry)
{
    if (entry->opened_ms == 0)
        return false;
    if (entry->closed_ms == 0 && updating->now_ns - entry->last_ns >= updating->confirm_ns) {
        entry->closed_ms = updating->now_ms;
        updating->book->closed++;
        change(updating, entry);
    }
    return true;
}

/* Of those that are closed, the oldest go. */
static void drop_old(struct sl_book *book)
{
    unsigned closed = 0, kept = 0;
    uint64_t before = 0;

    for (unsigned i = 0; i < book->count; i++)
        closed += book->list[i].closed_ms != 0;
    if (closed <= SL_BOOK_CLOSED_MAX)
        return;
    for (; closed > SL_BOOK_CLOSED_MAX; closed--) {
        uint64_t oldest = UINT64_MAX;

        for (unsigned i = 0; i < book->count; i++)
            if (book->list[i].closed_ms != 0 && book->list[i].change > before &&
                book->list[i].change < oldest)
                oldest = book->list[i].change;
        before = oldest;
    }
    for (unsigned i = 0; i < book->count; i++)
        if (book->list[i].closed_ms != 0 && book->list[i].change <= before)
            sl_cluster_verdict_fini(&book->list[i].verdict);
        else
            book->list[kept++] = book->list[i];
    book->count = kept;
}

/* Both lists are by id, and so is what comes of them. */
int sl_book_update(struct sl_book *book, struct sl_cluster_verdicts *verdicts, uint64_t now_ns,
                   int64_t now_ms, uint64_t confirm_ns,
                   void (*changed)(void *arg, const struct sl_book_entry *entry), void *arg)
{
    const struct updating updating = {book, now_ns, confirm_ns, now_ms, changed, arg};
    struct sl_book_entry *list = calloc((size_t)book->count + verdicts->count + 1, sizeof(*list));
    unsigned old = 0, new = 0, count = 0;

    if (list == NULL)
        return sl_fail(-ENOMEM, "no memory for the cluster's verdicts");
    while (old < book->count || new < verdicts->count) {
        int order = old == book->count ? 1
                    : new == verdicts->count
                        ? -1
                        : strcmp(book->list[old].verdict.id, verdicts->list[new].id);
        struct sl_book_entry *entry = &list[count];

        if (order > 0) {
            *entry = (struct sl_book_entry){.verdict = verdicts->list[new ++], .first_ns = now_ns};
            seen(&updating, entry);
            count++;
            continue;
        }
        *entry = book->list[old++];
        if (order < 0) {
            if (unseen(&updating, entry))
                count++;
            else
                sl_cluster_verdict_fini(&entry->verdict);
            continue;
        }
        sl_cluster_verdict_fini(&entry->verdict);
        entry->verdict = verdicts->list[new ++];
        seen(&updating, entry);
        count++;
    }
    free(book->list);
    free(verdicts->list);
    *verdicts = (struct sl_cluster_verdicts){.count = 0};
    book->list = list;
    book->count = count;
    drop_old(book);
    return 0;
}

void sl_book_fini(struct sl_book *book)
{
    for (unsigned i = 0; i < book->count; i++)
        sl_cluster_verdict_fini(&book->list[i].verdict);
    free(book->list);
    *book = (struct sl_book){.count = 0};
}
