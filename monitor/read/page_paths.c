/* SPDX-License-Identifier: Apache-2.0 */
/* What went, and what came, by each path of a page, into a job. */
#include "core/err.h"
#include "monitor/read/page_inside.h"

#include <errno.h>
#include <string.h>

/* ---- what came ---- */

#define QUICKEST_NS (UINT64_C(1) << 40)    /* more is nonsense: 18 minutes, */
#define QUICKEST_BYTES (UINT64_C(1) << 36) /* 64 GiB, */
#define QUICKEST_MESSAGES (1u << 20)

static void join_quickest(struct sl_state_quickest *all, const struct sl_state_quickest *it)
{
    if (it->bytes == 0 || it->bytes > QUICKEST_BYTES || it->ns > QUICKEST_NS || it->messages == 0 ||
        it->bytes < all->bytes / 2)
        return;
    if (it->bytes / 2 > all->bytes)
        all->messages = 0;
    if (all->messages == 0 || it->ns * (double)all->bytes < all->ns * (double)it->bytes) {
        all->ns = it->ns;
        all->bytes = it->bytes;
    }
    all->messages += it->messages;
    if (it->messages > QUICKEST_MESSAGES || all->messages > QUICKEST_MESSAGES)
        all->messages = QUICKEST_MESSAGES;
}

/* Those of the path's windows that are among the last SL_PAGE_WINDOWS by now and before one. */
static void join_windows(struct sl_state_quickest *all, const struct sl_state_path *path,
                         uint64_t last, uint64_t before)
{
    for (unsigned i = 0; path != NULL && i < 2; i++) {
        const struct sl_state_quickest *it = &path->quickest[i];

        if (it->window == 0 || it->window >= before ||
            it->window + (uint64_t)SL_PAGE_WINDOWS <= last)
            continue;
        join_quickest(all, it);
    }
}

/* That in which the page was looked at. An agent's clock is another host's: it says which. */
static uint64_t window_of(const struct sl_page *page)
{
    return page->window != 0 ? page->window : sl_page_time(page) / SL_STATE_WINDOW_NS + 1;
}

/* Where windows are told, the quickest of the last ones counts, for as many messages as there were
 * in these: of the page's own two, and those of the earlier look that are before them. */
static void take_quickest(struct sl_state_path *path, const struct sl_state_path *earlier,
                          uint64_t last)
{
    struct sl_state_quickest all = {0};
    uint64_t first = path->quickest[0].window;

    join_windows(&all, path, last, last + 1);
    if (path->quickest[1].window != 0 && path->quickest[1].window < first)
        first = path->quickest[1].window;
    join_windows(&all, earlier, last, first);
    path->arriving_messages = all.messages;
    path->arriving_bytes = all.bytes * all.messages;
    path->arriving_ns = all.ns * all.messages;
}

/* ---- paths ---- */

/* As if each time lay in the middle of its bin. */
static double seconds_of(const uint64_t *histogram)
{
    double ns = 0;

    for (unsigned bin = 1; bin < SL_HISTOGRAM_BINS; bin++)
        ns += (double)histogram[bin] * 0.75 * (double)(UINT64_C(1) << bin);
    return ns / 1e9;
}

static uint64_t grown(uint64_t now, uint64_t before)
{
    return now >= before ? now - before : now;
}

static uint64_t id_of(const struct sl_page *page, uint64_t number)
{
    for (uint32_t i = 0; i < page->comm_count; i++)
        if (page->comms[i].number == number)
            return page->comms[i].id;
    return 0;
}

static const struct sl_state_path *find_path(const struct sl_page *page,
                                             const struct sl_state_path *path)
{
    for (uint32_t i = 0; page != NULL && i < page->path_count; i++)
        if (page->paths[i].comm == path->comm && page->paths[i].peer == path->peer &&
            page->paths[i].number == path->number && strcmp(page->paths[i].name, path->name) == 0)
            return &page->paths[i];
    return NULL;
}

/* What the peer sent, as the receiver saw it arrive. */
static int add_arriving(struct sl_job *job, const struct sl_state_path *path,
                        const struct sl_job_edge *sent)
{
    struct sl_job_edge edge = {.src = sent->dst,
                               .dst = sent->src,
                               .comm = sent->comm,
                               .path = sent->path,
                               .src_place = sent->dst_place,
                               .dst_place = sent->src_place,
                               .messages = path->arriving_messages,
                               .bytes = path->arriving_bytes};

    if (path->arriving_messages == 0)
        return 0;
    edge.wait_s[SL_JOB_WAIT_WIRE] = (double)path->arriving_ns / 1e9;
    return sl_job_add_edge(job, &edge);
}

int sl_page_take_edge(struct sl_job *job, const struct sl_state_path *path,
                      struct sl_job_edge *edge)
{
    char name[sizeof(path->name) + 1] = "";
    char *end;
    int err;

    if ((path->sent_messages == 0 && path->arriving_messages == 0) ||
        path->number >= SL_STATE_PATH_ROUTE)
        return 0;
    memcpy(name, path->name, sizeof(path->name));
    end = strstr(name, " > ");
    if (end != NULL)
        *end = '\0';
    edge->path = sl_page_text(job, name);
    edge->messages = path->sent_messages;
    edge->bytes = path->sent_bytes;
    edge->lost = path->resent;
    edge->wait_s[SL_JOB_WAIT_WIRE] = seconds_of(path->histogram);
    if (edge->path == SL_JOB_NONE)
        return sl_fail(-ENOMEM, "no memory for the paths of a process");
    err = path->sent_messages > 0 ? sl_job_add_edge(job, edge) : 0;
    return err != 0 ? err : add_arriving(job, path, edge);
}

int sl_page_take_path(const struct sl_page_taking *taking, const struct sl_page *earlier,
                      const struct sl_state_path *path)
{
    const struct sl_state_path *before = find_path(earlier, path);
    struct sl_state_path rest = *path;
    struct sl_job_edge edge = {.comm = SL_JOB_NONE};

    for (uint32_t i = 0; i < taking->page->comm_count; i++)
        if (taking->page->comms[i].number == path->comm) {
            edge.comm = taking->comms[i];
            edge.src_place = taking->page->comms[i].rank + 1;
        }
    if (edge.comm == SL_JOB_NONE || path->peer < 0)
        return 0;
    if (before != NULL && id_of(earlier, path->comm) != id_of(taking->page, path->comm))
        before = NULL;
    if (before != NULL) {
        rest.sent_bytes = grown(path->sent_bytes, before->sent_bytes);
        rest.sent_messages = grown(path->sent_messages, before->sent_messages);
        rest.resent = grown(path->resent, before->resent);
        rest.arriving_ns = grown(path->arriving_ns, before->arriving_ns);
        rest.arriving_bytes = grown(path->arriving_bytes, before->arriving_bytes);
        rest.arriving_messages = grown(path->arriving_messages, before->arriving_messages);
        for (unsigned bin = 0; bin < SL_HISTOGRAM_BINS; bin++)
            rest.histogram[bin] = grown(path->histogram[bin], before->histogram[bin]);
    }
    edge.dst_place = (uint32_t)path->peer + 1;
    if (path->quickest[0].window != 0)
        take_quickest(&rest, before, window_of(taking->page));
    return sl_page_take_edge(taking->job, &rest, &edge);
}
