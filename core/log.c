/* SPDX-License-Identifier: Apache-2.0 */
/* Formats log lines and hands them to the sink. */
#include "core/log.h"
#include "core/stderr_line.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define AREAS_MAX 16
#define AREA_NAME_MAX 16
#define LINE_MAX_BYTES 2048
#define SPEC_MAX_BYTES 256

static const char *const level_names[] = {"error", "warn", "info", "debug", "trace"};

static struct {
    char area[AREA_NAME_MAX];
    enum sl_log_level level;
} areas[AREAS_MAX];
static size_t area_count;
static enum sl_log_level default_level = SL_LOG_WARN;
static _Thread_local int thread_rank = -1;

static void stderr_sink(void *arg, enum sl_log_level level, const char *area, const char *line)
{
    (void)arg;
    (void)area;
    sl_stderr_line("sluice %s %s", level_names[level], line);
}

static sl_log_sink *sink = stderr_sink;
static void *sink_arg;

static int parse_level(const char *text, size_t len, enum sl_log_level *out)
{
    for (size_t i = 0; i < SL_ARRAY_LEN(level_names); i++) {
        if (strlen(level_names[i]) == len && memcmp(level_names[i], text, len) == 0) {
            *out = (enum sl_log_level)i;
            return 0;
        }
    }
    return -EINVAL;
}

static int parse_item(const char *item, size_t len)
{
    const char *colon = memchr(item, ':', len);
    enum sl_log_level level;

    if (colon == NULL) {
        if (parse_level(item, len, &level) != 0)
            return -EINVAL;
        default_level = level;
        return 0;
    }
    size_t name_len = (size_t)(colon - item);
    if (name_len == 0 || name_len >= AREA_NAME_MAX || area_count == AREAS_MAX)
        return -EINVAL;
    if (parse_level(colon + 1, len - name_len - 1, &level) != 0)
        return -EINVAL;
    memcpy(areas[area_count].area, item, name_len);
    areas[area_count].area[name_len] = '\0';
    areas[area_count++].level = level;
    return 0;
}

static int configure(const char *spec)
{
    area_count = 0;
    default_level = SL_LOG_WARN;
    while (*spec != '\0') {
        size_t len = strcspn(spec, ",");

        if (parse_item(spec, len) != 0)
            return sl_fail(-EINVAL,
                           "'%.*s' in the log setting is not LEVEL or AREA:LEVEL with one of error "
                           "warn info debug trace",
                           (int)len, spec);
        spec += len;
        spec += *spec == ',';
    }
    return 0;
}

/* Threads that make communicators at the same time bring the same setting: only a new one is
 * written, as others may be reading. */
int sl_log_configure(const char *spec)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static char current[SPEC_MAX_BYTES];
    int err = 0;

    pthread_mutex_lock(&lock);
    if (current[0] == '\0' || strcmp(current, spec) != 0) {
        err = configure(spec);
        snprintf(current, sizeof(current), "%s", err == 0 ? spec : "");
    }
    pthread_mutex_unlock(&lock);
    return err;
}

void sl_log_set_sink(sl_log_sink *new_sink, void *arg)
{
    sink = new_sink != NULL ? new_sink : stderr_sink;
    sink_arg = arg;
}

void sl_log_set_rank(int rank)
{
    thread_rank = rank;
}

int sl_log_enabled(const char *area, enum sl_log_level level)
{
    for (size_t i = 0; i < area_count; i++)
        if (strcmp(areas[i].area, area) == 0)
            return level <= areas[i].level;
    return level <= default_level;
}

void sl_log_write(enum sl_log_level level, const char *area, const char *fmt, ...)
{
    char line[LINE_MAX_BYTES];
    int at = thread_rank >= 0 ? snprintf(line, sizeof(line), "%s rank %d: ", area, thread_rank)
                              : snprintf(line, sizeof(line), "%s: ", area);
    va_list args;

    va_start(args, fmt);
    vsnprintf(line + at, sizeof(line) - (size_t)at, fmt, args);
    va_end(args);
    sink(sink_arg, level, area, line);
}
