/* SPDX-License-Identifier: Apache-2.0 */
/* Swaps bytes through the tree.
 *
 * A rank takes its children's shares, which are ranges of ranks beside each other, and sends them
 * up in one message with its own. The root then cuts all shares into pieces (launch/tree.h), and
 * each rank passes on the pieces in order as soon as they are here: all but those of the receiver's
 * own subtree, which the receiver makes itself. So nobody gets a share twice, but for pieces that
 * are larger than a subtree, and those are small. Pieces are sealed once, by the job's key: they
 * are the same bytes everywhere. */
#include "launch/gather.h"

#include "core/clock.h"
#include "core/err.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static bool is_done(const struct sl_gather *gather)
{
    if (!gather->gathered || gather->ready < gather->count)
        return false;
    for (int i = 0; i < gather->tree.count; i++)
        if (!sl_gather_is_through(gather, &gather->down[i]))
            return false;
    return gather->tree.parent < 0 ||
           gather->up.sent ==
               sl_gather_around(gather) + (size_t)sl_gather_subtree(gather) * gather->len;
}

/* What to wait for; its last entry is the parent's. */
static void list_edges(const struct sl_gather *gather, struct pollfd polls[SL_TREE_DEGREE + 1])
{
    const struct sl_edge *up = &gather->up;

    for (int i = 0; i < SL_TREE_DEGREE; i++) {
        const struct sl_edge *child = &gather->down[i];
        bool here = i < gather->tree.count;
        bool write = here && gather->gathered && child->sent < sl_gather_ready_at(gather);

        polls[i] = (struct pollfd){-1, 0, 0};
        if (here && (!child->in || write))
            polls[i] = (struct pollfd){child->fd, child->in ? POLLOUT : POLLIN, 0};
    }
    polls[SL_TREE_DEGREE] = (struct pollfd){-1, 0, 0};
    bool write = gather->gathered && up->sent < sl_gather_around(gather) +
                                                    (size_t)sl_gather_subtree(gather) * gather->len;
    bool read = gather->ready < gather->count;
    if (gather->tree.parent >= 0 && (read || write))
        polls[SL_TREE_DEGREE] =
            (struct pollfd){up->fd, (short)((read ? POLLIN : 0) | (write ? POLLOUT : 0)), 0};
}

static int gather_round(struct sl_gather *gather)
{
    struct pollfd polls[SL_TREE_DEGREE + 1];
    bool asking = gather->inquiry_ns != 0 && !gather->told && !gather->gathered;
    uint64_t until_ns = asking ? gather->inquiry_ns : gather->deadline_ns;
    int err = 0;

    list_edges(gather, polls);
    int n = poll(polls, SL_TREE_DEGREE + 1, sl_io_poll_ms(until_ns));
    if (n < 0 && errno != EINTR)
        return sl_gather_break(gather,
                               sl_fail(-errno, "poll of %d connections failed: %s",
                                       SL_TREE_DEGREE + 1, strerror(errno)),
                               NULL);
    for (int i = 0; i < gather->tree.count && n > 0 && err == 0; i++)
        if (polls[i].revents != 0 && !gather->down[i].in)
            err = sl_gather_read_child(gather, i);
    if (err == 0 && n > 0 && polls[SL_TREE_DEGREE].revents != 0 && gather->ready < gather->count)
        err = sl_gather_read_parent(gather);
    err = err ?: sl_gather_move_on(gather);
    if (err == 0 && asking)
        err = sl_gather_conclude(gather);
    else if (err == 0 && !is_done(gather) && sl_io_now() >= gather->deadline_ns)
        err = sl_gather_late(gather);
    return err;
}

static int grow(uint8_t **bytes, size_t *cap, size_t len)
{
    if (len <= *cap && *bytes != NULL)
        return 0;
    free(*bytes);
    *cap = 0;
    *bytes = malloc(len + 1);
    if (*bytes == NULL)
        return sl_fail(-ENOMEM, "no memory for an exchange of %zu bytes", len);
    *cap = len;
    return 0;
}

/* Cuts the result of this exchange into pieces and forgets the last one. */
static int begin(struct sl_gather *gather, size_t len, void *out)
{
    const struct sl_tree *tree = &gather->tree;
    size_t shares = (size_t)sl_gather_subtree(gather) * len;
    int err;

    gather->len = len;
    gather->out = out;
    gather->count = sl_tree_pieces(tree->size, len, sl_gather_around(gather), gather->pieces);
    sl_tree_pieces_of(gather->pieces, gather->count, tree->rank, tree->end, &gather->own_first,
                      &gather->own_after);
    gather->ready = 0;
    gather->inquiry_ns = 0;
    gather->gathered = gather->told = false;
    gather->up.got = gather->up.sent = 0;
    for (int i = 0; i < tree->count; i++) {
        struct sl_edge *child = &gather->down[i];

        child->got = child->sent = 0;
        child->in = child->answered = false;
        sl_tree_pieces_of(gather->pieces, gather->count, tree->child[i], tree->child[i + 1],
                          &child->skip, &child->after);
    }
    err = grow(&gather->wire, &gather->wire_cap, gather->pieces[gather->count].at);
    if (err == 0 && gather->sealed)
        err = grow(&gather->share, &gather->share_cap, shares + SL_SEAL_BYTES);
    return err == 0 ? 0 : sl_gather_break(gather, err, NULL);
}

static int gather_allgather(struct sl_exchange *exchange, const void *in, size_t len, void *out)
{
    struct sl_gather *gather = sl_container_of(exchange, struct sl_gather, base);
    int err;

    if (gather->broken != 0)
        return sl_fail(gather->broken, "%s", gather->why);
    gather->seq++;
    gather->deadline_ns = sl_io_now() + sl_exchange_wait_ns(gather->timeout_ns, gather->seq);
    if (gather->tree.parent >= 0) /* the first may wait for those that are on their way */
        gather->deadline_ns +=
            (gather->seq == 1 ? gather->timeout_ns : 0) +
            (SL_GATHER_PATIENCE_MS +
             (uint64_t)(gather->tree.height + gather->tree.depth) * SL_GATHER_INQUIRY_MS) *
                SL_NS_PER_MS;
    err = begin(gather, len, out);
    if (err == 0 && len > 0)
        memmove(sl_gather_share(gather, exchange->rank), in, len);
    err = err ?: sl_gather_move_on(gather);
    while (err == 0 && !is_done(gather))
        err = gather_round(gather);
    return err;
}

static void edge_close(struct sl_edge *edge)
{
    if (edge->fd >= 0)
        close(edge->fd);
    explicit_bzero(edge, sizeof(*edge));
}

static void gather_close(struct sl_exchange *exchange)
{
    struct sl_gather *gather = sl_container_of(exchange, struct sl_gather, base);

    edge_close(&gather->up);
    for (int i = 0; i < gather->tree.count; i++)
        edge_close(&gather->down[i]);
    explicit_bzero(&gather->job, sizeof(gather->job));
    free(gather->pieces);
    free(gather->wire);
    free(gather->share);
    free(gather->missing);
    free(gather);
}

int sl_gather_create(const struct sl_party *party, struct sl_gather **out)
{
    struct sl_gather *gather = calloc(1, sizeof(*gather));
    size_t size = (size_t)party->size;

    if (gather == NULL)
        return sl_fail(-ENOMEM, "no memory for the meeting of %d ranks", party->size);
    gather->base =
        (struct sl_exchange){party->rank, party->size, gather_allgather, gather_close, false, NULL};
    gather->timeout_ns = party->timeout_ms * SL_NS_PER_MS;
    gather->sealed = *party->secret != '\0';
    sl_tree_make(party->rank, party->size, &gather->tree);
    gather->up.fd = -1;
    gather->up.rank = gather->tree.parent;
    for (int i = 0; i < gather->tree.count; i++) {
        gather->down[i].fd = -1;
        gather->down[i].rank = gather->tree.child[i];
    }
    gather->pieces = calloc(size + 1, sizeof(*gather->pieces));
    gather->missing = calloc(size, sizeof(*gather->missing));
    if (gather->pieces == NULL || gather->missing == NULL) {
        gather_close(&gather->base);
        return sl_fail(-ENOMEM, "no memory for the meeting of %d ranks", party->size);
    }
    *out = gather;
    return 0;
}

void sl_gather_join(struct sl_edge *edge, int fd, const struct sl_meeting_keys *keys,
                    const char *name)
{
    edge->fd = fd;
    edge->keys = *keys;
    snprintf(edge->name, sizeof(edge->name), "%s", name != NULL ? name : "");
}

struct sl_edge *sl_gather_absent(struct sl_gather *gather)
{
    for (int i = 0; i < gather->tree.count; i++)
        if (gather->down[i].fd < 0)
            return &gather->down[i];
    return NULL;
}

struct sl_edge *sl_gather_child(struct sl_gather *gather, int rank)
{
    for (int i = 0; i < gather->tree.count; i++)
        if (gather->down[i].rank == rank)
            return &gather->down[i];
    return NULL;
}
