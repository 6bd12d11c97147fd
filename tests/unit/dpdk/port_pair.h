/* SPDX-License-Identifier: Apache-2.0 */
/* Both ends of a wire within one process, for tests by cmocka. */
#ifndef SL_TESTS_UNIT_DPDK_PORT_PAIR_H
#define SL_TESTS_UNIT_DPDK_PORT_PAIR_H

#include "tests/unit/dpdk/port_end.h"

#define WAIT_MS 5000 /* for what surely comes */

/* Of the ports "ring:a/0" and "ring:a/1". inject: faults, or NULL. */
struct sl_dpdk_port_settings port_pair_settings(const char *inject);
/* Both ends, connected; the case fails if they do not open. */
void port_pair_open(struct port_end *a, struct port_end *b, const char *inject);
void port_pair_close(struct port_end *a, struct port_end *b);

#endif
