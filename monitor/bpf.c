/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/bpf.h"

#include "core/err.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

void sl_mon_bpf_init(struct sl_mon_bpf *probe, const struct sl_source_host *host,
                     const struct sl_mon_bpf_plan *plan)
{
    sl_assert(plan->counts <= SL_MON_BPF_COUNTS && plan->way_count <= SL_MON_BPF_WAYS);
    *probe = (struct sl_mon_bpf){.host = *host, .plan = plan};
}

/* The number of the network namespace that this thread is in. */
static uint32_t own_netns(void)
{
    struct stat status;

    return stat("/proc/thread-self/ns/net", &status) == 0 ? (uint32_t)status.st_ino : 0;
}

int sl_mon_bpf_open(struct sl_mon_bpf *probe)
{
    const struct sl_mon_bpf_plan *plan = probe->plan;
    int err;

    if (probe->err != 0)
        return sl_fail(probe->err, "%s", probe->why);
    probe->settings.netns = own_netns();
    probe->settings.epoch++;
    err = sl_bpf_open_first(plan->object, plan->ways, plan->way_count,
                            plan->has_devices ? &probe->settings : NULL, &probe->bpf);
    if (err != 0 && err != -ENOMEM) {
        probe->err = err;
        snprintf(probe->why, sizeof(probe->why), "%s", sluice_last_error());
    }
    return err;
}

void sl_mon_bpf_close(struct sl_mon_bpf *probe)
{
    if (probe->bpf != NULL)
        (void)sl_mon_bpf_read(probe);
    for (unsigned i = 0; i < probe->plan->counts; i++) {
        probe->earlier[i] += probe->now[i];
        probe->now[i] = 0;
    }
    sl_bpf_close(probe->bpf);
    probe->bpf = NULL;
}

int sl_mon_bpf_read(struct sl_mon_bpf *probe)
{
    if (probe->plan->counts == 0)
        return 0;
    return sl_bpf_sums(probe->bpf, "counts", probe->now, probe->plan->counts);
}

uint64_t sl_mon_bpf_count(const struct sl_mon_bpf *probe, unsigned which)
{
    return probe->earlier[which] + probe->now[which];
}

int sl_mon_bpf_period(struct sl_mon_bpf *probe)
{
    uint32_t zero = 0;

    probe->settings.epoch++;
    return sl_bpf_put(probe->bpf, "settings", &zero, &probe->settings);
}

bool sl_mon_bpf_is_ignored(const struct sl_mon_bpf *probe, const char *device)
{
    return strcmp(device, "lo") == 0 || sl_mon_config_ignores(probe->host.config, device);
}

void sl_mon_bpf_counter(enum sl_mon_format format, FILE *out, const char *name, const char *help,
                        uint64_t value)
{
    sl_mon_metrics_family(format, out, name, "counter", "", help);
    fprintf(out, "%s_total %" PRIu64 "\n", name, value);
}
