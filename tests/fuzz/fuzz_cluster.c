/* SPDX-License-Identifier: Apache-2.0 */
/* What a cluster's instance is told by others: the first byte says what of. An observation, which
 * goes through the rules; a request; a line of members; what Kubernetes and DNS say of them. */
#include "core/err.h"
#include "monitor/cluster/judge.h"
#include "monitor/cluster/members.h"
#include "monitor/cluster/request.h"
#include "monitor/cluster/subscribe.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void observation(const char *text, size_t len)
{
    const struct sl_cluster_limits limits = {.nodes = 8, .bytes = 1 << 20};
    const struct sl_cluster_judge options = {
        .silent_before_ns = 1, .now_ms = 1764142595000, .stall_ms = 30000};
    struct sl_cluster_model *model;
    struct sl_cluster_verdicts verdicts;
    struct sl_cluster_node *node = NULL;

    if (sl_cluster_model_new(&limits, &model) != 0)
        return;
    /* Lines are observations, one after another. */
    while (len > 0) {
        const char *end = memchr(text, '\n', len);
        size_t line = end != NULL ? (size_t)(end - text) : len;

        if (sl_cluster_take(model, text, line, NULL, &node) >= 0) {
            sl_assert(node != NULL && sl_observe_is_node(node->name));
            node->heard_ns = 2;
            sl_assert(sl_cluster_take(model, text, line, NULL, NULL) == 0); /* it is not newer */
        }
        text += line + (end != NULL);
        len -= line + (end != NULL);
    }
    sl_assert(sl_cluster_counts(model)->bytes < 2 << 20);
    if (sl_cluster_judge(model, &options, &verdicts) == 0) {
        for (unsigned i = 1; i < verdicts.count; i++)
            sl_assert(strcmp(verdicts.list[i - 1].id, verdicts.list[i].id) < 0);
        sl_cluster_verdicts_free(&verdicts);
    }
    sl_cluster_model_free(model);
}

static void request(const char *text)
{
    struct sl_cluster_request out;

    sl_cluster_parse("GET", text, &out);
    sl_assert((out.status == 200) == (out.why[0] == '\0'));
    sl_assert(out.name[0] == '\0' || sl_observe_is_node(out.name));
    sl_assert(out.limit >= 1 && out.limit <= SL_CLUSTER_LIMIT_MAX);
    sl_assert(strnlen(out.job, sizeof(out.job)) < sizeof(out.job));
}

static void members(uint8_t what, const char *text, size_t len)
{
    struct sl_members_list list = {.count = 0};
    char next[64], node[SL_OBSERVE_NODE];

    switch (what % 4) {
    case 0: (void)sl_members_add(&list, text, len, 9494); break;
    case 1: (void)sl_members_slices(&list, text, len, 9494, next, sizeof(next)); break;
    case 2: (void)sl_members_srv(&list, (const unsigned char *)text, len); break;
    default:
        if (sl_subscribe_node(text, node))
            sl_assert(sl_observe_is_node(node));
        break;
    }
    sl_members_sort(&list);
    for (unsigned i = 0; i < list.count; i++)
        sl_assert(list.list[i].port != 0 && list.list[i].host[0] != '\0');
    sl_members_list_free(&list);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text;

    if (size == 0)
        return 0;
    text = malloc(size);
    if (text == NULL)
        return 0;
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    switch (data[0] % 8) {
    case 0:
    case 1:
    case 2: observation(text, size - 1); break;
    case 3: request(text); break;
    default: members(data[0], text, size - 1); break;
    }
    free(text);
    return 0;
}
