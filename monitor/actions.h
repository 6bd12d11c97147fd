/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What was done about the node, and what is still to be done: a table in the store's file, by a
 * connection of its own. An action is on the disk before it is performed, so that one that was cut
 * short is known, and repeated with the same key.
 */
#ifndef SL_MONITOR_ACTIONS_H
#define SL_MONITOR_ACTIONS_H

#include "monitor/engine.h"

struct sl_actions;

#define SL_ACTIONS_KEPT 1000 /* that are over */

struct sl_mon_action {
    uint64_t id;
    char key[192]; /* NODE/BOOT/VERDICT/KIND, the same however often it is repeated; unique */
    uint64_t verdict;
    char kind[8], plug[16], node[SL_MON_NAME], state[16]; /* sl_isolate_kind_name(), ... */
    bool is_shadow;
    unsigned attempts;
    uint64_t wanted_ns, tried_ns, ended_ns; /* wall clock; 0: not yet */
    char boot_id[SL_MON_BOOT_ID];           /* of the verdict */
    char subject_kind[16], subject[SL_MON_NAME], check[32], condition[32];
    char text[SL_MON_TEXT];    /* of the verdict */
    char outcome[SL_MON_TEXT]; /* of the last attempt */
};

/* path: of the store, which is there. -EACCES, -ENOSPC, -EIO. */
int sl_actions_open(const char *path, uint64_t bytes_max, struct sl_actions **out);
void sl_actions_close(struct sl_actions *actions);
/* A new one, or the one with that key once more: it is wanted again. id: its number, which is left
 * alone on failure. */
int sl_actions_put(struct sl_actions *actions, const struct sl_mon_action *action, uint64_t *id);
/* Its state, attempts, times and outcome. */
int sl_actions_update(struct sl_actions *actions, const struct sl_mon_action *action);
/* Those from a number on, at most so many, in their order; how many, or a negative errno. */
int sl_actions_list(struct sl_actions *actions, uint64_t from, struct sl_mon_action *out,
                    unsigned most);
int sl_actions_get(struct sl_actions *actions, uint64_t id, struct sl_mon_action *out);

#endif
