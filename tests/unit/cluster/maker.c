/* SPDX-License-Identifier: Apache-2.0 */
#include "maker.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

const struct sl_cluster_judge maker_judge = {.silent_before_ns = 90 * SECOND,
                                             .now_ms = T0 + 1000,
                                             .stall_ms = 30000,
                                             .false_isolations = 1e-4};
unsigned maker_peer;

struct sl_cluster_model *maker_new(void)
{
    static const struct sl_cluster_limits limits = {.nodes = 1000, .bytes = 1 << 24};
    struct sl_cluster_model *model;

    assert_int_equal(sl_cluster_model_new(&limits, &model), 0);
    return model;
}

void maker_take(struct sl_cluster_model *model, const char *text)
{
    struct sl_cluster_node *node = NULL;

    assert_true(sl_cluster_take(model, text, strlen(text), NULL, &node) >= 0);
    node->heard_ns = 100 * SECOND;
}

void maker_rank(struct sl_cluster_model *model, unsigned number, unsigned seq, unsigned begun,
                double wait_s)
{
    char text[1024], waits[256] = "";

    if (wait_s > 0)
        snprintf(waits, sizeof(waits),
                 ",\"waits\":{\"communicator\":\"c1\",\"operation\":\"allreduce\",\"number\":%u,"
                 "\"elements\":64,\"type\":\"f32\",\"peer\":%u,\"for_seconds\":%.3f}",
                 begun, maker_peer, wait_s);
    snprintf(text, sizeof(text),
             "{\"version\":1,\"node\":\"n%u\",\"epoch\":1,\"seq\":%u,\"time_ms\":%" PRIu64 ","
             "\"sources\":{\"ranks\":{\"ranks\":[{\"pid\":%u,\"job\":\"train\",\"rank\":%u,"
             "\"size\":%d,\"communicators\":[{\"id\":\"c1\",\"rank\":%u,\"size\":%d,"
             "\"collectives\":%u,\"ended\":%u}]%s}]}}}",
             number, seq, (uint64_t)T0 + seq, 100 + number, number, RANKS, number, RANKS, begun,
             wait_s > 0 ? begun - 1 : begun, waits);
    maker_take(model, text);
}

void maker_status(struct sl_cluster_model *model, const char *node, const char *verdicts)
{
    char text[1024];

    snprintf(text, sizeof(text),
             "{\"version\":1,\"node\":\"%s\",\"epoch\":1,\"seq\":1,\"time_ms\":%" PRIu64 ","
             "\"sources\":{\"status\":{\"health\":\"bad\",\"verdicts\":[%s]}}}",
             node, (uint64_t)T0, verdicts);
    maker_take(model, text);
}

struct sl_cluster_verdicts maker_verdicts(struct sl_cluster_model *model,
                                          const struct sl_cluster_judge *options)
{
    struct sl_cluster_verdicts verdicts;

    assert_int_equal(sl_cluster_judge(model, options, &verdicts), 0);
    return verdicts;
}

void maker_hang(struct sl_cluster_model *model, unsigned seq)
{
    for (unsigned i = 0; i < RANKS; i++)
        maker_rank(model, i, seq, i == 5 ? 41 : 42, i == 5 ? 0 : 31 + seq);
}
