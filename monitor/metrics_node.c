/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The counters of RDMA ports under the names that node_exporter has for them, for dashboards and
 * alarms that are there: counts of the hardware, not of the agent.
 */
#include "monitor/metrics_node.h"

#include <inttypes.h>
#include <string.h>

static const struct {
    enum sl_mon_counter counter;
    unsigned factor;
    const char *name, *help;
} rows[] = {
    {SL_MON_COUNTER_TRANSMIT_WORDS, 4, "port_data_transmitted_bytes", "Bytes sent."},
    {SL_MON_COUNTER_RECEIVE_WORDS, 4, "port_data_received_bytes", "Bytes received."},
    {SL_MON_COUNTER_TRANSMIT_PACKETS, 1, "port_packets_transmitted", "Packets sent."},
    {SL_MON_COUNTER_RECEIVE_PACKETS, 1, "port_packets_received", "Packets received."},
    {SL_MON_COUNTER_TRANSMIT_WAIT, 1, "port_transmit_wait", "Ticks without credits to send."},
    {SL_MON_COUNTER_LINK_DOWNED, 1, "link_downed", "Times that the link went down."},
    {SL_MON_COUNTER_RECOVERY, 1, "link_error_recovery", "Times that the link recovered."},
    {SL_MON_COUNTER_SYMBOL, 1, "symbol_error", "Symbols that arrived wrong."},
    {SL_MON_COUNTER_INTEGRITY, 1, "local_link_integrity_errors", "Local errors beyond a bound."},
    {SL_MON_COUNTER_OVERRUN, 1, "excessive_buffer_overrun_errors", "Overruns of buffers."},
    {SL_MON_COUNTER_RECEIVE_ERRORS, 1, "port_errors_received", "Packets that arrived damaged."},
    {SL_MON_COUNTER_DISCARDS, 1, "port_discards_transmitted", "Packets that were not sent."},
};

/* False: it is no RDMA port. */
static bool labels(const struct sl_mon_port *port, FILE *out, const char *name)
{
    const char *full = port->subject->name, *colon = strrchr(full, ':');
    char device[SL_MON_NAME];

    if (colon == NULL)
        return false;
    snprintf(device, sizeof(device), "%.*s", (int)(colon - full), full);
    sl_mon_metrics_open(out, name, "device", device);
    sl_mon_metrics_label(out, "port", colon + 1);
    return true;
}

void sl_mon_metrics_node(enum sl_mon_format format, const struct sl_mon_port *const *ports,
                         unsigned count, FILE *out)
{
    char name[64];

    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        snprintf(name, sizeof(name), "node_infiniband_%s", rows[i].name);
        sl_mon_metrics_family(format, out, name, "counter",
                              strstr(name, "_bytes") != NULL ? "bytes" : "", rows[i].help);
        strcat(name, "_total");
        for (unsigned p = 0; p < count; p++)
            if ((ports[p]->last.has >> rows[i].counter & 1) != 0 && labels(ports[p], out, name))
                sl_mon_metrics_number(out,
                                      ports[p]->last.counters[rows[i].counter] * rows[i].factor);
    }
    sl_mon_metrics_family(format, out, "node_infiniband_rate_bytes_per_second", "gauge", "",
                          "Speed of the link.");
    for (unsigned p = 0; p < count; p++)
        if (labels(ports[p], out, "node_infiniband_rate_bytes_per_second"))
            sl_mon_metrics_number(out, ports[p]->last.speed / 8);
}
