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

/* That in which the page was looked at. An agent's clock is another host's: it says which. */
static uint64_t window_of(const struct sl_page *page)
{
    return page->window != 0 ? page->window : sl_page_time(page) / SL_STATE_WINDOW_NS + 1;
}

/* Where windows are told, the quickest of the last ones counts, for as many messages as there were
 * in these. Their times have no latency in them, or little, so they are compared by the byte: as if
 * each were as long as the power of two below it. Rests of one kind of message are those of one
 * size then, however much of it had come before. */
static struct sl_state_quickest quickest_of(const struct sl_state_quickest *windows, unsigned count,
                                            uint64_t last)
{
    struct sl_state_quickest all = {0};
    double bytes;

    for (unsigned i = 0; i < count; i++)
        if (windows[i].window != 0 && windows[i].window <= last &&
            windows[i].window + (uint64_t)SL_PAGE_WINDOWS > last)
            join_quickest(&all, &windows[i]);
    if (all.messages == 0)
        return all;
    bytes = (double)(UINT64_C(1) << (63 - __builtin_clzll(all.bytes)));
    all.ns = (uint64_t)((double)all.ns * (double)all.messages * bytes / (double)all.bytes);
    all.bytes = (uint64_t)bytes * all.messages;
    return all;
}

/* Of the last windows of path i. */
static struct sl_state_quickest quickest_at(const struct sl_page *page, uint32_t i)
{
    const struct sl_state_path *path = &page->paths[i];

    if (path->quickest[0].window == 0)
        return (struct sl_state_quickest){0};
    return i < page->window_count
               ? quickest_of(page->windows[i].of, SL_PAGE_WINDOWS, window_of(page))
               : quickest_of(path->quickest, SL_ARRAY_LEN(path->quickest), window_of(page));
}

/* Over RDMA and DPDK this end does. */
static bool sees_arrive(const struct sl_state_path *path)
{
    return sl_histogram_total(path->histogram) > 0;
}

bool sl_page_has_writes(const struct sl_page *page)
{
    for (uint32_t i = 0; i < page->path_count; i++)
        if (sees_arrive(&page->paths[i]) && quickest_at(page, i).messages > 0)
            return true;
    return false;
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

uint64_t sl_page_comm_id(const struct sl_page *page, uint64_t number)
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

static int take_edge(struct sl_job *job, const struct sl_state_path *path, double sent_s,
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
    edge->wait_s[SL_JOB_WAIT_WIRE] = sent_s;
    if (edge->path == SL_JOB_NONE)
        return sl_fail(-ENOMEM, "no memory for the paths of a process");
    err = path->sent_messages > 0 ? sl_job_add_edge(job, edge) : 0;
    return err != 0 ? err : add_arriving(job, path, edge);
}

int sl_page_take_edge(struct sl_job *job, const struct sl_state_path *path,
                      struct sl_job_edge *edge)
{
    return take_edge(job, path, seconds_of(path->histogram), edge);
}

int sl_page_take_path(const struct sl_page_taking *taking, const struct sl_page *earlier,
                      uint32_t i)
{
    const struct sl_page *page = taking->page;
    const struct sl_state_path *path = &page->paths[i], *before = find_path(earlier, path);
    struct sl_state_path rest = *path;
    struct sl_state_quickest all;
    struct sl_job_edge edge = {.comm = SL_JOB_NONE};
    double sent_s;

    for (uint32_t k = 0; k < page->comm_count; k++)
        if (page->comms[k].number == path->comm) {
            edge.comm = taking->comms[k];
            edge.src_place = page->comms[k].rank + 1;
        }
    if (edge.comm == SL_JOB_NONE || path->peer < 0)
        return 0;
    if (before != NULL && sl_page_comm_id(earlier, path->comm) != sl_page_comm_id(page, path->comm))
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
    all = quickest_at(page, i);
    sent_s = seconds_of(rest.histogram);
    if (sees_arrive(path) && taking->has_writes) {
        rest.sent_messages = all.messages;
        rest.sent_bytes = all.bytes;
        sent_s = (double)all.ns / 1e9;
    } else if (!sees_arrive(path) && path->quickest[0].window != 0) {
        rest.arriving_messages = all.messages;
        rest.arriving_bytes = all.bytes;
        rest.arriving_ns = all.ns;
    }
    return take_edge(taking->job, &rest, sent_s, &edge);
}
