/* SPDX-License-Identifier: Apache-2.0 */
/* The sequence that repeats, as a step of training does. */
#include "monitor/diagnosis/selftime.h"
#include "core/err.h"

#include <errno.h>
#include <stdlib.h>

/* Where the smallest turn of a cycle begins (K. S. Booth, "Lexicographically least circular
 * substrings", Inf. Process. Lett. 10, 1980; here by two candidates that run against each
 * other). */
static size_t least_turn(const uint64_t *cycle, size_t len)
{
    size_t a = 0, b = 1, same = 0;

    while (a < len && b < len && same < len) {
        uint64_t x = cycle[(a + same) % len], y = cycle[(b + same) % len];

        if (x == y) {
            same++;
            continue;
        }
        if (x > y)
            a += same + 1;
        else
            b += same + 1;
        if (a == b)
            b++;
        same = 0;
    }
    return a < b ? a : b;
}

/* Knuth, Morris and Pratt's table of the sequence from its end: a prefix of length n that begins
 * as it ends with table[n - 1] entries has period n - table[n - 1]. */
static void fill(const uint64_t *list, size_t count, size_t *table)
{
    size_t len = 0;

    table[0] = 0;
    for (size_t i = 1; i < count; i++) {
        while (len > 0 && list[count - 1 - i] != list[count - 1 - len])
            len = table[len - 1];
        if (list[count - 1 - i] == list[count - 1 - len])
            len++;
        table[i] = len;
    }
}

int sl_period_find(const uint64_t *list, size_t count, size_t *at, size_t *period)
{
    size_t *table, best = 0, turn;

    if (count < 3)
        return -ENOENT;
    table = reallocarray(NULL, count, sizeof(*table));
    if (table == NULL)
        return sl_fail(-ENOMEM, "no memory to find the steps of %zu operations", count);
    fill(list, count, table);
    for (size_t n = count; n >= 3 && best == 0; n--)
        if ((n - table[n - 1]) * 3 <= n)
            best = n;
    if (best > 0)
        *period = best - table[best - 1];
    free(table);
    if (best == 0)
        return -ENOENT;
    turn = least_turn(list + count - best, *period);
    *at = count - best + turn;
    return 0;
}
