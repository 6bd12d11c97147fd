/* SPDX-License-Identifier: Apache-2.0 */
/* Finds blocks by their content: a list of all, as a process has few that differ. */
#include "core/shared.h"

#include "core/err.h"
#include "core/fork.h"
#include "core/list.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define LANES 4

struct sl_shared {
    struct sl_node link;
    unsigned refs;
    uint64_t hash;
    size_t len;
    void *bytes;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sl_node list = {&list, &list};

/* In a child: its parent's, maybe as another thread was changing it. Leak checkers see it here. */
static struct sl_node *parents __attribute__((used));

static void forget_parents(void)
{
    parents = list.next;
    sl_list_init(&list);
    pthread_mutex_init(&lock, NULL);
}

static uint64_t mix(uint64_t h, uint64_t word)
{
    h = (h ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ h >> 29;
}

/* Several at a time, as each step waits for the one before. */
static uint64_t hash_of(const uint8_t *bytes, size_t len)
{
    uint64_t lanes[LANES] = {1, 2, 3, 4}, words[LANES], h = len;

    for (; len >= sizeof(words); len -= sizeof(words), bytes += sizeof(words)) {
        memcpy(words, bytes, sizeof(words));
        for (unsigned i = 0; i < LANES; i++)
            lanes[i] = mix(lanes[i], words[i]);
    }
    memset(words, 0, sizeof(words));
    memcpy(words, bytes, len);
    for (unsigned i = 0; i < LANES; i++)
        h = mix(mix(h, lanes[i]), words[i]);
    return h;
}

/* With the lock. */
static struct sl_shared *find(uint64_t hash, const void *bytes, size_t len)
{
    sl_list_foreach(&list, node)
    {
        struct sl_shared *its = sl_container_of(node, struct sl_shared, link);

        if (its->hash == hash && its->len == len && memcmp(its->bytes, bytes, len) == 0)
            return its;
    }
    return NULL;
}

int sl_shared_keep(void *bytes, size_t len, struct sl_shared **out)
{
    uint64_t hash = hash_of(bytes, len);
    struct sl_shared *its;

    sl_fork_on_child(forget_parents);
    pthread_mutex_lock(&lock);
    its = find(hash, bytes, len);
    if (its != NULL) {
        its->refs++;
        free(bytes);
    } else if ((its = malloc(sizeof(*its))) != NULL) {
        *its = (struct sl_shared){.refs = 1, .hash = hash, .len = len, .bytes = bytes};
        sl_list_push_back(&list, &its->link);
    } else {
        free(bytes);
    }
    pthread_mutex_unlock(&lock);
    if (its == NULL)
        return sl_fail(-ENOMEM, "no memory for a table of %zu bytes", len);
    *out = its;
    return 0;
}

const void *sl_shared_bytes(const struct sl_shared *shared)
{
    return shared->bytes;
}

void sl_shared_drop(struct sl_shared *shared)
{
    bool last;

    if (shared == NULL)
        return;
    pthread_mutex_lock(&lock);
    last = --shared->refs == 0;
    if (last)
        sl_list_remove(&shared->link);
    pthread_mutex_unlock(&lock);
    if (!last)
        return;
    free(shared->bytes);
    free(shared);
}
