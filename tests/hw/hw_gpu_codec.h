/* SPDX-License-Identifier: Apache-2.0 */
/* The two halves of hw_gpu_codec: are the bytes right, and how fast do they come. */
#ifndef SL_TESTS_HW_GPU_CODEC_H
#define SL_TESTS_HW_GPU_CODEC_H

#include "compress/codec.h"
#include "compress/cuda/gpu.h"
#include "tests/hw/hw_gpu.h"

#include <stdbool.h>
#include <stdio.h>

struct hw_trial {
    const char *codec;
    unsigned flags;
};

#define HW_TRIALS 17
extern const struct hw_trial hw_trials[HW_TRIALS];

/* The trial's codec, loaded; the program ends where it cannot be. */
void hw_spec(struct sl_gpu_codecs *codecs, const struct hw_trial *trial, unsigned dtype,
             struct sl_codec_spec *out);

/* Prints what differs; returns how many comparisons failed. */
unsigned hw_codec_bytes(const struct hw_gpu *gpu, struct sl_gpu_codecs *codecs);

unsigned hw_topk_bytes(const struct hw_gpu *gpu);
unsigned hw_palette_bytes(const struct hw_gpu *gpu);

/* Times of launches, some of them between two events each. */
#define HW_REPEATS 20
#define HW_WARM_UP 2
struct hw_times {
    unsigned batch, repeat, in_batch;
    size_t launch; /* number of the launch to come: buffers change by it */
    double us[HW_REPEATS];
};

/* bytes: of the elements that a launch works on. */
void hw_times_begin(struct hw_times *times, size_t bytes);
/* True: launch once more. In the end us[] is sorted. */
bool hw_times_next(struct hw_times *times, const struct hw_gpu *gpu);

/* Prints and writes a row. moved: bytes that a launch reads and writes. */
typedef void hw_report(const char *codec, bool random, unsigned dtype, const char *op, size_t bytes,
                       double moved, const struct hw_times *times);

/* Rows for elements that lie in elements; residuals: room for as many floats. */
void hw_topk_speed(const struct hw_gpu *gpu, char *elements, size_t elements_len, char *residuals,
                   unsigned dtype, size_t bytes, hw_report *report);

void hw_palette_speed(const struct hw_gpu *gpu, char *elements, size_t elements_len, char *code,
                      char *decoded, unsigned dtype, size_t bytes, hw_report *report);

/* Prints a table, and writes json, unless it is NULL. only: the name of a codec, or NULL. */
void hw_codec_speed(const struct hw_gpu *gpu, struct sl_gpu_codecs *codecs, const char *only,
                    FILE *json);

#endif
