/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/check.h"

#define POLICY(...)                                                                                \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

const struct sl_mon_check_row sl_mon_checks[SL_MON_CHECK_COUNT] = {
#define X(id, kind_, name_, condition_, severity_, policy_, help_)                                 \
    [SL_MON_CHECK_##id] = {.name = name_,                                                          \
                           .condition = condition_,                                                \
                           .help = help_,                                                          \
                           .kind = SL_MON_##kind_,                                                 \
                           .severity = SL_MON_##severity_,                                         \
                           .policy = POLICY policy_},
    SL_MON_CHECKS(X)
#undef X
};

const char *sl_mon_kind_name(enum sl_mon_kind kind)
{
    static const char *const names[SL_MON_KINDS] = {"port",    "nic",  "gpu",
                                                    "process", "host", "peer"};

    return (unsigned)kind < SL_MON_KINDS ? names[kind] : "unknown";
}
