/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/isolate_kube_json.h"

#include "core/err.h"

#include <errno.h>
#include <json-c/json.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define SINCE "sluice/isolated-at"
#define WHY "sluice/isolated-why"
#define BAD_REASON "SluiceVerdict"
#define GOOD_REASON "NoSluiceVerdict"

/* ---- reading ---- */

static struct json_object *parse(const char *text, size_t len)
{
    struct json_tokener *tokener = json_tokener_new();
    struct json_object *doc = NULL;

    if (tokener == NULL || len > INT_MAX)
        goto out;
    doc = json_tokener_parse_ex(tokener, text, (int)len);
    if (json_tokener_get_error(tokener) != json_tokener_success ||
        !json_object_is_type(doc, json_type_object)) {
        json_object_put(doc);
        doc = NULL;
    }
out:
    if (tokener != NULL)
        json_tokener_free(tokener);
    return doc;
}

/* NULL where it is not there, or is of another type. */
static struct json_object *member(struct json_object *of, const char *key, enum json_type type)
{
    struct json_object *found = NULL;

    if (!json_object_is_type(of, json_type_object) || !json_object_object_get_ex(of, key, &found) ||
        !json_object_is_type(found, type))
        return NULL;
    return found;
}

static const char *word(struct json_object *of, const char *key)
{
    struct json_object *found = member(of, key, json_type_string);

    return found != NULL ? json_object_get_string(found) : "";
}

static bool is_own(struct json_object *taint)
{
    return strcmp(word(taint, "key"), SL_KUBE_KEY) == 0;
}

static struct json_object *taints_of(struct json_object *doc)
{
    return member(member(doc, "spec", json_type_object), "taints", json_type_array);
}

static struct json_object *own_taint(struct json_object *taints)
{
    size_t count = taints != NULL ? json_object_array_length(taints) : 0;

    for (size_t i = 0; i < count; i++)
        if (is_own(json_object_array_get_idx(taints, i)))
            return json_object_array_get_idx(taints, i);
    return NULL;
}

static void see(struct sl_kube_node *node)
{
    struct json_object *spec = member(node->doc, "spec", json_type_object);
    struct json_object *taint = own_taint(taints_of(node->doc));
    struct json_object *cordoned = member(spec, "unschedulable", json_type_boolean);
    const char *mark = word(taint, "value");

    if (taint == NULL) {
        if (cordoned != NULL && json_object_get_boolean(cordoned))
            node->view.node = SL_ISOLATE_OUT_BY_OTHERS;
        return;
    }
    if (!sl_isolate_is_mark(mark, strlen(mark))) { /* somebody changed it, and has it now */
        node->view.node = SL_ISOLATE_OUT_BY_OTHERS;
        return;
    }
    node->view.node = SL_ISOLATE_OUT_BY_US;
    snprintf(node->view.mark, sizeof(node->view.mark), "%s", mark);
}

int sl_kube_node_read(const char *text, size_t len, struct sl_kube_node *out)
{
    struct sl_kube_node node = {.doc = parse(text, len)};
    struct json_object *metadata = member(node.doc, "metadata", json_type_object);

    if (member(metadata, "name", json_type_string) == NULL ||
        member(metadata, "resourceVersion", json_type_string) == NULL) {
        json_object_put(node.doc);
        return sl_fail(-EBADMSG, "the API answered with something that is no node");
    }
    see(&node);
    snprintf(node.since, sizeof(node.since), "%s",
             word(member(metadata, "annotations", json_type_object), SINCE));
    *out = node;
    return 0;
}

void sl_kube_node_fini(struct sl_kube_node *node)
{
    json_object_put(node->doc);
    node->doc = NULL;
}

/* By time, then by name; one of which no time is known was always there. */
static bool is_before(struct json_object *metadata, const char *self, const char *since)
{
    const char *time = word(member(metadata, "annotations", json_type_object), SINCE);
    int order = strcmp(time, since);

    if (since[0] == '\0')
        return true;
    return order != 0 ? order < 0 : strcmp(word(metadata, "name"), self) < 0;
}

int sl_kube_list_read(const char *text, size_t len, const char *self, const char *since,
                      struct sl_kube_list *out)
{
    struct json_object *doc = parse(text, len), *items = member(doc, "items", json_type_array);
    struct json_object *metadata = member(doc, "metadata", json_type_object), *remaining;

    if (items == NULL && metadata == NULL) {
        json_object_put(doc);
        return sl_fail(-EBADMSG, "the API answered with something that is no list of nodes");
    }
    for (size_t i = 0; items != NULL && i < json_object_array_length(items); i++) {
        struct json_object *one =
            member(json_object_array_get_idx(items, i), "metadata", json_type_object);

        if (one == NULL || strcmp(word(one, "name"), self) == 0)
            continue;
        out->count++;
        out->before += is_before(one, self, since);
    }
    remaining = member(metadata, "remainingItemCount", json_type_int);
    out->remaining = remaining != NULL && json_object_get_int64(remaining) > 0
                         ? (uint64_t)json_object_get_int64(remaining)
                         : 0;
    snprintf(out->next, sizeof(out->next), "%s", word(metadata, "continue"));
    json_object_put(doc);
    return 0;
}

void sl_kube_message(const char *text, size_t len, char *out, size_t cap)
{
    struct json_object *doc = parse(text, len);

    snprintf(out, cap, "%s", word(doc, "message"));
    sl_tame_text(out);
    json_object_put(doc);
}

/* ---- patches ---- */

static void add_text(struct json_object *to, const char *key, const char *value)
{
    json_object_object_add(to, key, value != NULL ? json_object_new_string(value) : NULL);
}

static char *finish(struct json_object *patch)
{
    const char *text = json_object_to_json_string_ext(patch, JSON_C_TO_STRING_PLAIN |
                                                                 JSON_C_TO_STRING_NOSLASHESCAPE);
    char *copy = text != NULL ? strdup(text) : NULL;

    json_object_put(patch);
    return copy;
}

/* The others as they are, with all that we know nothing of. */
static struct json_object *other_taints(const struct sl_kube_node *node)
{
    struct json_object *taints = taints_of(node->doc), *out = json_object_new_array();
    size_t count = taints != NULL ? json_object_array_length(taints) : 0;

    for (size_t i = 0; i < count; i++) {
        struct json_object *taint = json_object_array_get_idx(taints, i);

        if (!is_own(taint))
            json_object_array_add(out, json_object_get(taint));
    }
    return out;
}

/* mark, since and why are NULL where our own are to go. A list is replaced whole by a merge patch;
 * the version makes it a conflict where somebody else has changed it meanwhile. */
static char *taint_patch(const struct sl_kube_node *node, const char *mark, const char *since,
                         const char *why)
{
    struct json_object *patch = json_object_new_object(), *metadata = json_object_new_object();
    struct json_object *labels = json_object_new_object(), *notes = json_object_new_object();
    struct json_object *spec = json_object_new_object(), *taints = other_taints(node), *taint;

    add_text(metadata, "resourceVersion",
             word(member(node->doc, "metadata", json_type_object), "resourceVersion"));
    add_text(labels, SL_KUBE_KEY, mark);
    add_text(notes, SINCE, since);
    add_text(notes, WHY, why);
    json_object_object_add(metadata, "labels", labels);
    json_object_object_add(metadata, "annotations", notes);
    if (mark != NULL) {
        taint = json_object_new_object();
        add_text(taint, "key", SL_KUBE_KEY);
        add_text(taint, "value", mark);
        add_text(taint, "effect", "NoSchedule");
        json_object_array_add(taints, taint);
    }
    json_object_object_add(spec, "taints", taints);
    json_object_object_add(patch, "metadata", metadata);
    json_object_object_add(patch, "spec", spec);
    return finish(patch);
}

char *sl_kube_out_patch(const struct sl_kube_node *node, const char *mark, const char *since,
                        const char *why)
{
    return taint_patch(node, mark, since, why);
}

char *sl_kube_back_patch(const struct sl_kube_node *node)
{
    return taint_patch(node, NULL, NULL, NULL);
}

/* ---- conditions ---- */

static struct json_object *condition_of(struct json_object *doc, const char *type)
{
    struct json_object *list =
        member(member(doc, "status", json_type_object), "conditions", json_type_array);
    size_t count = list != NULL ? json_object_array_length(list) : 0;

    for (size_t i = 0; i < count; i++)
        if (strcmp(word(json_object_array_get_idx(list, i), "type"), type) == 0)
            return json_object_array_get_idx(list, i);
    return NULL;
}

static bool is_ours(struct json_object *condition)
{
    const char *reason = word(condition, "reason");

    return strcmp(reason, BAD_REASON) == 0 || strcmp(reason, GOOD_REASON) == 0;
}

/* NULL: it is so already; or it is another's alarm, which is not ours to clear. */
static struct json_object *told_condition(struct json_object *has,
                                          const struct sl_isolate_told *told, const char *time)
{
    const char *status = told->is_bad ? "True" : "False", *since = time;
    char message[sizeof(told->mark) + sizeof(told->text) + 16];
    struct json_object *out;

    snprintf(message, sizeof(message), told->is_bad ? "sluice[%s]: %s" : "no verdict is open",
             told->mark, told->text);
    if (has != NULL && !told->is_bad && !is_ours(has))
        return NULL;
    if (has != NULL && strcmp(word(has, "status"), status) == 0) {
        if (is_ours(has) && strcmp(word(has, "message"), message) == 0)
            return NULL;
        if (word(has, "lastTransitionTime")[0] != '\0')
            since = word(has, "lastTransitionTime");
    }
    out = json_object_new_object();
    add_text(out, "type", told->condition);
    add_text(out, "status", status);
    add_text(out, "reason", told->is_bad ? BAD_REASON : GOOD_REASON);
    add_text(out, "message", message);
    add_text(out, "lastHeartbeatTime", time);
    add_text(out, "lastTransitionTime", since);
    return out;
}

int sl_kube_tell_patch(const struct sl_kube_node *node, const struct sl_isolate_told *told,
                       unsigned count, const char *time, char **out)
{
    struct json_object *patch = json_object_new_object(), *status = json_object_new_object();
    struct json_object *list = json_object_new_array();

    for (unsigned i = 0; i < count; i++) {
        struct json_object *one =
            told_condition(condition_of(node->doc, told[i].condition), &told[i], time);

        if (one != NULL)
            json_object_array_add(list, one);
    }
    *out = NULL;
    bool is_empty = json_object_array_length(list) == 0;

    json_object_object_add(status, "conditions", list);
    json_object_object_add(patch, "status", status);
    if (is_empty) {
        json_object_put(patch);
        return 0;
    }
    *out = finish(patch);
    return *out != NULL ? 0 : sl_fail(-ENOMEM, "no memory for conditions");
}
