/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/diagnosis/comm_lasting.h"
#include "core/err.h"
#include "monitor/diagnosis/verdict_text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DRAWN_S 3600.0
#define HELD_S (100 * 86400.0)
#define LOOKS 2

/* A line for each part that stands out in a window of that length; NULL: no memory. */
static char *find_names(const struct sl_job *job, struct sl_comm_options options, double window_s)
{
    struct sl_verdicts verdicts = {.list = NULL};
    char *names = NULL;

    options.window_s = window_s;
    options.looks = LOOKS;
    if (sl_comm_find(job, &options, &verdicts) == 0)
        names = sl_verdicts_names(job, &verdicts);
    sl_verdicts_free(&verdicts);
    return names;
}

static bool has_line(const char *lines, const char *line, size_t len)
{
    for (const char *at = lines; *at != '\0'; at = strchr(at, '\n') + 1)
        if (strncmp(at, line, len) == 0)
            return true;
    return false;
}

static bool are_among(const char *lines, const char *others)
{
    for (const char *at = lines; *at != '\0';) {
        size_t len = (size_t)(strchr(at, '\n') - at) + 1;

        if (!has_line(others, at, len))
            return false;
        at += len;
    }
    return true;
}

/* Whether what is followed still stands out, if less, and nothing else does. 0 or -ENOMEM. */
static int is_held(const struct sl_comm_lasting *lasting, const struct sl_job *job,
                   const struct sl_comm_options *options, const char *names, bool *out)
{
    char *loose;

    *out = lasting->names != NULL && are_among(names, lasting->names);
    if (!*out || strcmp(names, lasting->names) == 0)
        return 0;
    loose = find_names(job, *options, HELD_S);
    if (loose == NULL)
        return -ENOMEM;
    *out = are_among(lasting->names, loose);
    free(loose);
    return 0;
}

int sl_comm_lasting_look(struct sl_comm_lasting *lasting, const struct sl_job *job, int64_t now_ns,
                         int64_t apart_ns, struct sl_comm_options *options)
{
    char *names = find_names(job, *options, DRAWN_S);
    bool held, is_same;

    if (names == NULL || is_held(lasting, job, options, names, &held) != 0) {
        free(names);
        return sl_fail(-ENOMEM, "no memory for verdicts");
    }
    if (!held) {
        free(lasting->names);
        lasting->names = names;
        lasting->since_ns = now_ns;
        return 0;
    }
    is_same = names[0] != '\0' && strcmp(names, lasting->names) == 0;
    free(names);
    if (is_same && now_ns - lasting->since_ns >= apart_ns) {
        options->window_s = DRAWN_S;
        options->looks = LOOKS;
    }
    return 0;
}

void sl_comm_lasting_free(struct sl_comm_lasting *lasting)
{
    free(lasting->names);
    *lasting = (struct sl_comm_lasting){.names = NULL};
}
