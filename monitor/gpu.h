/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPUs, as their driver tells of them (NVML): the records that a process of its own writes into a
 * pipe (monitor/nvml.h), and what they say.
 *
 *     NVML --> nvml.c, in a child --> records --> pipe --> source_gpu.c --> gpu.c: samples
 *
 * Calls of NVML may hang for ever, so nothing of the agent waits for one. What comes out of the
 * pipe is not believed before it is looked at. No I/O here.
 */
#ifndef SL_MONITOR_GPU_H
#define SL_MONITOR_GPU_H

#include "monitor/engine.h"

#define SL_MON_GPUS_MAX 64
#define SL_MON_GPU_LINKS_MAX 32 /* NVLinks */

enum sl_mon_gpu_type {
    SL_MON_GPU_ABSENT = 1, /* NVML cannot be had; text says why. The child ends. */
    SL_MON_GPU_DEVICE,     /* one GPU */
    SL_MON_GPU_ROUND,      /* all were read: index is how many */
};

enum sl_mon_gpu_has {
    SL_MON_GPU_HAS_ECC = 1 << 0,
    SL_MON_GPU_HAS_ROWS = 1 << 1,
    SL_MON_GPU_HAS_REASONS = 1 << 2,
    SL_MON_GPU_HAS_TEMPERATURE = 1 << 3,
    SL_MON_GPU_HAS_LINKS = 1 << 4,
    SL_MON_GPU_HAS_LINK_ERRORS = 1 << 5,
    SL_MON_GPU_HAS_USE = 1 << 6,
};

/* Why its clocks are low (nvmlClocksEventReasons). */
#define SL_MON_GPU_SLOWDOWN 0x08 /* hardware: heat or power */
#define SL_MON_GPU_HOT 0x20      /* software: heat */
#define SL_MON_GPU_TOO_HOT 0x40  /* hardware: heat */
#define SL_MON_GPU_BRAKE 0x80    /* hardware: the power supply */

#define SL_MON_GPU_MAGIC 0x534c4755

struct sl_mon_gpu_record {
    uint32_t magic, type; /* enum sl_mon_gpu_type */
    uint32_t index, has;
    char name[32];             /* its PCI address: "0000:9b:00.0" */
    uint64_t ecc;              /* uncorrectable errors since the driver was loaded */
    uint64_t reasons;          /* why its clocks are low, a bit each */
    uint32_t rows;             /* of memory that were replaced */
    uint32_t links;            /* NVLinks that are up, a bit each */
    uint64_t replays, repairs; /* of NVLinks, in all */
    int32_t temperature;       /* degrees Celsius */
    uint8_t rows_wait, rows_failed, is_lost, use; /* use: percent */
    char text[128];
};

/* False: it is none. What is taken is within its bounds, and texts end. */
bool sl_mon_gpu_parse(const void *bytes, size_t len, struct sl_mon_gpu_record *out);

/* What is remembered of a GPU. */
struct sl_mon_gpu {
    struct sl_mon_subject *subject; /* NULL: this place is free */
    struct sl_mon_gpu_record last;
    uint64_t last_ns;
    uint32_t links;                 /* that were up once */
    uint64_t ecc, replays, repairs; /* since the agent began */
};

/* One more record of a GPU, at the monitor's time. */
void sl_mon_gpu_judge(struct sl_mon *mon, struct sl_mon_gpu *gpu,
                      const struct sl_mon_gpu_record *record);

#endif
