/* SPDX-License-Identifier: Apache-2.0 */
/* A table from numbers to pointers, whose cost grows with what is in it: of thousands of ranks few
 * know each other. Aborts when memory is out, as the simulator does. */
#ifndef SL_TESTING_SIM_TABLE_H
#define SL_TESTING_SIM_TABLE_H

#include <stddef.h>
#include <stdint.h>

struct sl_sim_entry;

struct sl_sim_table { /* all 0: empty */
    struct sl_sim_entry *entries;
    size_t room, count;
};

void *sl_sim_table_get(const struct sl_sim_table *table, uint64_t key); /* NULL: it has none */
/* key is not 0, value not NULL; replaces what was there. */
void sl_sim_table_put(struct sl_sim_table *table, uint64_t key, void *value);
void sl_sim_table_remove(struct sl_sim_table *table, uint64_t key);
/* drop, unless NULL, is called for each value. */
void sl_sim_table_fini(struct sl_sim_table *table, void (*drop)(void *value));

#endif
