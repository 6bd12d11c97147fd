/* SPDX-License-Identifier: Apache-2.0 */
/* Intrusive, circular, doubly linked lists. A head is a node that belongs to nobody. */
#ifndef SL_CORE_LIST_H
#define SL_CORE_LIST_H

#include "core/req.h"

#include <stdbool.h>
#include <stddef.h>

static inline void sl_list_init(struct sl_node *head)
{
    head->next = head->prev = head;
}

static inline bool sl_list_empty(const struct sl_node *head)
{
    return head->next == head;
}

static inline void sl_list_push_back(struct sl_node *head, struct sl_node *node)
{
    node->prev = head->prev;
    node->next = head;
    head->prev->next = node;
    head->prev = node;
}

static inline void sl_list_remove(struct sl_node *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    node->next = node->prev = node;
}

/* The first node, taken out; NULL when the list is empty. */
static inline struct sl_node *sl_list_pop_front(struct sl_node *head)
{
    struct sl_node *node = head->next;

    if (node == head)
        return NULL;
    sl_list_remove(node);
    return node;
}

/* Visits every node; the body may remove the node it is at. */
#define sl_list_foreach(head, node)                                                                \
    for (struct sl_node *node = (head)->next, *node##_next = node->next; node != (head);           \
         node = node##_next, node##_next = node->next)

#endif
