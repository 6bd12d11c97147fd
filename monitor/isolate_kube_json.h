/* SPDX-License-Identifier: Apache-2.0 */
/* What the API of Kubernetes says of nodes, and what it is to change. No I/O. */
#ifndef SL_MONITOR_ISOLATE_KUBE_JSON_H
#define SL_MONITOR_ISOLATE_KUBE_JSON_H

#include "monitor/isolate_plug.h"

struct json_object;

#define SL_KUBE_KEY "sluice/isolated" /* of our taint, and of a label to find it by */
#define SL_KUBE_NEXT 2048

struct sl_kube_node {
    struct sl_isolate_view view; /* without its counts */
    char since[48];              /* out by us since then */
    struct json_object *doc;     /* owned */
};

/* A page of a list of nodes' metadata. */
struct sl_kube_list {
    unsigned count, before;  /* added up over pages */
    char next[SL_KUBE_NEXT]; /* of the next page; "": this was the last */
    uint64_t remaining;      /* nodes after this page; 0: none, or the server does not say */
};

/* -EBADMSG: this is no node. */
int sl_kube_node_read(const char *text, size_t len, struct sl_kube_node *out);
void sl_kube_node_fini(struct sl_kube_node *node);
/* Adds what is in it: all but self are counted, and those that were out before since and self; ""
 * for since: all were. -EBADMSG. */
int sl_kube_list_read(const char *text, size_t len, const char *self, const char *since,
                      struct sl_kube_list *out);
/* Patches, to be freed; NULL: no memory. The first two hold while nobody has changed the node. */
char *sl_kube_out_patch(const struct sl_kube_node *node, const char *mark, const char *since,
                        const char *why);
char *sl_kube_back_patch(const struct sl_kube_node *node);
/* *out is NULL where the node's conditions are so already. -ENOMEM. */
int sl_kube_tell_patch(const struct sl_kube_node *node, const struct sl_isolate_told *told,
                       unsigned count, const char *time, char **out);
/* What a refusal says; "" where it says nothing. */
void sl_kube_message(const char *text, size_t len, char *out, size_t cap);

#endif
