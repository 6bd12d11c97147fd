/* SPDX-License-Identifier: Apache-2.0 */
/* The median of times: most of what it takes to compare ranks. */
#include "monitor/diagnosis/peers.h"

#define ORDER_NUMBER double
#define ORDER_COUNT uint64_t
#define ORDER_NEXT nextafter
#include "monitor/diagnosis/order.h"

#include <math.h>

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
    if (known <= ORDER_MANY || !narrow(list, known, known / 2, &upper))
        return by_pivots(list, known);
    if (known % 2 != 0)
        return upper;
    return narrow(list, known, known / 2 - 1, &lower) ? (lower + upper) / 2
                                                      : by_pivots(list, known);
}
