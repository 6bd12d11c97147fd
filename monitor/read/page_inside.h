/* SPDX-License-Identifier: Apache-2.0 */
/* A page on its way into a job: page_take.c and page_paths.c. */
#ifndef SL_MONITOR_READ_PAGE_INSIDE_H
#define SL_MONITOR_READ_PAGE_INSIDE_H

#include "monitor/read/page.h"

struct sl_page_taking {
    struct sl_job *job;
    const struct sl_page *page;
    uint32_t rank;
    uint32_t *comms; /* of the job, by place in the page */
    bool has_writes; /* windows tell of writes: sl_page_has_writes() */
};

/* Printable ASCII, whatever the process wrote. SL_JOB_NONE: no memory. */
uint32_t sl_page_text(struct sl_job *job, const char *text);
/* When it was looked at, of its own clock. */
static inline uint64_t sl_page_time(const struct sl_page *page)
{
    return page->now_ns != SL_JOB_NEVER ? (uint64_t)page->now_ns : sl_page_latest(page);
}
/* The id of a communicator by its number in the process; 0: not known. */
uint64_t sl_page_comm_id(const struct sl_page *page, uint64_t number);
/* Of the last windows, some path's have writes: they alone tell of the network then. */
bool sl_page_has_writes(const struct sl_page *page);
/* Path i of the page. earlier: or NULL. -ENOMEM. */
int sl_page_take_path(const struct sl_page_taking *taking, const struct sl_page *earlier,
                      uint32_t i);

#endif
