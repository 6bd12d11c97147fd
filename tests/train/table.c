/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The methods, and the bands they must stay in: for bf16, blocks of 8 and 4 bits, top-k of 1 % and
 * low rank, they are those that a prototype had before; for the others, what this program came to
 * and some room, so that a change is seen.
 */
#include "kinds.h"

#include "core/err.h"

static const struct method methods[] = {
    {"fp32", &kind_operation, NULL, 1, 0.9f, 0, 0, 1, 0, 1, 0, QUICK_BOTH, false, "no codec"},
    {"bf16", &kind_operation, "bf16:min=0", 1, 0.9f, 0, 0, 1.02f, 1, 1.02f, 1, QUICK_DIGITS, false,
     "floats of 16 bits"},
    {"bq8", &kind_operation, "bq8:min=0", 1, 0.9f, 0, 0, 1.02f, 1, 1.02f, 1, QUICK_BOTH, false,
     "8 bits, blocks of 128"},
    {"bq4", &kind_operation, "bq4:min=0", 1, 0.9f, 0, 0, 1.05f, 1, 1.05f, 1, QUICK_BOTH, false,
     "4 bits, blocks of 32"},
    {"bq4, at random", &kind_feedback, "bq4:stochastic=on,seed=5", 1, 0.9f, SL_FEEDBACK_NONE, 0,
     1.05f, 1, 1.05f, 1, QUICK_DIGITS, false, "rounded at random"},
    {"bq4, feedback", &kind_operation, "bq4:min=0,feedback=on", 1, 0.9f, 0, 0, 1.05f, 1, 1.05f, 1,
     QUICK_BOTH, false, "with error feedback"},
    {"bq2, feedback", &kind_operation, "bq2:min=0,feedback=on", 1, 0.9f, 0, 0, 1.15f, 1, 1.05f, 1,
     QUICK_DIGITS, false, "-1, 0 and 1, with error feedback"},
    {"e4m3", &kind_operation, "e4m3:min=0", 1, 0.9f, 0, 0, 1.02f, 1, 1.02f, 1, QUICK_NONE, false,
     "floats of 8 bits"},
    {"mxfp4", &kind_operation, "mxfp4:min=0", 1, 0.9f, 0, 0, 1.15f, 1, 1.05f, 1, QUICK_NONE, false,
     "floats of 4 bits, scales are powers of two"},
    {"nvfp4", &kind_operation, "nvfp4:min=0", 1, 0.9f, 0, 0, 1.05f, 1, 1.05f, 1, QUICK_NONE, false,
     "floats of 4 bits, scales of 8"},
    {"e3m0", &kind_operation, "e3m0:min=0", 1, 0.9f, 0, 0, 1.1f, 1, 1.05f, 1, QUICK_NONE, false,
     "powers of two"},
    {"int8 of a tensor", &kind_tensor, NULL, 1, 0.9f, 8, 0, 1.02f, 1, 1.02f, 1, QUICK_NONE, false,
     "one scale for all"},
    {"int4 of a tensor", &kind_tensor, NULL, 1, 0.9f, 4, 0, 0, 0, 1.05f, 1, QUICK_FASHION, true,
     "a control: one scale for all"},
    {"sign, feedback", &kind_operation, "sign:min=0,feedback=on", 2, 0.5f, 0, 0, 9, 4, 1.6f, 5,
     QUICK_DIGITS, false, "one bit, both ways"},
    {"sign, rate 0.3", &kind_operation, "sign:min=0,feedback=on", 3, 0.9f, 0, 0, 0, 0, 1.6f, 5,
     QUICK_FASHION, true, "a control: too fast for one bit"},
    {"top-k 1 %", &kind_dgc, NULL, 5, 0.5f, 0.01, 0, 1.15f, 1, 1.15f, 1, QUICK_BOTH, false,
     "the largest, with error feedback"},
    {"top-k 0.1 %", &kind_dgc, NULL, 5, 0.5f, 0.001, 0, 2.5f, 2, 1.2f, 2, QUICK_DIGITS, false,
     "the largest, with error feedback"},
    {"DGC 0.1 %", &kind_dgc, "warm", 1, 0, 0.001, 0, 3, 2, 1.5f, 4, QUICK_DIGITS, false,
     "momentum before, and warm-up"},
    {"Rand-k 1 %", &kind_feedback, "randk:k=41,seed=3", 1, 0.9f, SL_FEEDBACK_ONE_SIDED, 0, 2, 2, 2,
     2, QUICK_BOTH, true, "a control: any ones, with error feedback"},
    {"Rand-k 25 %", &kind_feedback, "randk:k=1024,seed=3", 5, 0.5f, SL_FEEDBACK_ONE_SIDED, 0, 2, 2,
     1.5f, 4, QUICK_DIGITS, false, "any ones, with error feedback"},
    {"PowerSGD 2", &kind_powersgd, NULL, 1, 0.9f, 2, 0, 1.15f, 1, 1.15f, 1, QUICK_DIGITS, false,
     "rank 2, with error feedback", true},
    {"PowerSGD 4", &kind_powersgd, NULL, 1, 0.9f, 4, 0, 1.15f, 1, 1.15f, 1, QUICK_BOTH, false,
     "rank 4, with error feedback", true},
    {"PowerSGD 2, bq4", &kind_powersgd, "bq4", 1, 0.9f, 2, 0, 1.15f, 1, 1.15f, 2, QUICK_DIGITS,
     false, "rank 2, its factors in 4 bits", true},
    {"EControl, top-k", &kind_econtrol, "topk:k=41", 5, 0.5f, 0.1, 0, 3, 2, 1.4f, 3, QUICK_DIGITS,
     false, "an estimate, and a part of the residual"},
    {"Lion, vote", &kind_lion, "vote", 0.02f, 0, 0, 0, 3, 2, 1.3f, 2, QUICK_DIGITS, false,
     "one bit up, two down"},
    {"Lion, average", &kind_lion, "average", 0.02f, 0, 0, 0, 3, 2, 1.3f, 2, QUICK_DIGITS, false,
     "one bit up, three down"},
    {"DeMo 8 of 64", &kind_demo, "dct:k=8", 0.02f, 0, 0.9, 0, 6, 3, 1.5f, 3, QUICK_DIGITS, false,
     "cosine coefficients of momentum"},
    {"sketch, all", &kind_sketched, NULL, 0.25f, 0.9f, 0, 0, 5, 3, 1.5f, 5, QUICK_DIGITS, false,
     "a quarter of the cells, rate by 4"},
    {"DiLoCo, bq4", &kind_local, "diloco", 1, 0.9f, 0, 10, 2, 2, 1.2f, 2, QUICK_DIGITS, false,
     "a mean each 10 steps"},
    {"Streaming DiLoCo, bq4", &kind_local, "streaming", 1, 0.9f, 0, 10, 2, 2, 1.2f, 2, QUICK_DIGITS,
     false, "by fragments, 2 steps late"},
    {"CO2", &kind_local, "late", 1, 0.9f, 0, 10, 2, 2, 1.5f, 4, QUICK_DIGITS, false,
     "each 10 steps, 10 steps late"},
    {"DiLoCoX", &kind_local, "dilocox", 1, 0.9f, 0, 10, 3, 2, 1.5f, 5, QUICK_DIGITS, false,
     "that of rank 8 in 4 bits"},
    {"FedZip", &kind_local, "fedzip", 1, 0.9f, 0, 10, 3, 2, 1.5f, 3, QUICK_DIGITS, false,
     "a quarter, as 15 centroids, each 10 steps"},
};

const struct method *method_row(size_t idx)
{
    return idx < SL_ARRAY_LEN(methods) ? &methods[idx] : NULL;
}
