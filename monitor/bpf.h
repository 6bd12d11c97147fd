/* SPDX-License-Identifier: Apache-2.0 */
/* What the sources that read BPF probes (ebpf/probe.h) have in common: a row of the table each. */
#ifndef SL_MONITOR_BPF_H
#define SL_MONITOR_BPF_H

#include "ebpf/probe.h"
#include "ebpf/shared.h"
#include "monitor/source.h"

#define SL_MON_BPF_COUNTS SL_BPF_REASONS
#define SL_MON_BPF_WAYS 2

/* What is constant of a probe. */
struct sl_mon_bpf_plan {
    const char *object;
    const char *const *ways[SL_MON_BPF_WAYS]; /* programs, as sl_bpf_open_first() has them */
    unsigned way_count;
    unsigned counts;  /* of its map "counts"; 0: it has none */
    bool has_devices; /* of the agent's network namespace only: it has a map "settings" */
};

struct sl_mon_bpf {
    struct sl_source_host host;
    const struct sl_mon_bpf_plan *plan;
    struct sl_bpf *bpf; /* NULL: closed */
    /* Neither the kernel nor the programs change while the agent lives: what failed once is not
     * tried again, as each try reads all types of the kernel. */
    int err; /* 0: not tried, or good */
    char why[SL_MON_TEXT];
    struct sl_bpf_settings settings;
    /* Of "counts": what earlier openings had, and this one. */
    uint64_t earlier[SL_MON_BPF_COUNTS], now[SL_MON_BPF_COUNTS];
};

void sl_mon_bpf_init(struct sl_mon_bpf *probe, const struct sl_source_host *host,
                     const struct sl_mon_bpf_plan *plan);
int sl_mon_bpf_open(struct sl_mon_bpf *probe);
void sl_mon_bpf_close(struct sl_mon_bpf *probe);
/* Reads its counts, if it has any. */
int sl_mon_bpf_read(struct sl_mon_bpf *probe);
/* Since the agent began. */
uint64_t sl_mon_bpf_count(const struct sl_mon_bpf *probe, unsigned which);
/* A new period begins: maxima are those of this one from here on. */
int sl_mon_bpf_period(struct sl_mon_bpf *probe);

/* Whether the configuration keeps that network interface out. */
bool sl_mon_bpf_is_ignored(const struct sl_mon_bpf *probe, const char *device);

/* A family of one counter without labels. */
void sl_mon_bpf_counter(enum sl_mon_format format, FILE *out, const char *name, const char *help,
                        uint64_t value);

#endif
