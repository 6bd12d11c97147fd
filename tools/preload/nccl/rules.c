/* SPDX-License-Identifier: Apache-2.0 */
/* Which calls the engine takes: by kind and size only, which are the same on all ranks. */
#include "tools/preload/nccl/rules.h"

#include "core/config.h"
#include "core/err.h"
#include "core/host.h"

#include <stdio.h>
#include <string.h>

#define WORD_MAX 96

static const char *const names[SL_NCCL_CALL_COUNT] = {
    [SL_NCCL_AllReduce] = "allreduce",
    [SL_NCCL_Reduce] = "reduce",
    [SL_NCCL_ReduceScatter] = "reduce_scatter",
    [SL_NCCL_AllGather] = "all_gather",
    [SL_NCCL_Broadcast] = "broadcast",
    [SL_NCCL_AlltoAll] = "all_to_all",
    [SL_NCCL_Gather] = "gather",
    [SL_NCCL_Scatter] = "scatter",
};

/* min > max: not taken. */
static struct rule {
    int64_t min, max;
} rules[SL_NCCL_CALL_COUNT];

static int read_range(const char *text, struct rule *out)
{
    char low[WORD_MAX], *high;

    snprintf(low, sizeof(low), "%s", text);
    high = strchr(low, '-');
    *out = (struct rule){0, INT64_MAX};
    if (high == NULL)
        return sl_fail(-EINVAL, "SLUICE_PRELOAD_NCCL: '%s' is no range of sizes such as 64K-16M",
                       text);
    *high++ = '\0';
    if ((low[0] != '\0' && sl_parse_bytes(low, &out->min) != 0) ||
        (high[0] != '\0' && sl_parse_bytes(high, &out->max) != 0) || out->min > out->max)
        return sl_fail(-EINVAL, "SLUICE_PRELOAD_NCCL: '%s' is no range of sizes such as 64K-16M",
                       text);
    return 0;
}

static int read_word(char *word)
{
    char *range = strchr(word, ':');
    struct rule rule = {0, INT64_MAX};
    bool known = false;

    if (range != NULL) {
        *range++ = '\0';
        if (read_range(range, &rule) != 0)
            return -EINVAL;
    }
    for (int call = 0; call < SL_NCCL_CALL_COUNT; call++) {
        if (names[call] == NULL || (strcmp(word, "all") != 0 && strcmp(word, names[call]) != 0))
            continue;
        rules[call] = rule;
        known = true;
    }
    return known ? 0
                 : sl_fail(-EINVAL,
                           "SLUICE_PRELOAD_NCCL: '%s' is no call that can be taken; those "
                           "are all, allreduce, reduce, reduce_scatter, all_gather, broadcast, "
                           "all_to_all, gather and scatter",
                           word);
}

int nccl_rules_read(const char *text)
{
    for (int call = 0; call < SL_NCCL_CALL_COUNT; call++)
        rules[call] = (struct rule){1, 0};
    while (text[0] != '\0') {
        size_t len = strcspn(text, ",");
        char word[WORD_MAX];

        if (len >= sizeof(word))
            return sl_fail(-EINVAL, "SLUICE_PRELOAD_NCCL: '%.40s...' is too long for one call",
                           text);
        memcpy(word, text, len);
        word[len] = '\0';
        if (len > 0 && read_word(word) != 0)
            return -EINVAL;
        text += len + (text[len] == ',');
    }
    /* One operation of NCCL's has two names. */
    rules[SL_NCCL_Bcast] = rules[SL_NCCL_Broadcast];
    return 0;
}

bool nccl_rules_take(enum sl_nccl_call call, size_t bytes)
{
    return bytes > 0 && (int64_t)bytes >= rules[call].min && (int64_t)bytes <= rules[call].max;
}

uint64_t nccl_rules_hash(void)
{
    return sl_hash(SL_HASH_START, rules, sizeof(rules));
}
