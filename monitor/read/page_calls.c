/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of a page's earlier looks, which its ring has forgotten since. */
#include "core/err.h"
#include "monitor/read/page.h"

#include <errno.h>
#include <stdlib.h>

/* By its number; two looks have the same call with the same one. */
static int by_turn(const void *a, const void *b)
{
    uint64_t x = ((const struct sl_state_call *)a)->turn;
    uint64_t y = ((const struct sl_state_call *)b)->turn;

    return x < y ? -1 : x > y;
}

static void sort(struct sl_page *page)
{
    qsort(page->calls, page->call_count, sizeof(*page->calls), by_turn);
}

/* How many of the earlier look's calls come before `first`, and are young enough. *from: the first
 * of these. Both are sorted. */
static uint32_t choose(const struct sl_page *before, uint64_t first, uint64_t since_ns,
                       uint32_t most, uint32_t *from)
{
    uint32_t end = 0, begin;

    while (end < before->call_count && before->calls[end].turn < first)
        end++;
    begin = end > most ? end - most : 0;
    while (begin < end && before->calls[begin].ended_ns < since_ns)
        begin++;
    *from = begin;
    return end - begin;
}

/* Nothing is missing between the looks: of a job whose calls were more than its ring has room for,
 * what is left out would be taken for time of its own. */
static bool is_without_gap(const struct sl_page *before, const struct sl_page *page)
{
    return before->calls[before->call_count - 1].turn + 2 >= page->calls[0].turn;
}

int sl_page_join_calls(struct sl_page *page, struct sl_page *before, uint64_t since_ns,
                       uint32_t most)
{
    struct sl_state_call *all;
    uint32_t from, count;

    sort(page);
    sort(before);
    if (before->call_count == 0 || page->call_count == 0 || page->call_count >= most ||
        !is_without_gap(before, page))
        return 0;
    count = choose(before, page->calls[0].turn, since_ns, most - page->call_count, &from);
    if (count == 0)
        return 0;
    all = reallocarray(NULL, (size_t)count + page->call_count, sizeof(*all));
    if (all == NULL)
        return sl_fail(-ENOMEM, "no memory for %u calls", count + page->call_count);
    for (uint32_t i = 0; i < count; i++)
        all[i] = before->calls[from + i];
    for (uint32_t i = 0; i < page->call_count; i++)
        all[count + i] = page->calls[i];
    free(page->calls);
    page->calls = all;
    page->call_count += count;
    return 0;
}
