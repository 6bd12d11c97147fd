/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/proctext.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Digits only, no sign and no blank before them. */
static bool number(const char *text, const char **end, uint64_t *out)
{
    char *after;

    if (text[0] < '0' || text[0] > '9')
        return false;
    errno = 0;
    *out = strtoull(text, &after, 10);
    *end = after;
    return errno == 0;
}

static bool is_end(char c)
{
    return c == '\0' || c == '\n';
}

/* The nth word from text on, separated by one blank. */
static const char *word(const char *text, unsigned n)
{
    while (n-- > 0) {
        text = strchr(text, ' ');
        if (text == NULL)
            return NULL;
        text++;
    }
    return text;
}

static bool field(const char *text, unsigned n, uint64_t *out)
{
    const char *at = word(text, n), *end;

    return at != NULL && number(at, &end, out) && (*end == ' ' || is_end(*end));
}

/* ---- /proc ---- */

bool sl_proc_stat(const char *text, struct sl_proc_stat *out)
{
    /* A name may have brackets and blanks: the last bracket ends it. */
    const char *open = strchr(text, '('), *close = strrchr(text, ')'), *end, *rest;
    uint64_t pid, parent, threads;
    size_t len;

    if (open == NULL || close == NULL || close < open || !number(text, &end, &pid) ||
        pid > INT32_MAX || *end != ' ' || close[1] != ' ' || close[2] == '\0' || close[3] != ' ')
        return false;
    *out = (struct sl_proc_stat){.pid = (int32_t)pid, .state = close[2]};
    len = (size_t)(close - open - 1);
    if (len >= sizeof(out->comm))
        len = sizeof(out->comm) - 1;
    memcpy(out->comm, open + 1, len);
    rest = close + 4; /* the fourth field, as proc(5) counts */
    if (!field(rest, 0, &parent) || !field(rest, 8, &out->major_faults) ||
        !field(rest, 10, &out->user_ticks) || !field(rest, 11, &out->system_ticks) ||
        !field(rest, 16, &threads) || !field(rest, 18, &out->start_ticks) || parent > INT32_MAX ||
        threads > UINT32_MAX)
        return false;
    out->parent = (int32_t)parent;
    out->threads = (uint32_t)threads;
    return true;
}

bool sl_proc_schedstat(const char *text, uint64_t *run_ns, uint64_t *wait_ns, uint64_t *slices)
{
    uint64_t run, wait;

    if (!field(text, 0, &run) || !field(text, 1, &wait) || !field(text, 2, slices))
        return false;
    *run_ns = run;
    *wait_ns = wait;
    return true;
}

/* What stands behind the name at the begin of a line. */
static const char *line_of(const char *text, const char *name)
{
    size_t len = strlen(name);

    while (text != NULL && *text != '\0') {
        if (strncmp(text, name, len) == 0)
            return text + len;
        text = strchr(text, '\n');
        if (text != NULL)
            text++;
    }
    return NULL;
}

bool sl_proc_status(const char *text, uint32_t *user, int32_t *own_pid)
{
    const char *uid = line_of(text, "Uid:\t"), *pids = line_of(text, "NSpid:\t"), *end;
    uint64_t real, effective, pid = 0;

    if (uid == NULL || pids == NULL || !number(uid, &end, &real) || *end != '\t' ||
        !number(end + 1, &end, &effective) || *end != '\t' || effective > UINT32_MAX)
        return false;
    do {
        if (!number(pids, &end, &pid) || pid > INT32_MAX)
            return false;
        pids = end + 1;
    } while (*end == '\t');
    if (!is_end(*end))
        return false;
    *user = (uint32_t)effective;
    *own_pid = (int32_t)pid;
    return true;
}

/* Is it one of the words between commas? */
static bool has_controller(const char *list, size_t len, const char *controller)
{
    size_t want = strlen(controller);

    if (want == 0 || len == 0)
        return want == len;
    for (const char *at = list; at < list + len;) {
        const char *comma = memchr(at, ',', (size_t)(list + len - at));
        size_t word_len = (size_t)((comma != NULL ? comma : list + len) - at);

        if (word_len == want && memcmp(at, controller, want) == 0)
            return true;
        at += word_len + 1;
    }
    return false;
}

/* Of whole parts only: "a..b" is a name like others. */
static bool goes_up(const char *path)
{
    for (const char *at = path; (at = strstr(at, "/..")) != NULL; at += 3)
        if (at[3] == '/' || at[3] == '\0')
            return true;
    return false;
}

bool sl_proc_cgroup(const char *text, const char *controller, char *out, size_t cap)
{
    while (*text != '\0') {
        const char *first = strchr(text, ':');
        const char *second = first != NULL ? strchr(first + 1, ':') : NULL;
        size_t len = strcspn(text, "\n");

        if (second != NULL && second < text + len && second[1] == '/' &&
            has_controller(first + 1, (size_t)(second - first - 1), controller)) {
            len -= (size_t)(second + 1 - text);
            if (len >= cap)
                return false;
            memcpy(out, second + 1, len);
            out[len] = '\0';
            return !goes_up(out);
        }
        text += len;
        text += *text == '\n';
    }
    return false;
}

/* ---- cgroups ---- */

bool sl_proc_field(const char *text, const char *name, uint64_t *out)
{
    char start[64];
    const char *at, *end;

    snprintf(start, sizeof(start), "%s ", name);
    at = line_of(text, start);
    return at != NULL && number(at, &end, out) && is_end(*end);
}

bool sl_proc_pressure(const char *text, const char *which, uint64_t *total_us)
{
    char start[64];
    const char *line, *total, *end;

    snprintf(start, sizeof(start), "%s avg10=", which);
    line = line_of(text, start);
    total = line != NULL ? strstr(line, " total=") : NULL;
    return total != NULL && total < line + strcspn(line, "\n") &&
           number(total + strlen(" total="), &end, total_us) && is_end(*end);
}

bool sl_proc_limit(const char *text, uint64_t *out)
{
    const char *end;
    uint64_t value;

    if (strcmp(text, "max\n") == 0 || strcmp(text, "-1\n") == 0) {
        *out = UINT64_MAX;
        return true;
    }
    if (!number(text, &end, &value) || !is_end(*end))
        return false;
    *out = value >= UINT64_C(1) << 60 ? UINT64_MAX : value;
    return true;
}

bool sl_proc_cpu_max(const char *text, uint64_t *quota_us, uint64_t *period_us)
{
    const char *at = text, *end;
    uint64_t quota = UINT64_MAX, period;

    if (strncmp(text, "max ", 4) == 0)
        at += 4;
    else if (number(text, &end, &quota) && *end == ' ')
        at = end + 1;
    else
        return false;
    if (!number(at, &end, &period) || !is_end(*end) || period == 0)
        return false;
    *quota_us = quota;
    *period_us = period;
    return true;
}
