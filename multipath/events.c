/* SPDX-License-Identifier: Apache-2.0 */
/* The words of what happens to paths. */
#include "multipath/events.h"

#include "core/err.h"

static const struct sl_event_kind kinds[] = {
    {SL_EVENT_PATH_UP, "path_up", "path", "epoch", SL_EVENT_SHOW_FIRST},
    {SL_EVENT_PATH_DOWN, "path_down", "path", "status", SL_EVENT_SHOW},
    {SL_EVENT_PATH_FENCED, "path_fenced", "path", "arrived", SL_EVENT_SHOW},
    {SL_EVENT_RESEND, "resend", "path", "pieces", SL_EVENT_SHOW},
    {SL_EVENT_PATH_SET, "path_set", "path", "weight", SL_EVENT_SHOW},
    {SL_EVENT_CONN_WAITS, "conn_waits", "paths", "", SL_EVENT_SHOW},
    {SL_EVENT_FALLBACK_ON, "fallback_on", "", "", SL_EVENT_SHOW},
    {SL_EVENT_FALLBACK_OFF, "fallback_off", "path", "", SL_EVENT_SHOW},
    {SL_EVENT_SIDEBAND_DOWN, "sideband_down", "connection", "status", SL_EVENT_SHOW},
    {SL_EVENT_SIDEBAND_UP, "sideband_up", "connection", "", SL_EVENT_SHOW},
};

const struct sl_event_set sl_mp_events = {
    .area = "multipath", .kinds = kinds, .count = SL_ARRAY_LEN(kinds)};
