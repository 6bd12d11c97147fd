/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a range of ports. */
#include "core/port_range.h"

#include "core/err.h"

#include <stdbool.h>

#define PORT_MAX 65535

/* Moves *at behind the digits that stand there. */
static bool take_port(const char **at, uint16_t *out)
{
    unsigned port = 0;

    for (; **at >= '0' && **at <= '9'; (*at)++) {
        port = port * 10 + (unsigned)(**at - '0');
        if (port > PORT_MAX)
            return false;
    }
    *out = (uint16_t)port;
    return port > 0; /* also without digits it is 0 */
}

int sl_port_range_parse(const char *text, struct sl_port_range *out)
{
    struct sl_port_range range = {0, 0};
    const char *at = text;

    if (*text != '\0' && (!take_port(&at, &range.low) || *at++ != '-' ||
                          !take_port(&at, &range.high) || *at != '\0' || range.low > range.high))
        return sl_fail(
            -EINVAL,
            "SLUICE_PORT_RANGE is '%s', but must be low-high: two ports from 1 to 65535, such as "
            "20000-20999",
            text);
    *out = range;
    return 0;
}
