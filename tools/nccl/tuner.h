/* SPDX-License-Identifier: Apache-2.0 */
/* Rules for NCCL's choice of algorithms: read, found, applied. Pure. */
#ifndef SL_NCCL_TUNER_H
#define SL_NCCL_TUNER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SL_NCCL_RULES_MAX 32

/* Numbers are those of abi_tuner.h, -1: any. */
struct sl_nccl_rule {
    int func, algo, proto;
    int64_t bytes_min, bytes_max;
    int channels;        /* 0: NCCL's */
    int64_t chunk_bytes; /* 0: NCCL's */
};

struct sl_nccl_rules {
    unsigned count;
    struct sl_nccl_rule rules[SL_NCCL_RULES_MAX];
};

/* Rules separated by ; or newlines; lines that begin with # are comments. -EINVAL names what is
 * none. */
int sl_nccl_rules_read(const char *text, struct sl_nccl_rules *out);

/* The first that fits, or NULL. */
const struct sl_nccl_rule *sl_nccl_rule_for(const struct sl_nccl_rules *rules, int func,
                                            size_t bytes);

/* Strikes out of costs[algo_count][proto_count] all that the rule does not name, if something is
 * left then. */
void sl_nccl_rule_apply(const struct sl_nccl_rule *rule, float *costs, int algo_count,
                        int proto_count, int *channels);

#endif
