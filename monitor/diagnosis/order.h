/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Order statistics of a list of numbers, for the file that includes this once. Before it:
 *
 *     #define ORDER_NUMBER float
 *     #define ORDER_COUNT uint32_t     as wide as a number: several are counted at a time then
 *     #define ORDER_NEXT nextafterf
 */
#ifndef SL_MONITOR_DIAGNOSIS_ORDER_H
#define SL_MONITOR_DIAGNOSIS_ORDER_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ORDER_MANY 64     /* a list that is narrowed down; a shorter one is parted by pivots */
#define ORDER_FEW 16      /* to which it is */
#define ORDER_HALVINGS 32 /* at most */

static ORDER_NUMBER middle_of(ORDER_NUMBER a, ORDER_NUMBER b, ORDER_NUMBER c)
{
    if (a > b) {
        ORDER_NUMBER swap = a;

        a = b;
        b = swap;
    }
    return c < a ? a : c > b ? b : c;
}

/* The element that would be at `at`; smaller ones lie before it afterwards (C. A. R. Hoare,
 * "Algorithm 65: find", Commun. ACM 4, 1961). */
static ORDER_NUMBER select_at(ORDER_NUMBER *list, size_t count, size_t at)
{
    size_t low = 0, high = count - 1;

    while (low < high) {
        ORDER_NUMBER pivot = middle_of(list[low], list[low + (high - low) / 2], list[high]);
        size_t i = low, j = high;

        for (;;) {
            while (list[i] < pivot)
                i++;
            while (list[j] > pivot)
                j--;
            if (i >= j)
                break;
            ORDER_NUMBER swap = list[i];

            list[i++] = list[j];
            list[j--] = swap;
        }
        if (j == high)
            j--;
        if (at <= j)
            high = j;
        else
            low = j + 1;
    }
    return list[at];
}

/* How many are less. The compiler counts without a branch. */
static size_t count_below(const ORDER_NUMBER *list, size_t count, ORDER_NUMBER limit)
{
    ORDER_COUNT below = 0;

    for (ORDER_COUNT i = 0; i < (ORDER_COUNT)count; i++)
        below += list[i] < limit;
    return below;
}

/* As select_at(), of finite numbers, and the list stays: the interval that the element is in is
 * made smaller until it holds few. False: it does not become small (many are equal). */
static bool narrow(const ORDER_NUMBER *list, size_t count, size_t at, ORDER_NUMBER *out)
{
    ORDER_NUMBER low = list[0], high = list[0], few[ORDER_FEW];
    size_t below = 0, above = count, kept = 0;

    for (size_t i = 0; i < count; i++) {
        low = list[i] < low ? list[i] : low;
        high = list[i] > high ? list[i] : high;
    }
    high = ORDER_NEXT(high, INFINITY);
    for (unsigned tries = 0; above - below > ORDER_FEW && tries < ORDER_HALVINGS; tries++) {
        /* In proportion, then in the middle, in case that some are far away. */
        ORDER_NUMBER share = tries % 2 ? (ORDER_NUMBER)0.5
                                       : ((ORDER_NUMBER)(at - below) + (ORDER_NUMBER)0.5) /
                                             (ORDER_NUMBER)(above - below);
        ORDER_NUMBER middle = low + (high - low) * share;
        size_t less = count_below(list, count, middle);

        if (less <= at) {
            low = middle;
            below = less;
        } else {
            high = middle;
            above = less;
        }
    }
    if (above - below > ORDER_FEW)
        return false;
    for (size_t i = 0; i < count && kept < above - below; i++) {
        few[kept] = list[i];
        kept += list[i] >= low && list[i] < high;
    }
    *out = select_at(few, kept, at - below);
    return true;
}

#endif
