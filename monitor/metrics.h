/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is known, as OpenMetrics text (openmetrics.io, version 1.0.0): what /metrics answers.
 *
 * Counters are there from the start, at 0, and never go back while the agent lives; health is a
 * gauge beside them. Labels are bounded: names of ports and devices, kinds, states; never a rank's
 * job, a text, or an address.
 */
#ifndef SL_MONITOR_METRICS_H
#define SL_MONITOR_METRICS_H

#include "monitor/port.h"

#include <stdio.h>

/* How a source is read, and whether it can be. */
struct sl_mon_probe {
    const char *name, *how; /* "link", "rtnetlink"; constants */
    bool is_up;
    bool is_stale;         /* it is asked for, and cannot be read, or was not in time */
    uint64_t sampled_ns;   /* wall clock, last; 0: never */
    uint64_t dropped;      /* events that it lost */
    uint64_t cpu_ns;       /* processor time that reading it took */
    char why[SL_MON_TEXT]; /* it is not up */
};

/* Prometheus asks for OpenMetrics, where it can; other programs for the text format before it. */
enum sl_mon_format { SL_MON_OPENMETRICS, SL_MON_TEXT_FORMAT };

struct sl_mon_metrics {
    enum sl_mon_format format;
    const struct sl_mon *mon;
    const struct sl_mon_port *const *ports;
    unsigned port_count;
    const struct sl_mon_probe *probes;
    unsigned probe_count;
    void (*more)(void *arg, enum sl_mon_format format, FILE *out); /* families of others; or NULL */
    void *arg;
    uint64_t transitions[SL_MON_CHECK_COUNT][SL_MON_STATES]; /* into each state, of each check */
    uint64_t cpu_ns, resident_bytes;                         /* of the agent */
    uint64_t waiting, lost;                                  /* transitions that are not stored */
    const char *version;
    bool config_is_good; /* the last reload */
};

/* Writes all of it, and the end mark. False: out could not take it. */
bool sl_mon_metrics_write(const struct sl_mon_metrics *metrics, FILE *out);

/*
 * For families of others: each is written whole, and once.
 *
 *     sl_mon_metrics_family(format, out, "sluice_tcp_resets", "counter", "", "Connections reset.");
 *     sl_mon_metrics_open(out, "sluice_tcp_resets_total", "device", "eth0");
 *     sl_mon_metrics_label(out, "way", "in");
 *     sl_mon_metrics_number(out, 3);
 *
 * name: without "_total"; samples have it. type: counter, gauge, info. unit: "", "bytes",
 * "seconds".
 */
void sl_mon_metrics_family(enum sl_mon_format format, FILE *out, const char *name, const char *type,
                           const char *unit, const char *help);
void sl_mon_metrics_open(FILE *out, const char *name, const char *label, const char *value);
void sl_mon_metrics_label(FILE *out, const char *label, const char *value);
void sl_mon_metrics_number(FILE *out, uint64_t value);
void sl_mon_metrics_seconds(FILE *out, uint64_t ns);
/* A label's value, with what must be escaped. */
void sl_mon_metrics_escape(const char *value, FILE *out);

#endif
