/* SPDX-License-Identifier: Apache-2.0 */
/* What happens to ports and registrations: kinds for the event ring. */
#ifndef SL_VERBS_EVENTS_H
#define SL_VERBS_EVENTS_H

#include "core/event.h"

enum {
    SL_EVENT_PORT_DOWN = 4,
    SL_EVENT_PORT_UP = 5,
    SL_EVENT_GID_CHANGE = 6,
    SL_EVENT_MR_REG = 10,
    SL_EVENT_MR_DEREG = 11,
};

extern const struct sl_event_set sl_verbs_events;

#endif
