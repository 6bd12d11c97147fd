/* SPDX-License-Identifier: Apache-2.0 */
/* What Slurm's programs and the API of Kubernetes say of nodes: no more nodes are out than there
 * are, a mark is one, and what is sent because of it is JSON that leaves the others' taints in. */
#include "core/err.h"
#include "monitor/isolate_kube_json.h"
#include "monitor/isolate_slurm.h"

#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_view(const struct sl_isolate_view *view)
{
    size_t len = strnlen(view->mark, sizeof(view->mark));

    sl_assert(len < sizeof(view->mark));
    sl_assert(view->node != SL_ISOLATE_OUT_BY_US || sl_isolate_is_mark(view->mark, len));
    sl_assert(view->before == 0 || view->before < view->all);
}

static size_t taints_in(const char *text, struct json_object **doc)
{
    struct json_object *taints = NULL;

    *doc = json_tokener_parse(text);
    sl_assert(json_object_is_type(*doc, json_type_object));
    taints = json_object_object_get(json_object_object_get(*doc, "spec"), "taints");
    sl_assert(json_object_is_type(taints, json_type_array));
    return json_object_array_length(taints);
}

/* One more taint to go out, and without it to come back. */
static void check_patches(const struct sl_kube_node *node)
{
    char *out = sl_kube_out_patch(node, "17.b", "2026-11-25T20:39:11.123Z", "because");
    char *back = sl_kube_back_patch(node);
    struct json_object *docs[2];
    size_t with = taints_in(out, &docs[0]), without = taints_in(back, &docs[1]);

    sl_assert(with == without + 1);
    json_object_put(docs[0]);
    json_object_put(docs[1]);
    free(out);
    free(back);
}

static void check_conditions(const struct sl_kube_node *node)
{
    const struct sl_isolate_told told[] = {
        {.condition = "NICDown", .is_bad = true, .mark = "17.b", .text = "mlx5_0:1: down"},
        {.condition = "GPUUnhealthy"}};
    struct json_object *doc;
    char *text;

    sl_assert(sl_kube_tell_patch(node, told, 2, "2026-11-25T20:39:11Z", &text) == 0);
    if (text == NULL)
        return;
    doc = json_tokener_parse(text);
    sl_assert(json_object_is_type(doc, json_type_object));
    json_object_put(doc);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sl_kube_list list = {.count = 0};
    struct sl_isolate_view view;
    struct sl_kube_node node;
    char message[256];
    char *text = malloc(size + 1);

    sl_assert(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    if (sl_slurm_view(text, "n1", &view) == 0)
        check_view(&view);
    if (sl_kube_node_read(text, size, &node) == 0) {
        check_view(&node.view);
        check_patches(&node);
        check_conditions(&node);
        sl_kube_node_fini(&node);
    }
    if (sl_kube_list_read(text, size, "n1", "2026", &list) == 0)
        sl_assert(list.before <= list.count);
    sl_kube_message(text, size, message, sizeof(message));
    sl_assert(strnlen(message, sizeof(message)) < sizeof(message));
    free(text);
    return 0;
}
