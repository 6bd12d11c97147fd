/* SPDX-License-Identifier: Apache-2.0 */
/* DPDK's lines: to core/log, and the first error kept for a sentence. */
#include "core/err.h"
#include "core/log.h"
#include "dpdk/port/eal.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <rte_log.h>

#define LINE_MAX_BYTES 256

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char first_error[LINE_MAX_BYTES]; /* the cause: what follows it says that others gave up */
static char last_line[LINE_MAX_BYTES];   /* a driver that polls a dead link says so each time */

/* An error of DPDK is mostly one that the caller has a sentence for, or that goes away by itself
 * (a peer that is not there yet): people see it when they ask for information. */
static enum sl_log_level level_of(int level)
{
    if (level <= (int)RTE_LOG_CRIT)
        return SL_LOG_WARN;
    if (level <= (int)RTE_LOG_WARNING)
        return SL_LOG_INFO;
    return level <= (int)RTE_LOG_INFO ? SL_LOG_DEBUG : SL_LOG_TRACE;
}

static ssize_t take_line(void *cookie, const char *text, size_t len)
{
    int level = rte_log_cur_msg_loglevel();
    char line[LINE_MAX_BYTES];
    bool again;

    (void)cookie;
    snprintf(line, sizeof(line), "%.*s", (int)len, text);
    line[strcspn(line, "\n")] = '\0';
    sl_tame_text(line);
    pthread_mutex_lock(&lock);
    if (level <= (int)RTE_LOG_ERR && first_error[0] == '\0')
        memcpy(first_error, line, sizeof(line));
    again = strcmp(line, last_line) == 0;
    memcpy(last_line, line, sizeof(line));
    pthread_mutex_unlock(&lock);
    if (!again && line[0] != '\0')
        sl_log(level_of(level), "dpdk", "%s", line);
    return (ssize_t)len;
}

int sl_dpdk_log_start(void)
{
    cookie_io_functions_t functions = {.write = take_line};
    FILE *stream = fopencookie(NULL, "w", functions);

    if (stream == NULL)
        return sl_fail(-ENOMEM, "no memory for what DPDK logs");
    setvbuf(stream, NULL, _IOLBF, 1024);
    rte_openlog_stream(stream); /* as long as the process */
    return 0;
}

void sl_dpdk_log_clear(void)
{
    pthread_mutex_lock(&lock);
    first_error[0] = '\0';
    pthread_mutex_unlock(&lock);
}

void sl_dpdk_log_first(char *out, size_t cap)
{
    pthread_mutex_lock(&lock);
    snprintf(out, cap, "%s", first_error);
    pthread_mutex_unlock(&lock);
}
