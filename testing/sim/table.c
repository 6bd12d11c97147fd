/* SPDX-License-Identifier: Apache-2.0 */
/* A table from numbers to pointers, whose cost grows with what is in it. */
#include "testing/sim/table.h"

#include "core/err.h"

#include <stdlib.h>

/* Open addresses; key 0 is a free place. */
struct sl_sim_entry {
    uint64_t key;
    void *value;
};

static size_t place_of(const struct sl_sim_table *table, uint64_t key)
{
    size_t at = (size_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 20) & (table->room - 1);

    while (table->entries[at].key != 0 && table->entries[at].key != key)
        at = (at + 1) & (table->room - 1);
    return at;
}

static void grow(struct sl_sim_table *table)
{
    struct sl_sim_table larger = {.room = table->room != 0 ? 2 * table->room : 64};

    larger.entries = calloc(larger.room, sizeof(*larger.entries));
    sl_assert(larger.entries != NULL);
    for (size_t i = 0; i < table->room; i++)
        if (table->entries[i].key != 0)
            larger.entries[place_of(&larger, table->entries[i].key)] = table->entries[i];
    free(table->entries);
    table->entries = larger.entries;
    table->room = larger.room;
}

void *sl_sim_table_get(const struct sl_sim_table *table, uint64_t key)
{
    return table->room != 0 ? table->entries[place_of(table, key)].value : NULL;
}

void sl_sim_table_put(struct sl_sim_table *table, uint64_t key, void *value)
{
    size_t at;

    sl_assert(key != 0 && value != NULL);
    if (2 * (table->count + 1) > table->room)
        grow(table);
    at = place_of(table, key);
    table->count += table->entries[at].key == 0;
    table->entries[at] = (struct sl_sim_entry){key, value};
}

void sl_sim_table_remove(struct sl_sim_table *table, uint64_t key)
{
    size_t at = table->room != 0 ? place_of(table, key) : 0;

    if (table->room == 0 || table->entries[at].key == 0)
        return;
    table->count--;
    table->entries[at] = (struct sl_sim_entry){0, NULL};
    /* Those behind it may have wanted its place. */
    for (size_t next = (at + 1) & (table->room - 1); table->entries[next].key != 0;
         next = (next + 1) & (table->room - 1)) {
        struct sl_sim_entry entry = table->entries[next];

        table->entries[next] = (struct sl_sim_entry){0, NULL};
        table->entries[place_of(table, entry.key)] = entry;
    }
}

void sl_sim_table_fini(struct sl_sim_table *table, void (*drop)(void *value))
{
    for (size_t i = 0; i < table->room && drop != NULL; i++)
        if (table->entries[i].key != 0)
            drop(table->entries[i].value);
    free(table->entries);
    *table = (struct sl_sim_table){.room = 0};
}
