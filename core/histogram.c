/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a histogram: total and percentiles. */
#include "core/histogram.h"

uint64_t sl_histogram_total(const uint64_t bins[SL_HISTOGRAM_BINS])
{
    uint64_t total = 0;

    for (unsigned i = 0; i < SL_HISTOGRAM_BINS; i++)
        total += bins[i];
    return total;
}

double sl_histogram_percentile(const uint64_t bins[SL_HISTOGRAM_BINS], double percent)
{
    double wanted = percent / 100 * (double)sl_histogram_total(bins), below = 0;
    double last = 0;

    for (unsigned i = 0; i < SL_HISTOGRAM_BINS; i++) {
        double low = i == 0 ? 0 : (double)(UINT64_C(1) << (i - 1)), width = i == 0 ? 0 : low;

        if (bins[i] == 0)
            continue;
        if (below + (double)bins[i] >= wanted)
            return low + width * (wanted - below) / (double)bins[i];
        below += (double)bins[i];
        last = low + width;
    }
    return last; /* wanted was rounded up past the last one */
}
