/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Codecs on a real GPU: their bytes against those of the CPU, then their speed against that of a
 * copy on the same GPU. Status 77 and the reason where there is no GPU, 1 where bytes differ.
 *
 *   usage: hw_gpu_codec [--bytes | --speed] [--codec NAME] [--json FILE]
 */
#include "tests/hw/hw_gpu_codec.h"

#include "core/clock.h"
#include "core/err.h"

#include <stdlib.h>
#include <string.h>

const struct hw_trial hw_trials[HW_TRIALS] = {
    {"bf16", 0},  {"bf16", SL_SPEC_STOCHASTIC},
    {"fp16", 0},  {"fp16", SL_SPEC_STOCHASTIC},
    {"bq8", 0},   {"bq8", SL_SPEC_STOCHASTIC},
    {"bq4", 0},   {"bq4", SL_SPEC_STOCHASTIC},
    {"bq2", 0},   {"bq2", SL_SPEC_STOCHASTIC},
    {"e4m3", 0},  {"e5m2", 0},
    {"mxfp8", 0}, {"mxfp4", 0},
    {"nvfp4", 0}, {"e3m0", 0},
    {"sign", 0},
};

void hw_spec(struct sl_gpu_codecs *codecs, const struct hw_trial *trial, unsigned dtype,
             struct sl_codec_spec *out)
{
    const struct sl_codec *codec = sl_codec_by_name(trial->codec);

    if (codec == NULL) {
        printf("codec %s: this build has none\n", trial->codec);
        exit(1);
    }
    if (sl_gpu_codecs_load(codecs, codec->id) != 0) {
        printf("codec %s: %s\n", trial->codec, sluice_last_error());
        exit(1);
    }
    *out = (struct sl_codec_spec){
        .id = codec->id, .dtype = (uint8_t)dtype, .flags = (uint8_t)trial->flags};
    out->seed = trial->flags != 0 ? 0x123456789abcdef0 : 0;
}

int main(int argc, char **argv)
{
    bool bytes = true, speed = true;
    const char *only = NULL;
    struct sl_gpu_codecs *codecs;
    struct hw_gpu gpu;
    FILE *json = NULL;
    unsigned failed = 0;
    uint64_t began = sl_now(&sl_clock_monotonic);

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--bytes") == 0) {
            speed = false;
        } else if (strcmp(argv[i], "--speed") == 0) {
            bytes = false;
        } else if (strcmp(argv[i], "--codec") == 0 && i + 1 < argc) {
            only = argv[++i];
        } else if (strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
            json = fopen(argv[++i], "w");
            if (json == NULL) {
                perror(argv[i]);
                return 2;
            }
        } else {
            printf("usage: hw_gpu_codec [--bytes | --speed] [--codec NAME] [--json FILE]\n");
            return 2;
        }
    }
    setvbuf(stdout, NULL, _IOLBF, 0); /* what was printed stays, should a kernel never end */
    hw_gpu_open(&gpu);
    if (sl_gpu_codecs_create(&codecs) != 0) {
        printf("%s\n", sluice_last_error());
        return 1;
    }
    printf("%s\n", gpu.name);
    if (bytes)
        failed = hw_codec_bytes(&gpu, codecs) + hw_topk_bytes(&gpu) + hw_palette_bytes(&gpu);
    fflush(stdout);
    if (speed)
        hw_codec_speed(&gpu, codecs, only, json);
    if (json != NULL)
        fclose(json);
    sl_gpu_codecs_destroy(codecs);
    printf("%.1f s in all\n", (double)(sl_now(&sl_clock_monotonic) - began) / 1e9);
    return failed == 0 ? 0 : 1;
}
