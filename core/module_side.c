/* SPDX-License-Identifier: Apache-2.0 */
/* Compiled into each module, never into the library: the functions of core that a transport calls
 * where the process has the state. */
#include "core/err.h"
#include "core/event.h"
#include "core/log.h"
#include "core/module.h"
#include "core/registry.h"

#include <stdio.h>
#include <stdlib.h>

#define TEXT_MAX 1024

const struct sl_module_host *sl_module_host; /* the loader's */

int sl_fail_in(const char *file, int code, const char *fmt, ...)
{
    char text[SL_ERROR_TEXT_MAX];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    return sl_module_host->fail_in(file, code, text);
}

const char *sluice_last_error(void)
{
    return sl_module_host->last_error();
}

const char *sluice_strerror(int code)
{
    return sl_module_host->strerror(code);
}

void sl_tame_text(char *text)
{
    sl_module_host->tame_text(text);
}

void sl_assert_failed(const char *expr, const char *file, int line)
{
    sl_module_host->assert_failed(expr, file, line);
    abort();
}

int sl_log_enabled(const char *area, enum sl_log_level level)
{
    return sl_module_host->log_enabled(area, level);
}

void sl_log_write(enum sl_log_level level, const char *area, const char *fmt, ...)
{
    char line[TEXT_MAX];
    va_list args;

    va_start(args, fmt);
    vsnprintf(line, sizeof(line), fmt, args);
    va_end(args);
    sl_module_host->log_line(level, area, line);
}

void sl_event_put(struct sl_event_ring *ring, const struct sl_event *event)
{
    sl_module_host->event_put(ring, event);
}

const struct sl_transport_ops *sl_transport_with(uint32_t traits)
{
    return sl_module_host->transport_with(traits);
}
