/* SPDX-License-Identifier: Apache-2.0 */
/* The median of times: most of what it takes to compare ranks. */
#include "monitor/diagnosis/peers.h"

#include <math.h>

#define MANY 64     /* a list that is narrowed down; a shorter one is parted by pivots */
#define FEW 16      /* to which it is */
#define HALVINGS 32 /* at most */

/* The element that would be at `at`; smaller ones lie before it afterwards (C. A. R. Hoare,
 * "Algorithm 65: find", Commun. ACM 4, 1961). */
static double select_at(double *list, size_t count, size_t at)
{
    size_t low = 0, high = count - 1;

    while (low < high) {
        double pivot = list[low + (high - low) / 2];
        size_t i = low, j = high;

        for (;;) {
            while (list[i] < pivot)
                i++;
            while (list[j] > pivot)
                j--;
            if (i >= j)
                break;
            double swap = list[i];

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

/* The compiler counts several at a time, without a branch. */
static size_t count_below(const double *list, size_t count, double limit)
{
    size_t below = 0;

    for (size_t i = 0; i < count; i++)
        below += list[i] < limit;
    return below;
}

/* As select_at(), and the list stays: the interval that the element is in is made smaller until it
 * holds few. False: it does not become small (many are equal). */
static bool narrow(const double *list, size_t count, size_t at, double *out)
{
    double low = list[0], high = list[0], few[FEW];
    size_t below = 0, above = count, kept = 0;

    for (size_t i = 0; i < count; i++) {
        low = list[i] < low ? list[i] : low;
        high = list[i] > high ? list[i] : high;
    }
    high = nextafter(high, INFINITY);
    for (unsigned tries = 0; above - below > FEW && tries < HALVINGS; tries++) {
        /* In proportion, then in the middle, in case that some are far away. */
        double share = tries % 2 ? 0.5 : ((double)(at - below) + 0.5) / (double)(above - below);
        double middle = low + (high - low) * share;
        size_t less = count_below(list, count, middle);

        if (less <= at) {
            low = middle;
            below = less;
        } else {
            high = middle;
            above = less;
        }
    }
    if (above - below > FEW)
        return false;
    for (size_t i = 0; i < count && kept < above - below; i++) {
        few[kept] = list[i];
        kept += list[i] >= low && list[i] < high;
    }
    *out = select_at(few, kept, at - below);
    return true;
}

static double by_pivots(double *list, size_t count)
{
    double upper = select_at(list, count, count / 2), lower = list[0];

    if (count % 2 != 0)
        return upper;
    for (size_t i = 1; i < count / 2; i++)
        lower = list[i] > lower ? list[i] : lower;
    return (lower + upper) / 2;
}

double sl_median(double *list, size_t count)
{
    size_t known = 0;
    double upper, lower;

    for (size_t i = 0; i < count; i++) {
        list[known] = list[i];
        known += !isnan(list[i]);
    }
    if (known == 0)
        return 0;
    if (known <= MANY || !narrow(list, known, known / 2, &upper))
        return by_pivots(list, known);
    if (known % 2 != 0)
        return upper;
    return narrow(list, known, known / 2 - 1, &lower) ? (lower + upper) / 2
                                                      : by_pivots(list, known);
}
