/* SPDX-License-Identifier: Apache-2.0 */
/* The words of what happens to ports and registrations. */
#include "verbs/events.h"

#include "core/err.h"
#include "multipath/events.h"

static const struct sl_event_kind kinds[] = {
    {SL_EVENT_PORT_DOWN, "port_down", "rail", "state", SL_EVENT_SHOW},
    {SL_EVENT_PORT_UP, "port_up", "rail", "state", SL_EVENT_SHOW_FIRST},
    {SL_EVENT_GID_CHANGE, "gid_change", "rail", "index", SL_EVENT_SHOW},
    {SL_EVENT_MR_REG, "mr_reg", "bytes", "ns", SL_EVENT_SHOW_NONE},
    {SL_EVENT_MR_DEREG, "mr_dereg", "bytes", "", SL_EVENT_SHOW_NONE},
};

const struct sl_event_set sl_verbs_events = {
    .area = "verbs", .kinds = kinds, .count = SL_ARRAY_LEN(kinds), .also = &sl_mp_events};
