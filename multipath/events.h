/* SPDX-License-Identifier: Apache-2.0 */
/* What happens to the paths of a connection: kinds for the event ring. */
#ifndef SL_MULTIPATH_EVENTS_H
#define SL_MULTIPATH_EVENTS_H

#include "core/event.h"

enum {
    SL_EVENT_PATH_UP = 0,
    SL_EVENT_PATH_DOWN = 1,
    SL_EVENT_PATH_FENCED = 2,
    SL_EVENT_RESEND = 3,
    SL_EVENT_CONN_WAITS = 7,
    SL_EVENT_FALLBACK_ON = 8,
    SL_EVENT_FALLBACK_OFF = 9,
    SL_EVENT_SIDEBAND_DOWN = 14,
    SL_EVENT_SIDEBAND_UP = 15,
    SL_EVENT_PATH_SET = 16,
};

extern const struct sl_event_set sl_mp_events;

#endif
