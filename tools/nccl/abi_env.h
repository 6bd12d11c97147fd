/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's environment interface, versions 1 (NCCL 2.28.7 and later) and 2 (2.30.7): supplies
 * settings. */
#ifndef SL_NCCL_ABI_ENV_H
#define SL_NCCL_ABI_ENV_H

#include "tools/nccl/abi.h"

/*
 * get() stands in for getenv(): the text must stay valid until finalize(), or until the same name
 * is asked for again; NULL: not set. It is asked for every variable, also those that the
 * environment holds.
 */
struct sl_nccl_env_v1 {
    const char *name;
    enum sl_nccl_result (*init)(uint8_t major, uint8_t minor, uint8_t patch, const char *suffix);
    enum sl_nccl_result (*finalize)(void);
    const char *(*get)(const char *name);
};

struct sl_nccl_env_v2 {
    const char *name;
    enum sl_nccl_result (*init)(uint8_t major, uint8_t minor, uint8_t patch, const char *suffix,
                                sl_nccl_logger *logger);
    enum sl_nccl_result (*finalize)(void);
    const char *(*get)(const char *name);
};

static_assert(sizeof(struct sl_nccl_env_v1) == 32 && sizeof(struct sl_nccl_env_v2) == 32, "frozen");
static_assert(offsetof(struct sl_nccl_env_v1, get) == 24, "frozen");
static_assert(offsetof(struct sl_nccl_env_v2, get) == 24, "frozen");

#endif
