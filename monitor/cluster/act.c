/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/cluster/act.h"

#include "core/err.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct entry {
    char key[SL_ACT_KEY], owner[SL_ACT_NAME]; /* owner "": nobody's */
    enum sl_act_state state;
    bool is_wanted, is_begun, is_running, has_ended;
};

struct sl_act {
    char instance[SL_ACT_NAME];
    const struct sl_act_ops *ops;
    void *arg;
    struct entry *list; /* in the order of their coming */
    unsigned count, cap;
    uint64_t settled_ns; /* claims from then on */
    bool is_running;
};

int sl_act_new(const char *instance, const struct sl_act_ops *ops, void *arg, struct sl_act **out)
{
    struct sl_act *act = calloc(1, sizeof(*act));

    if (act == NULL)
        return sl_fail(-ENOMEM, "no memory for actions");
    snprintf(act->instance, sizeof(act->instance), "%s", instance);
    act->ops = ops;
    act->arg = arg;
    *out = act;
    return 0;
}

void sl_act_free(struct sl_act *act)
{
    if (act == NULL)
        return;
    free(act->list);
    free(act);
}

static struct entry *find(const struct sl_act *act, const char *key)
{
    for (unsigned i = act->count; i > 0; i--)
        if (strcmp(act->list[i - 1].key, key) == 0)
            return &act->list[i - 1];
    return NULL;
}

/* The oldest quarter of what is done: the broker has it still. */
static void drop_old(struct sl_act *act)
{
    unsigned kept = 0, dropped = 0;

    for (unsigned i = 0; i < act->count; i++)
        if (act->list[i].state == SL_ACT_DONE && dropped < SL_ACT_MAX / 4)
            dropped++;
        else
            act->list[kept++] = act->list[i];
    act->count = kept;
}

static struct entry *get(struct sl_act *act, const char *key)
{
    struct entry *entry = find(act, key);

    if (entry != NULL || strlen(key) >= SL_ACT_KEY)
        return entry;
    if (act->count == SL_ACT_MAX)
        drop_old(act);
    if (act->count == SL_ACT_MAX)
        return NULL;
    if (act->count == act->cap) {
        unsigned cap = act->cap == 0 ? 64 : 2 * act->cap;
        struct entry *list = reallocarray(act->list, cap, sizeof(*list));

        if (list == NULL)
            return NULL;
        act->list = list;
        act->cap = cap;
    }
    entry = &act->list[act->count++];
    memset(entry, 0, sizeof(*entry));
    snprintf(entry->key, sizeof(entry->key), "%s", key);
    return entry;
}

int sl_act_want(struct sl_act *act, const char *key)
{
    struct entry *entry = get(act, key);

    if (entry == NULL)
        return sl_fail(-ENOSPC, "too much is to be done: %s is left out", key);
    entry->is_wanted = true;
    if (entry->state == SL_ACT_KNOWN)
        entry->state = entry->owner[0] != '\0' ? SL_ACT_OTHERS : SL_ACT_WANTED;
    return 0;
}

/* ---- what is heard ---- */

static bool is_own(const struct sl_act *act, const char *instance)
{
    return strcmp(act->instance, instance) == 0;
}

/* The first one has it. */
void sl_act_heard_claim(struct sl_act *act, const char *key, const char *instance)
{
    struct entry *entry = get(act, key);

    if (entry == NULL || entry->state == SL_ACT_DONE || entry->owner[0] != '\0' ||
        strlen(instance) >= SL_ACT_NAME)
        return;
    snprintf(entry->owner, sizeof(entry->owner), "%s", instance);
    if (is_own(act, instance) && entry->is_wanted) {
        entry->state = SL_ACT_MINE;
        /* At once: who begins to listen now has not heard the claim. */
        entry->is_begun = act->ops->begun(act->arg, entry->key) == 0;
    } else if (entry->is_wanted)
        entry->state = SL_ACT_OTHERS;
}

/* Whoever has begun has it, whatever was claimed. Where two have, which takes an instance that
 * heard only the later claim, the last one has it: that is what the broker keeps, and all hear the
 * same, these two as well. */
void sl_act_heard_begun(struct sl_act *act, const char *key, const char *instance)
{
    struct entry *entry = get(act, key);

    if (entry == NULL || entry->state == SL_ACT_DONE || entry->is_running || entry->has_ended ||
        strlen(instance) >= SL_ACT_NAME)
        return;
    if (is_own(act, instance) && !entry->is_begun)
        return; /* it was before this instance began */
    snprintf(entry->owner, sizeof(entry->owner), "%s", instance);
    if (entry->is_wanted)
        entry->state = is_own(act, instance) ? SL_ACT_MINE : SL_ACT_OTHERS;
}

void sl_act_heard_done(struct sl_act *act, const char *key)
{
    struct entry *entry = get(act, key);

    if (entry != NULL && !entry->is_running)
        entry->state = SL_ACT_DONE;
}

void sl_act_heard_instance(struct sl_act *act, const char *instance, bool is_alive)
{
    if (is_alive || is_own(act, instance))
        return;
    for (unsigned i = 0; i < act->count; i++) {
        struct entry *entry = &act->list[i];

        if (entry->state == SL_ACT_DONE || strcmp(entry->owner, instance) != 0)
            continue;
        entry->owner[0] = '\0';
        entry->state = entry->is_wanted ? SL_ACT_WANTED : SL_ACT_KNOWN;
    }
}

void sl_act_ended(struct sl_act *act, const char *key)
{
    struct entry *entry = find(act, key);

    act->is_running = false;
    if (entry == NULL)
        return;
    entry->is_running = false;
    entry->has_ended = true;
}

/* What nobody but this instance may know to be its own is claimed once more: others may have
 * claimed it meanwhile. What it has said to have begun the broker has kept. */
void sl_act_connected(struct sl_act *act, uint64_t now_ns)
{
    act->settled_ns = now_ns + SL_ACT_SETTLE_NS;
    for (unsigned i = 0; i < act->count; i++) {
        struct entry *entry = &act->list[i];

        if (entry->state == SL_ACT_CLAIMED || (entry->state == SL_ACT_MINE && !entry->is_begun)) {
            entry->state = SL_ACT_WANTED;
            entry->owner[0] = '\0';
        }
    }
}

/* ---- what is done ---- */

static void go_on(struct sl_act *act, struct entry *entry)
{
    if (entry->has_ended) {
        if (act->ops->done(act->arg, entry->key) == 0)
            entry->state = SL_ACT_DONE;
        return;
    }
    /* It could not be said when the claim was heard. */
    if (!entry->is_begun && act->ops->begun(act->arg, entry->key) != 0)
        return;
    entry->is_begun = true;
    if (entry->is_running || act->is_running)
        return;
    entry->is_running = act->is_running = true;
    act->ops->run(act->arg, entry->key);
}

void sl_act_tick(struct sl_act *act, uint64_t now_ns, bool connected)
{
    if (!connected || now_ns < act->settled_ns)
        return;
    for (unsigned i = 0; i < act->count; i++) {
        struct entry *entry = &act->list[i];

        if (entry->state == SL_ACT_WANTED && act->ops->claim(act->arg, entry->key) == 0)
            entry->state = SL_ACT_CLAIMED;
        else if (entry->state == SL_ACT_MINE)
            go_on(act, entry);
    }
}

enum sl_act_state sl_act_state_of(const struct sl_act *act, const char *key)
{
    const struct entry *entry = find(act, key);

    return entry != NULL ? entry->state : SL_ACT_KNOWN;
}
