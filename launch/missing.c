/* SPDX-License-Identifier: Apache-2.0 */
/* Finds out who keeps an exchange from its end. The root's deadline counts: it asks the children
 * that have not given their shares, these ask theirs, and each level has a moment to answer. Who
 * does not answer is missing; nothing is known of the ranks behind it. */
#include "launch/gather.h"

#include "core/clock.h"
#include "core/err.h"

#include <stdio.h>

bool sl_gather_is_through(const struct sl_gather *gather, const struct sl_edge *child)
{
    return child->in && child->sent == gather->pieces[gather->count].at;
}

static int fail_silent(struct sl_gather *gather)
{
    char list[256];

    sl_rank_list(gather->missing, gather->tree.size, list, sizeof(list));
    sl_fail(-ETIMEDOUT, "%s rank %s of %d within %.3g s in exchange %llu; stopped or cut off?",
            gather->gathered ? "no result could be sent to" : "nothing came from", list,
            gather->tree.size,
            (double)sl_exchange_wait_ns(gather->timeout_ns, gather->seq) / (double)SL_NS_PER_S,
            (unsigned long long)gather->seq);
    return sl_gather_break(gather, -ETIMEDOUT, NULL);
}

/* Marks children that keep this exchange, and have not said who keeps them. Returns how many may
 * still say so. */
static int mark_missing(struct sl_gather *gather)
{
    int open = 0;

    for (int i = 0; i < gather->tree.count; i++) {
        const struct sl_edge *child = &gather->down[i];
        bool keeps = gather->gathered ? !sl_gather_is_through(gather, child) : !child->in;

        gather->missing[child->rank] = keeps && !child->answered;
        open += keeps && !child->answered && !gather->gathered &&
                gather->tree.child[i + 1] > child->rank + 1;
    }
    return open;
}

static bool any_missing(const struct sl_gather *gather)
{
    for (int i = gather->tree.rank; i < gather->tree.end; i++)
        if (gather->missing[i])
            return true;
    return false;
}

void sl_gather_inquire(struct sl_gather *gather)
{
    memset(gather->missing, 0, (size_t)gather->tree.size * sizeof(*gather->missing));
    gather->inquiry_ns = sl_io_now();
    if (mark_missing(gather) == 0)
        return;
    gather->inquiry_ns += (uint64_t)gather->tree.height * SL_GATHER_INQUIRY_MS * SL_NS_PER_MS;
    for (int i = 0; i < gather->tree.count; i++)
        if (!gather->down[i].in) /* where it takes none, it will be the one that is missing */
            (void)sl_control_send(gather->down[i].fd, &(struct sl_meeting_keys){.sealed = false},
                                  false, SL_FRAME_INQUIRE, 0, NULL, 0);
}

int sl_gather_conclude(struct sl_gather *gather)
{
    uint8_t body[SL_MISSING_MAX];

    if (mark_missing(gather) > 0 && sl_io_now() < gather->inquiry_ns)
        return 0;
    if (gather->told || !any_missing(gather))
        return 0;
    if (gather->tree.parent < 0)
        return fail_silent(gather);
    gather->told = true;
    if (gather->up.sent == 0)
        (void)sl_control_send(gather->up.fd, &gather->up.keys, true, SL_FRAME_MISSING,
                              sl_missing_number(gather->seq), body,
                              sl_missing_make(gather->missing, gather->tree.size, body));
    return 0;
}

int sl_gather_missing(struct sl_gather *gather, struct sl_edge *child, int end)
{
    size_t len;
    int err = sl_control_read(&child->control, child->fd);

    if (err == 0)
        return 0;
    if (err < 0)
        return sl_gather_gone(gather, child, -err);
    child->control.got = 0;
    if (gather->inquiry_ns == 0 || child->answered)
        return sl_gather_wrong_frame(gather, child);
    if (sl_control_open(&child->keys, true, sl_missing_number(gather->seq), child->control.bytes,
                        &len) != 0)
        return sl_gather_changed(gather, child);
    err = sl_missing_parse(child->control.bytes + SL_FRAME_BYTES, len, child->rank, end,
                           gather->missing);
    if (err != 0)
        return sl_gather_break(gather, err, NULL);
    child->answered = true;
    return sl_gather_conclude(gather);
}

static int fail_late(struct sl_gather *gather)
{
    memset(gather->missing, 0, (size_t)gather->tree.size * sizeof(*gather->missing));
    mark_missing(gather);
    if (any_missing(gather))
        return fail_silent(gather);
    sl_fail(-ETIMEDOUT, "rank %d at %s did not finish exchange %llu within %.3g s",
            gather->tree.parent, gather->up.name, (unsigned long long)gather->seq,
            (double)sl_exchange_wait_ns(gather->timeout_ns, gather->seq) / (double)SL_NS_PER_S);
    return sl_gather_break(gather, -ETIMEDOUT, NULL);
}

int sl_gather_late(struct sl_gather *gather)
{
    if (gather->tree.parent >= 0 || gather->gathered)
        return fail_late(gather);
    sl_gather_inquire(gather);
    return sl_gather_conclude(gather);
}
