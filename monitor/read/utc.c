/* SPDX-License-Identifier: Apache-2.0 */
/* Times of the form of RFC 3339, UTC alone. */
#include "monitor/read/utc.h"
#include "monitor/diagnosis/job.h"

#include <stdbool.h>
#include <string.h>

/* Digits at at[0..count): their number, or -1. */
static int64_t digits(const char *at, unsigned count)
{
    int64_t number = 0;

    for (unsigned i = 0; i < count; i++) {
        if (at[i] < '0' || at[i] > '9')
            return -1;
        number = number * 10 + (at[i] - '0');
    }
    return number;
}

/* Days since 1970-01-01 of the Gregorian calendar. */
static int64_t days_of(int64_t year, int64_t month, int64_t day)
{
    static const int before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
    int64_t past = year - 1;
    bool is_leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;

    return past * 365 + past / 4 - past / 100 + past / 400 - 719162 + before[month - 1] +
           (is_leap && month > 2) + day - 1;
}

int64_t sl_utc_ns(const char *text, size_t len)
{
    int64_t year, month, day, hour, minute, second, ns = 0;
    size_t at = 19;

    if (len < 20 || len > 32 || text[4] != '-' || text[7] != '-' || text[10] != 'T' ||
        text[13] != ':' || text[16] != ':')
        return SL_JOB_NEVER;
    year = digits(text, 4);
    month = digits(text + 5, 2);
    day = digits(text + 8, 2);
    hour = digits(text + 11, 2);
    minute = digits(text + 14, 2);
    second = digits(text + 17, 2);
    if (year < 1970 || year > 2200 || month < 1 || month > 12 || day < 1 || day > 31 || hour < 0 ||
        hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 60)
        return SL_JOB_NEVER;
    if (text[at] == '.') {
        int64_t scale = 100000000;

        for (at++; at < len && text[at] >= '0' && text[at] <= '9'; at++, scale /= 10)
            ns += (text[at] - '0') * scale;
    }
    if (at + 1 != len || text[at] != 'Z')
        return SL_JOB_NEVER;
    return (((days_of(year, month, day) * 24 + hour) * 60 + minute) * 60 + second) * 1000000000 +
           ns;
}
