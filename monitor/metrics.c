/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/metrics.h"

#include <inttypes.h>
#include <string.h>

void sl_mon_metrics_escape(const char *value, FILE *out)
{
    for (; *value != '\0'; value++) {
        if (*value == '\\' || *value == '"')
            fputc('\\', out);
        if (*value == '\n')
            fputs("\\n", out);
        else
            fputc(*value, out);
    }
}

/* In the older text format a family has the name of its samples, and there is no unit. */
void sl_mon_metrics_family(enum sl_mon_format format, FILE *out, const char *name, const char *type,
                           const char *unit, const char *help)
{
    bool is_plain = format == SL_MON_TEXT_FORMAT;
    const char *end = !is_plain                      ? ""
                      : strcmp(type, "counter") == 0 ? "_total"
                      : strcmp(type, "info") == 0    ? "_info"
                                                     : "";

    fprintf(out, "# HELP %s%s %s\n", name, end, help);
    fprintf(out, "# TYPE %s%s %s\n", name, end,
            is_plain && end[0] == '_' && end[1] == 'i' ? "gauge" : type);
    if (unit[0] != '\0' && !is_plain)
        fprintf(out, "# UNIT %s %s\n", name, unit);
}

void sl_mon_metrics_open(FILE *out, const char *name, const char *label, const char *value)
{
    fprintf(out, "%s{%s=\"", name, label);
    sl_mon_metrics_escape(value, out);
    fputc('"', out);
}

void sl_mon_metrics_label(FILE *out, const char *label, const char *value)
{
    fprintf(out, ",%s=\"", label);
    sl_mon_metrics_escape(value, out);
    fputc('"', out);
}

void sl_mon_metrics_number(FILE *out, uint64_t value)
{
    fprintf(out, "} %" PRIu64 "\n", value);
}

void sl_mon_metrics_seconds(FILE *out, uint64_t ns)
{
    fprintf(out, "} %.9f\n", (double)ns / 1e9);
}

/* ---- ports ---- */

/* "mlx5_0:1" is port 1 of mlx5_0; a network interface has no port. */
static void port_labels(FILE *out, const char *name, const struct sl_mon_port *port)
{
    const char *full = port->subject->name, *colon = strrchr(full, ':');
    char device[SL_MON_NAME];

    snprintf(device, sizeof(device), "%.*s", (int)(colon != NULL ? colon - full : SL_MON_NAME),
             full);
    sl_mon_metrics_open(out, name, "device", device);
    sl_mon_metrics_label(out, "port", colon != NULL ? colon + 1 : "");
}

static void port_numbers(const struct sl_mon_metrics *metrics, FILE *out, const char *name,
                         uint64_t (*number)(const struct sl_mon_port *))
{
    for (unsigned i = 0; i < metrics->port_count; i++) {
        port_labels(out, name, metrics->ports[i]);
        sl_mon_metrics_number(out, number(metrics->ports[i]));
    }
}

static uint64_t is_up(const struct sl_mon_port *port)
{
    return port->last.has_state && port->last.is_up;
}

static uint64_t speed(const struct sl_mon_port *port)
{
    return port->last.speed / 8; /* base units, says promtool */
}

static uint64_t downs(const struct sl_mon_port *port)
{
    uint64_t counted = port->totals[SL_MON_COUNTER_LINK_DOWNED];

    return counted > port->flaps ? counted : port->flaps;
}

static uint64_t sent(const struct sl_mon_port *port)
{
    return port->sent;
}

static uint64_t received(const struct sl_mon_port *port)
{
    return port->received;
}

/* Of those flaps of which it is known how long they were. */
static void write_flaps(const struct sl_mon_metrics *metrics, FILE *out)
{
    static const char *const bounds[] = {"0.01", "0.1", "1.0", "10.0", "60.0", "+Inf"};
    const char *name = "sluice_port_flap_duration_seconds";

    _Static_assert(sizeof(bounds) == SL_MON_FLAP_BUCKETS * sizeof(bounds[0]), "a bound each");
    sl_mon_metrics_family(metrics->format, out, name, "histogram", "seconds",
                          "How long the link was down each time that it came back by itself.");
    for (unsigned i = 0; i < metrics->port_count; i++) {
        const struct sl_mon_port *port = metrics->ports[i];
        uint64_t count = 0;

        for (unsigned b = 0; b < SL_MON_FLAP_BUCKETS; b++) {
            port_labels(out, "sluice_port_flap_duration_seconds_bucket", port);
            sl_mon_metrics_label(out, "le", bounds[b]);
            sl_mon_metrics_number(out, count += port->flaps_lasted[b]);
        }
        port_labels(out, "sluice_port_flap_duration_seconds_count", port);
        sl_mon_metrics_number(out, count);
        port_labels(out, "sluice_port_flap_duration_seconds_sum", port);
        fprintf(out, "} %.6f\n", (double)port->flapped_ns / 1e9);
    }
}

static void write_ports(const struct sl_mon_metrics *metrics, FILE *out)
{
    sl_mon_metrics_family(metrics->format, out, "sluice_port_up", "gauge", "",
                          "1: the port has a link.");
    port_numbers(metrics, out, "sluice_port_up", is_up);
    sl_mon_metrics_family(metrics->format, out, "sluice_port_speed_bytes_per_second", "gauge", "",
                          "Speed of the link; 0: not known.");
    port_numbers(metrics, out, "sluice_port_speed_bytes_per_second", speed);
    sl_mon_metrics_family(metrics->format, out, "sluice_port_link_down", "counter", "",
                          "Times that the link went down.");
    port_numbers(metrics, out, "sluice_port_link_down_total", downs);
    write_flaps(metrics, out);
    sl_mon_metrics_family(metrics->format, out, "sluice_port_transmit_bytes", "counter", "bytes",
                          "Bytes sent.");
    port_numbers(metrics, out, "sluice_port_transmit_bytes_total", sent);
    sl_mon_metrics_family(metrics->format, out, "sluice_port_receive_bytes", "counter", "bytes",
                          "Bytes received.");
    port_numbers(metrics, out, "sluice_port_receive_bytes_total", received);
    sl_mon_metrics_family(metrics->format, out, "sluice_port_errors", "counter", "",
                          "Errors, by kind.");
    for (unsigned i = 0; i < metrics->port_count; i++)
        for (unsigned c = 0; c < SL_MON_COUNTER_COUNT; c++) {
            if (sl_mon_counters[c].kind[0] == '\0')
                continue;
            port_labels(out, "sluice_port_errors_total", metrics->ports[i]);
            sl_mon_metrics_label(out, "kind", sl_mon_counters[c].kind);
            sl_mon_metrics_number(out, metrics->ports[i]->totals[c]);
        }
}

/* ---- verdicts ---- */

/* Processes come and go: those of which nothing was ever said have no series, so that labels stay
 * bounded. All other subjects have theirs from the start. */
static bool is_shown(const struct sl_mon_subject *subject, unsigned i)
{
    return subject->kind != SL_MON_PROCESS || subject->conditions[i].bads > 0;
}

static void write_verdicts(const struct sl_mon_metrics *metrics, FILE *out)
{
    sl_mon_metrics_family(metrics->format, out, "sluice_verdict_active", "gauge", "",
                          "1: the check is bad, or recovering, for this subject.");
    for (const struct sl_mon_subject *at = sl_mon_next(metrics->mon, NULL); at != NULL;
         at = sl_mon_next(metrics->mon, at)) {
        enum sl_mon_check first;
        unsigned count = sl_mon_checks_of(at->kind, &first);

        for (unsigned i = 0; i < count; i++) {
            uint8_t state = at->conditions[i].state;

            if (!is_shown(at, i))
                continue;
            sl_mon_metrics_open(out, "sluice_verdict_active", "class",
                                sl_mon_checks[first + i].condition);
            sl_mon_metrics_label(out, "check", sl_mon_checks[first + i].name);
            sl_mon_metrics_label(out, "kind", sl_mon_kind_name(at->kind));
            sl_mon_metrics_label(out, "subject", at->name);
            sl_mon_metrics_number(out, state == SL_MON_BAD || state == SL_MON_RECOVERING);
        }
    }
    sl_mon_metrics_family(metrics->format, out, "sluice_verdicts", "counter", "",
                          "Transitions into each state, by check.");
    for (unsigned i = 0; i < SL_MON_CHECK_COUNT; i++)
        for (unsigned s = 0; s < SL_MON_STATES; s++) {
            sl_mon_metrics_open(out, "sluice_verdicts_total", "class", sl_mon_checks[i].condition);
            sl_mon_metrics_label(out, "check", sl_mon_checks[i].name);
            sl_mon_metrics_label(out, "state", sl_mon_state_name((enum sl_mon_state)s));
            sl_mon_metrics_number(out, metrics->transitions[i][s]);
        }
    sl_mon_metrics_family(metrics->format, out, "sluice_evidence", "counter", "",
                          "Bad samples, by check and subject.");
    for (const struct sl_mon_subject *at = sl_mon_next(metrics->mon, NULL); at != NULL;
         at = sl_mon_next(metrics->mon, at)) {
        enum sl_mon_check first;
        unsigned count = sl_mon_checks_of(at->kind, &first);

        for (unsigned i = 0; i < count; i++) {
            if (!is_shown(at, i))
                continue;
            sl_mon_metrics_open(out, "sluice_evidence_total", "check",
                                sl_mon_checks[first + i].name);
            sl_mon_metrics_label(out, "kind", sl_mon_kind_name(at->kind));
            sl_mon_metrics_label(out, "subject", at->name);
            sl_mon_metrics_number(out, at->conditions[i].bads);
        }
    }
}

/* ---- the agent itself ---- */

static void write_agent(const struct sl_mon_metrics *metrics, FILE *out)
{
    sl_mon_metrics_family(metrics->format, out, "sluice_probe_up", "gauge", "",
                          "1: the source can be read, and so.");
    for (unsigned i = 0; i < metrics->probe_count; i++) {
        sl_mon_metrics_open(out, "sluice_probe_up", "probe", metrics->probes[i].name);
        sl_mon_metrics_label(out, "how", metrics->probes[i].how);
        sl_mon_metrics_number(out, metrics->probes[i].is_up);
    }
    sl_mon_metrics_family(metrics->format, out, "sluice_probe_stale", "gauge", "",
                          "1: the source is asked for, and is not read.");
    for (unsigned i = 0; i < metrics->probe_count; i++) {
        sl_mon_metrics_open(out, "sluice_probe_stale", "probe", metrics->probes[i].name);
        sl_mon_metrics_label(out, "how", metrics->probes[i].how);
        sl_mon_metrics_number(out, metrics->probes[i].is_stale);
    }
    sl_mon_metrics_family(metrics->format, out, "sluice_agent_last_sample_timestamp_seconds",
                          "gauge", "seconds", "When a source was read last.");
    for (unsigned i = 0; i < metrics->probe_count; i++) {
        sl_mon_metrics_open(out, "sluice_agent_last_sample_timestamp_seconds", "probe",
                            metrics->probes[i].name);
        sl_mon_metrics_label(out, "how", metrics->probes[i].how);
        fprintf(out, "} %.3f\n", (double)metrics->probes[i].sampled_ns / 1e9);
    }
    sl_mon_metrics_family(metrics->format, out, "sluice_agent_source_seconds", "counter", "seconds",
                          "Processor time that reading a source took.");
    for (unsigned i = 0; i < metrics->probe_count; i++) {
        sl_mon_metrics_open(out, "sluice_agent_source_seconds_total", "probe",
                            metrics->probes[i].name);
        sl_mon_metrics_label(out, "how", metrics->probes[i].how);
        fprintf(out, "} %.6f\n", (double)metrics->probes[i].cpu_ns / 1e9);
    }
    sl_mon_metrics_family(metrics->format, out, "sluice_agent_events_dropped", "counter", "",
                          "Events that a source lost.");
    for (unsigned i = 0; i < metrics->probe_count; i++) {
        sl_mon_metrics_open(out, "sluice_agent_events_dropped_total", "source",
                            metrics->probes[i].name);
        sl_mon_metrics_label(out, "how", metrics->probes[i].how);
        sl_mon_metrics_number(out, metrics->probes[i].dropped);
    }
    sl_mon_metrics_family(metrics->format, out, "sluice_agent_subjects_left_out", "counter", "",
                          "Subjects for which there was no room.");
    fprintf(out, "sluice_agent_subjects_left_out_total %" PRIu64 "\n",
            sl_mon_left_out(metrics->mon));
    sl_mon_metrics_family(metrics->format, out, "sluice_agent_cpu_seconds", "counter", "seconds",
                          "Processor time of the agent.");
    fprintf(out, "sluice_agent_cpu_seconds_total %.6f\n", (double)metrics->cpu_ns / 1e9);
    sl_mon_metrics_family(metrics->format, out, "sluice_agent_resident_bytes", "gauge", "bytes",
                          "Memory of the agent.");
    fprintf(out, "sluice_agent_resident_bytes %" PRIu64 "\n", metrics->resident_bytes);
    sl_mon_metrics_family(metrics->format, out, "sluice_store_waiting", "gauge", "",
                          "Transitions that could not be stored yet.");
    fprintf(out, "sluice_store_waiting %" PRIu64 "\n", metrics->waiting);
    sl_mon_metrics_family(metrics->format, out, "sluice_store_lost", "counter", "",
                          "Transitions that could never be stored.");
    fprintf(out, "sluice_store_lost_total %" PRIu64 "\n", metrics->lost);
    sl_mon_metrics_family(
        metrics->format, out, "sluice_config_last_reload_success", "gauge", "",
        "0: the file that was read last is refused, and the one before it counts.");
    fprintf(out, "sluice_config_last_reload_success %d\n", metrics->config_is_good);
    sl_mon_metrics_family(metrics->format, out, "sluice_build", "info", "", "Which agent this is.");
    sl_mon_metrics_open(out, "sluice_build_info", "version", metrics->version);
    fputs("} 1\n", out);
}

bool sl_mon_metrics_write(const struct sl_mon_metrics *metrics, FILE *out)
{
    write_ports(metrics, out);
    write_verdicts(metrics, out);
    if (metrics->more != NULL)
        metrics->more(metrics->arg, metrics->format, out);
    write_agent(metrics, out);
    if (metrics->format == SL_MON_OPENMETRICS)
        fputs("# EOF\n", out);
    return ferror(out) == 0;
}
