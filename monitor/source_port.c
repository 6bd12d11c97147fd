/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/source.h"

void sl_source_port_begin(const struct sl_source_host *host, struct sl_mon_port *port,
                          struct sl_mon_subject *subject)
{
    sl_mon_port_init(port, subject);
    if (host->recall != NULL)
        port->best_speed = host->recall(host->arg, subject->name);
}

void sl_source_port_read(const struct sl_source_host *host, struct sl_mon_port *port,
                         const char *source, const struct sl_mon_reading *reading)
{
    uint64_t before = port->best_speed;

    sl_mon_port_read(host->mon, port, source, reading);
    if (port->best_speed != before && host->note != NULL)
        host->note(host->arg, port->subject->name, port->best_speed);
}
