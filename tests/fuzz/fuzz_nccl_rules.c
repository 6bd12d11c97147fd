/* SPDX-License-Identifier: Apache-2.0 */
/* Rules for calls of NCCL that people write: SLUICE_PRELOAD_NCCL and SLUICE_NCCL_TUNER. The first
 * byte chooses which. A text is refused with a sentence or obeyed. */
#include "core/err.h"
#include "tests/fuzz/text.h"
#include "tools/nccl/tuner.h"
#include "tools/preload/nccl/rules.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void taken(const char *text)
{
    int err = nccl_rules_read(text);

    sl_assert(err == 0 || (err == -EINVAL && sluice_last_error()[0] != '\0'));
    for (int c = 0; c < SL_NCCL_CALL_COUNT && err == 0; c++) {
        sl_assert(!nccl_rules_take((enum sl_nccl_call)c, 0));
        if (c > SL_NCCL_Scatter)
            sl_assert(!nccl_rules_take((enum sl_nccl_call)c, 1 << 20));
    }
}

static void tuned(const char *text)
{
    struct sl_nccl_rules rules;
    int err = sl_nccl_rules_read(text, &rules);

    sl_assert(err == 0 || (err == -EINVAL && sluice_last_error()[0] != '\0'));
    if (err != 0)
        return;
    sl_assert(rules.count <= SL_NCCL_RULES_MAX);
    for (int func = 0; func < 5; func++)
        for (size_t bytes = 1; bytes < (size_t)1 << 40; bytes *= 1024) {
            const struct sl_nccl_rule *rule = sl_nccl_rule_for(&rules, func, bytes);
            float costs[7][3] = {{1, 1, 1}, {1, 1, 1}, {-1, -1, -1}, {-1, -1, -1},
                                 {1, 1, 1}, {1, 1, 1}, {-1, 1, 1}};
            int channels = 0, left = 0;

            if (rule == NULL)
                continue;
            sl_nccl_rule_apply(rule, &costs[0][0], 7, 3, &channels);
            for (int i = 0; i < 21; i++)
                left += (&costs[0][0])[i] == 1;
            sl_assert(left > 0); /* NCCL can still choose */
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const part[])(const char *) = {taken, tuned};
    char *text;

    if (size == 0)
        return 0;
    text = fuzz_text(data + 1, size - 1);
    if (text != NULL)
        part[*data % SL_ARRAY_LEN(part)](text);
    free(text);
    return 0;
}
