/* SPDX-License-Identifier: Apache-2.0 */
/* SLUICE_PORT_RANGE, for all listeners. */
#ifndef SL_CORE_PORT_RANGE_H
#define SL_CORE_PORT_RANGE_H

#include <stdint.h>

/* From 1 to 65535, low not above high; both 0: any port. */
struct sl_port_range {
    uint16_t low, high;
};

/* "low-high", two whole numbers and nothing else, not even spaces; "": any port. -EINVAL: the
 * sentence names the variable, its value and good values; *out is untouched. */
int sl_port_range_parse(const char *text, struct sl_port_range *out);

/* How many ports there are in range, which is not any. */
static inline unsigned sl_port_range_count(const struct sl_port_range *range)
{
    return (unsigned)(range->high - range->low) + 1;
}

#endif
