/* SPDX-License-Identifier: Apache-2.0 */
/* Wire-up: its links and their progress. wireup.h draws their words. */
#include "core/wireup_link.h"

#include "core/config.h"
#include "core/err.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PENDING_MAX 128
#define YIELD_NS (20 * SL_NS_PER_MS) /* without a move, see yields() */
#define POLL_IDLE_NS (200 * 1000)    /* between polls for peers that dial */
#define POLL_BUSY_NS (20 * 1000)
#define POLL_LINK_NS 2000 /* at least, for each link: a poll of many takes as long itself */

/* A peer that hangs up may have said why before: what is sent to it fails, and its last words are
 * still there to be read. err, or what comes of its refusal. */
static int hear_last_words(struct sl_wireup_link *link, int err)
{
    struct sl_wireup_word word;

    while (sl_wireup_hear(link, &word) == 1)
        if (word.kind == SL_WIREUP_REFUSE)
            return sl_wireup_dial_word(link, &word);
    return err;
}

/* Says and hears what can be said and heard now. */
static int talk(struct sl_wireup_link *link, unsigned *moved)
{
    struct sl_wireup_word word;
    int heard, err = sl_wireup_flush(link);

    while (err == 0 && !link->committed && (heard = sl_wireup_hear(link, &word)) != 0) {
        ++*moved;
        err = heard < 0     ? heard
              : link->dials ? sl_wireup_dial_word(link, &word)
                            : sl_wireup_accept_word(link, &word);
    }
    if (err == 0 && (link->dials || link->proved))
        err = link->dials ? sl_wireup_dial_settle(link) : sl_wireup_accept_settle(link);
    if ((err == -EPIPE || err == -ECONNRESET) && link->dials)
        err = hear_last_words(link, err);
    return err;
}

/* A rank that still needs the pipe's endpoint dials, which takes the link's memory if no other. */
static void end_accepted(struct sl_wireup_link *link)
{
    struct sl_wireup *w = link->wireup;
    uint32_t peer = link->peer;
    bool wanted = link->wanted, patient = link->patient;

    sl_wireup_link_free(link);
    int err = wanted ? sl_wireup_connect(w, peer, patient) : 0;

    sl_assert(err == 0);
}

/* The place that was dialed has not taken the first word. */
static void note_silence(struct sl_wireup_link *link)
{
    sl_text_set(&link->reason, "%s does not answer; does a firewall close the port?",
                link->wireup->ops->to(link->pipe));
}

static void expire(struct sl_wireup_link *link)
{
    struct sl_wireup *w = link->wireup;

    if (w->now_ns < link->deadline_ns)
        return;
    if (!link->dials) {
        if (link->proved && !sl_wireup_accept_waits(link))
            end_accepted(link);
        return; /* of others the set knows */
    }
    if (link->patient && link->pipe != NULL && link->out_len == 0 &&
        (!link->heard || link->is_up)) { /* it computes, or does not accept yet */
        link->deadline_ns = w->now_ns + w->patience_ns;
        return;
    }
    if (link->pipe != NULL && link->out_len > 0 && !link->heard)
        note_silence(link);
    if (link->why == NULL)
        sl_text_set(&link->why, "; %s",
                    link->reason != NULL ? link->reason
                    : link->heard        ? "it stopped in the middle of connecting"
                                         : "it does not answer");
    sl_wireup_fail(link, link->alien                                          ? -EACCES
                         : link->err == -ECONNREFUSED || link->err == -ENOMEM ? link->err
                                                                              : -ETIMEDOUT);
}

/* Of two ranks that dial each other the higher one's dial counts: the lower one dials when nothing
 * moves any more, or a fourth of its time is over. */
static bool yields(const struct sl_wireup_link *link)
{
    const struct sl_wireup *w = link->wireup;

    return link->peer > w->owner.rank && w->calm_ns < YIELD_NS &&
           w->now_ns + w->patience_ns - w->patience_ns / 4 < link->deadline_ns;
}

/* A long gap counts little with many links: ranks that share cores have not had their turn. */
static void count_calm(struct sl_wireup *w, unsigned moved, uint64_t since_ns)
{
    uint64_t gap_ns = w->now_ns > since_ns ? w->now_ns - since_ns : 0;
    uint64_t most_ns = YIELD_NS / (w->count + 1);

    w->calm_ns = moved != 0 ? 0 : w->calm_ns + (gap_ns < most_ns ? gap_ns : most_ns);
}

static void step(struct sl_wireup_link *link, unsigned *moved)
{
    struct sl_wireup *w = link->wireup;
    int err = 0;

    if (link->dials && link->pipe == NULL && w->now_ns >= link->next_ns && !yields(link))
        err = sl_wireup_dial(link);
    if (err == 0 && link->pipe != NULL)
        err = talk(link, moved);
    if (err == SL_WIREUP_GONE)
        return;
    if (err == 0 && link->dials && link->pipe != NULL && link->out_len > 0 && !link->heard &&
        w->now_ns >= link->next_ns) {
        note_silence(link);
        err = -ETIMEDOUT;
    }
    if (err != 0 && link->dials) {
        sl_wireup_dial_rest(link, err);
    } else if (err != 0) {
        if (!link->proved && err != -ECONNRESET && err != -ENOMEM)
            sl_pending_refused(&w->set, link->pending.from, "it says nothing that a peer says",
                               w->now_ns);
        end_accepted(link);
        return;
    }
    expire(link);
}

static uint64_t pause_ns(const struct sl_wireup *w)
{
    uint64_t links_ns = (uint64_t)w->count * POLL_LINK_NS;

    if (w->count == 0)
        return POLL_IDLE_NS;
    return links_ns > POLL_BUSY_NS ? links_ns : POLL_BUSY_NS;
}

unsigned sl_wireup_progress(struct sl_wireup *w, uint64_t now_ns)
{
    unsigned moved = 0, links;
    uint64_t since_ns = w->now_ns;

    if (now_ns < w->next_poll_ns)
        return 0;
    w->now_ns = now_ns;
    moved = sl_wireup_let_in(w);
    links = w->count;
    /* Those that are here now, once each: a step may end its link, and begin another. */
    for (unsigned i = 0; i < links && !sl_list_empty(&w->links); i++) {
        struct sl_node *node = w->links.next;

        sl_list_remove(node);
        sl_list_push_back(&w->links, node);
        step(sl_container_of(node, struct sl_wireup_link, node), &moved);
    }
    count_calm(w, moved, since_ns);
    sl_wireup_show_late_out(w);
    w->next_poll_ns = sl_now(w->worker->clock) + pause_ns(w);
    return moved;
}

int sl_wireup_connect(struct sl_wireup *w, uint32_t peer, bool patient)
{
    struct sl_wireup_link *link = sl_wireup_link_find(w, peer, NULL);

    w->now_ns = sl_now(w->worker->clock);
    if (link != NULL) {
        link->wanted = true;
        link->patient |= patient;
        return 0;
    }
    link = sl_wireup_link_new(w, true, peer);
    if (link == NULL)
        return sl_fail(-ENOMEM, "no memory to connect to rank %u", peer);
    sl_wireup_link_add(link);
    link->wanted = true;
    link->patient = patient;
    link->next_ns = w->now_ns;
    w->next_poll_ns = w->calm_ns = 0;
    return 0;
}

unsigned sl_wireup_busy(const struct sl_wireup *w)
{
    return w->count;
}

unsigned sl_wireup_fds(const struct sl_wireup *w, struct pollfd *out, unsigned cap)
{
    unsigned count = w->ops->listeners(w->wire, out, cap);

    sl_list_foreach(&w->links, node)
    {
        const struct sl_wireup_link *link =
            sl_container_of(node, const struct sl_wireup_link, node);
        int fd = link->pipe != NULL ? w->ops->fd(link->pipe) : -1;

        if (count < cap && fd >= 0)
            out[count] = (struct pollfd){fd, link->out_len != 0 ? POLLIN | POLLOUT : POLLIN, 0};
        count++;
    }
    return count;
}

int sl_wireup_open(struct sl_worker *worker, const struct sl_wire_ops *ops, bool one_host,
                   const struct sl_wireup_owner *owner, struct sl_wireup_addr *addr,
                   struct sl_wireup **out)
{
    struct sl_wireup *w = calloc(1, sizeof(*w));
    struct sl_wireup_addr fresh = {.port = 0};
    int err;

    if (w == NULL)
        return sl_fail(-ENOMEM, "no memory to be connected to");
    *w = (struct sl_wireup){.worker = worker, .ops = ops, .owner = *owner};
    w->patience_ns = (uint64_t)worker->config->connect_timeout_ms * SL_NS_PER_MS;
    sl_list_init(&w->links);
    sl_pending_init(&w->set, "wireup", PENDING_MAX, &w->log);
    memcpy(fresh.id, addr->id, sizeof(fresh.id));
    *addr = fresh;
    err = ops->open(worker, one_host, addr, &w->wire);
    if (err != 0) {
        free(w);
        return err;
    }
    w->addr = *addr;
    *out = w;
    return 0;
}

void sl_wireup_close(struct sl_wireup *w)
{
    struct sl_node *node;

    if (w == NULL)
        return;
    while (!sl_list_empty(&w->links)) {
        node = w->links.next;
        sl_wireup_link_free(sl_container_of(node, struct sl_wireup_link, node));
    }
    sl_pending_fini(&w->set);
    free(w->spare);
    w->ops->close(w->wire);
    free(w);
}
