/* SPDX-License-Identifier: Apache-2.0 */
/* State pages of the test's making, and a tree of /proc, /dev/shm and cgroups around them. */
#ifndef SL_TESTS_UNIT_MONITOR_PAGES_H
#define SL_TESTS_UNIT_MONITOR_PAGES_H

#include "core/event.h"
#include "core/state.h"

#include <stdbool.h>

#define PAGE_COMMS 16
#define PAGE_OPS 16
#define PAGE_PATHS 128
#define PAGE_ROWS 8
#define PAGE_EVENTS 32
#define PAGE_CALLS 64

struct test_page {
    struct sl_state_header header;
    struct sl_state_section sections[7];
    struct sl_state_process process;
    struct sl_state_comm comms[PAGE_COMMS];
    struct sl_state_op ops[PAGE_OPS];
    struct sl_state_path paths[PAGE_PATHS];
    struct sl_event_record events[PAGE_EVENTS];
    struct sl_event_row rows[PAGE_ROWS];
    struct sl_state_call calls[PAGE_CALLS];
};

/* Of that process, with nothing in it. */
void page_init(struct test_page *page, int pid, uint64_t start_ticks);
/* In place, as a process writes it: who has it open sees it. */
void page_write(const struct test_page *page, const char *path);
int page_memfd(const struct test_page *page);

/* Below a folder of its own: proc/, shm/, cgroup/. */
extern char tree[64];

void tree_begin(void);
void tree_end(void);
/* With the text's arguments; folders are made. */
void tree_put(const char *text, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void tree_remove(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* A process of this user; state as in stat, group as in cgroup. */
void tree_process(int pid, const char *name, char state, uint64_t start_ticks, const char *group);

#endif
