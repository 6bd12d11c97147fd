/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A scrape of xpu_timer (intelligent-machine-learning/dlrover): gauges by rank.
 *
 *     XPU_TIMER_COMMON_HANG{ip="10.0.0.1",pod_name="worker-0",local_rank="4",rank="4",...} 0
 *
 * Each becomes a sample of its rank, named by the gauge and by the labels that tell one series of a
 * rank from another (operation, dtype, level, ...). The exposer's own figures are of no rank and
 * are left out.
 */
#include "core/err.h"
#include "monitor/read/formats.h"
#include "monitor/read/prom.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define PREFIX "XPU_TIMER_"

static bool is_xpu_timer(const char *head, size_t len)
{
    return sl_prom_has(head, len, PREFIX) || sl_prom_has(head, len, "# TYPE " PREFIX);
}

/* Who, not what. */
static bool is_of_rank(const char *label)
{
    static const char *const names[] = {"ip", "job_name", "local_rank", "pod_name", "rank"};

    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(names[i], label) == 0)
            return true;
    return false;
}

/* "NAME{dtype=bf16,level=7}", or "NAME" where no label is left. */
static int name_series(const struct sl_prom *prom, struct sl_job *job, uint32_t *name)
{
    char text[1024];
    bool is_first = true;

    snprintf(text, sizeof(text), "%s", prom->name);
    for (unsigned i = 0; i < prom->label_count; i++) {
        const struct sl_prom_label *label = &prom->labels[i];

        if (is_of_rank(label->name))
            continue;
        if (!sl_text_add(text, sizeof(text), "%c%s=%s", is_first ? '{' : ',', label->name,
                         label->value))
            return sl_lines_bad(&prom->lines, "its labels are longer than %zu bytes",
                                sizeof(text) - 1);
        is_first = false;
    }
    if (!is_first && !sl_text_add(text, sizeof(text), "}"))
        return sl_lines_bad(&prom->lines, "its labels are longer than %zu bytes", sizeof(text) - 1);
    *name = sl_job_text(job, text, strlen(text));
    return *name != SL_JOB_NONE ? 0 : sl_fail(-ENOMEM, "no memory for names of gauges");
}

static int set_text(struct sl_job *job, const struct sl_prom *prom, const char *label, uint32_t *to)
{
    const char *value = sl_prom_label(prom, label);
    uint32_t text = value != NULL ? sl_job_text(job, value, strlen(value)) : 0;

    if (text == SL_JOB_NONE)
        return sl_fail(-ENOMEM, "no memory for the names of hosts");
    if (text != 0)
        *to = text;
    return 0;
}

static int add_sample(struct sl_job *job, const struct sl_prom *prom)
{
    const char *text = sl_prom_label(prom, "rank");
    struct sl_job_sample sample = {.value = prom->value};
    uint64_t rank = 0;
    int err;

    if (text == NULL || !sl_text_number(text, strlen(text), &rank) || rank >= SL_JOB_RANKS_MAX)
        return sl_lines_bad(&prom->lines, "%.60s has no label rank with a number", prom->name);
    if (!isfinite(prom->value))
        return sl_lines_bad(&prom->lines, "%.60s has no finite value", prom->name);
    sample.rank = (uint32_t)rank;
    if (prom->timestamp_ms > INT64_MAX / 1000000 || prom->timestamp_ms < 0)
        sample.at = 0; /* a scrape that does not say when; one file is one moment */
    else
        sample.at = prom->timestamp_ms * 1000000;
    err = name_series(prom, job, &sample.name);
    if (err == 0)
        err = sl_job_add_sample(job, &sample);
    if (err == 0)
        err = set_text(job, prom, "ip", &job->ranks[rank].host);
    return err != 0 ? err : set_text(job, prom, "pod_name", &job->ranks[rank].process);
}

static int read_xpu_timer(struct sl_job *job, struct sl_read_in *in)
{
    struct sl_prom prom;
    uint64_t count = 0;
    int err = sl_prom_open(&prom, in);

    while (err == 0) {
        err = sl_prom_next(&prom);
        if (err <= 0)
            break;
        err = 0;
        if (strncmp(prom.name, PREFIX, strlen(PREFIX)) != 0)
            continue;
        err = add_sample(job, &prom);
        count++;
    }
    if (err == 0 && count == 0)
        err = sl_fail(-EBADMSG, "%s: no gauge of xpu_timer is in it", in->name);
    sl_prom_close(&prom);
    return err;
}

const struct sl_read_format sl_read_xpu_timer = {
    .name = "xpu_timer scrape", .is = is_xpu_timer, .read = read_xpu_timer};
