/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/gpu.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- records ---- */

static void clean(char *text, size_t cap)
{
    text[cap - 1] = '\0';
    for (; *text != '\0'; text++)
        if (!isprint((unsigned char)*text))
            *text = '?';
}

/* "0000:9b:00.0" */
static bool is_address(const char *name)
{
    unsigned domain, bus, slot, function;
    int used = 0;

    return sscanf(name, "%8x:%2x:%2x.%1x%n", &domain, &bus, &slot, &function, &used) == 4 &&
           name[used] == '\0';
}

bool sl_mon_gpu_parse(const void *bytes, size_t len, struct sl_mon_gpu_record *out)
{
    if (len < sizeof(*out))
        return false;
    memcpy(out, bytes, sizeof(*out));
    clean(out->name, sizeof(out->name));
    clean(out->text, sizeof(out->text));
    if (out->magic != SL_MON_GPU_MAGIC)
        return false;
    switch (out->type) {
    case SL_MON_GPU_ABSENT: return true;
    case SL_MON_GPU_ROUND: return out->index <= SL_MON_GPUS_MAX;
    case SL_MON_GPU_DEVICE: return out->index < SL_MON_GPUS_MAX && is_address(out->name);
    default: return false;
    }
}

/* ---- rules ---- */

#define SLOW_REASONS (SL_MON_GPU_SLOWDOWN | SL_MON_GPU_HOT | SL_MON_GPU_TOO_HOT | SL_MON_GPU_BRAKE)
#define REPLAYS_PER_S 10 /* of NVLinks, at least */

static void tell(struct sl_mon *mon, const struct sl_mon_gpu *gpu, enum sl_mon_check check,
                 bool is_bad, struct sl_mon_evidence *evidence)
{
    evidence->source = "nvml";
    sl_mon_sample(mon, gpu->subject, check, is_bad, evidence);
}

static uint64_t delta(uint64_t before, uint64_t after)
{
    return after > before ? after - before : 0; /* the driver was loaded anew */
}

static bool both_have(const struct sl_mon_gpu *gpu, const struct sl_mon_gpu_record *record,
                      uint32_t what)
{
    return gpu->last_ns != 0 && (gpu->last.has & record->has & what) != 0;
}

static void judge_memory(struct sl_mon *mon, struct sl_mon_gpu *gpu,
                         const struct sl_mon_gpu_record *record)
{
    uint64_t more =
        both_have(gpu, record, SL_MON_GPU_HAS_ECC) ? delta(gpu->last.ecc, record->ecc) : 0;
    bool has_rows = (record->has & SL_MON_GPU_HAS_ROWS) != 0;
    bool waits = has_rows && record->rows_wait != 0;
    struct sl_mon_evidence evidence = {.before = gpu->last.ecc, .after = record->ecc};

    gpu->ecc += more;
    if (waits)
        snprintf(evidence.text, sizeof(evidence.text),
                 "rows of its memory wait to be replaced: it needs a reset");
    else
        snprintf(evidence.text, sizeof(evidence.text),
                 "%" PRIu64 " uncorrectable errors of its memory more than before", more);
    if (has_rows || (record->has & SL_MON_GPU_HAS_ECC) != 0)
        tell(mon, gpu, SL_MON_CHECK_GPU_ECC, waits || more > 0, &evidence);
    if (!has_rows)
        return;
    snprintf(evidence.text, sizeof(evidence.text),
             "a row of its memory could not be replaced; %u were", record->rows);
    evidence.before = evidence.after = record->rows;
    tell(mon, gpu, SL_MON_CHECK_GPU_MEMORY, record->rows_failed != 0, &evidence);
}

static void judge_speed(struct sl_mon *mon, const struct sl_mon_gpu *gpu,
                        const struct sl_mon_gpu_record *record)
{
    uint64_t reasons = record->reasons & SLOW_REASONS;
    struct sl_mon_evidence evidence = {.after = record->reasons};

    if ((record->has & SL_MON_GPU_HAS_REASONS) == 0)
        return;
    snprintf(evidence.text, sizeof(evidence.text), "its clocks are held down by %s, at %d C",
             (reasons & SL_MON_GPU_BRAKE) != 0                        ? "the power supply's brake"
             : (reasons & (SL_MON_GPU_TOO_HOT | SL_MON_GPU_HOT)) != 0 ? "heat"
                                                                      : "its hardware",
             record->temperature);
    tell(mon, gpu, SL_MON_CHECK_GPU_SLOWED, reasons != 0, &evidence);
}

static void judge_links(struct sl_mon *mon, struct sl_mon_gpu *gpu,
                        const struct sl_mon_gpu_record *record)
{
    double seconds = (double)(sl_mon_time(mon)->mono_ns - gpu->last_ns) / 1e9;
    bool has_errors = both_have(gpu, record, SL_MON_GPU_HAS_LINK_ERRORS);
    uint64_t replays = has_errors ? delta(gpu->last.replays, record->replays) : 0;
    uint64_t repairs = has_errors ? delta(gpu->last.repairs, record->repairs) : 0;
    uint32_t down;
    struct sl_mon_evidence evidence = {.before = gpu->last.repairs, .after = record->repairs};

    if ((record->has & SL_MON_GPU_HAS_LINKS) == 0)
        return;
    gpu->links |= record->links;
    gpu->replays += replays;
    gpu->repairs += repairs;
    down = gpu->links & ~record->links;
    if (down != 0)
        snprintf(evidence.text, sizeof(evidence.text), "%d of %d NVLinks are down, the first is %d",
                 __builtin_popcount(down), __builtin_popcount(gpu->links), __builtin_ctz(down));
    else
        snprintf(evidence.text, sizeof(evidence.text),
                 "NVLinks recovered %" PRIu64 " times and repeated %" PRIu64 " in %.1f s", repairs,
                 replays, seconds);
    tell(mon, gpu, SL_MON_CHECK_GPU_NVLINK,
         down != 0 || repairs > 0 || (double)replays >= REPLAYS_PER_S * seconds, &evidence);
}

void sl_mon_gpu_judge(struct sl_mon *mon, struct sl_mon_gpu *gpu,
                      const struct sl_mon_gpu_record *record)
{
    struct sl_mon_evidence evidence = {.after = record->is_lost};

    snprintf(evidence.text, sizeof(evidence.text), "%.120s", record->text);
    tell(mon, gpu, SL_MON_CHECK_GPU_LOST, record->is_lost != 0, &evidence);
    if (record->is_lost != 0)
        return; /* what else it says is of before */
    if ((record->has & SL_MON_GPU_HAS_USE) != 0 && record->use > 0)
        sl_mon_use(mon, gpu->subject);
    judge_memory(mon, gpu, record);
    judge_speed(mon, gpu, record);
    judge_links(mon, gpu, record);
    gpu->last = *record;
    gpu->last_ns = sl_mon_time(mon)->mono_ns;
}
