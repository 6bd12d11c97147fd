/* SPDX-License-Identifier: Apache-2.0 */
/* Every rank but 0 at a meeting: dials rank 0 until it is let in, hears from it who its parent in
 * the tree is, dials that one, and lets its own children in. */
#include "launch/rendezvous.h"

#include "core/clock.h"
#include "core/err.h"
#include "core/log.h"
#include "launch/door.h"
#include "launch/gather.h"
#include "launch/search.h"
#include "launch/seat.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PATIENCE_MS 3000 /* longer than rank 0 waits: its verdict names ranks */
#define FAREWELL_MS 300  /* for a parent that is about to let this rank in, when all is over */
#define CHILDREN_MS 500  /* longer than children search: they know more of why */

struct joiner {
    struct sl_gather *gather; /* what all this becomes */
    const struct sl_party *party;
    uint64_t timeout_ns;
    struct sl_terms terms; /* with rank 0 */
    struct sl_terms near;  /* with parent and children: by the job's key */
    struct sl_found root;  /* rank 0 */
    struct sl_control control;
    bool told; /* rank 0 has said why it is over */

    struct sl_seat seat;
    struct sl_listeners listeners; /* of the seat, until there is a door */
    struct sl_door *door;
    struct sl_seat parent; /* where the parent is */
    char name[SL_NEARBY_NAME_MAX];
    struct sl_search *search; /* for the parent */
};

static bool is_inner(const struct joiner *joiner)
{
    return joiner->gather->tree.count > 0;
}

static double seconds(const struct joiner *joiner)
{
    return (double)joiner->timeout_ns / (double)SL_NS_PER_S;
}

/* ---- rank 0 ---- */

static int find_root(struct joiner *joiner, const struct sl_places *places)
{
    struct pollfd polls[SL_SEARCH_POLLS];
    struct sl_search *search = NULL;
    uint64_t until_ns;
    unsigned count;
    int err = sl_search_start(&joiner->terms, 0, places, joiner->timeout_ns, &search);

    while (err == 0) {
        err = sl_search_prepare(search, polls, &count, &until_ns);
        if (err == 0 && poll(polls, count, sl_io_poll_ms(until_ns)) < 0 && errno != EINTR)
            err = sl_fail(-errno, "poll of the connections to rank 0 failed: %s", strerror(errno));
        err = err ?: sl_search_take(search, polls, &joiner->root);
    }
    sl_search_end(search);
    return err > 0 ? 0 : err;
}

static int fail_root(struct joiner *joiner)
{
    joiner->told = true; /* there is nobody to report to */
    return sl_fail(-ECONNRESET, "rank 0 at %s went away while ranks met; see its output",
                   joiner->root.name);
}

/* A control message of rank 0 that is here. 1: it is; 0: not yet. FAILED ends it all. */
static int read_root(struct joiner *joiner)
{
    int err = sl_control_read(&joiner->control, joiner->root.fd);

    if (err == -EBADMSG)
        return sl_fail(err, "rank 0 at %s: %s", joiner->root.name, sluice_last_error());
    if (err < 0)
        return fail_root(joiner);
    if (err == 0)
        return 0;
    joiner->control.got = 0;
    if (joiner->control.frame.kind != SL_FRAME_FAILED)
        return 1;
    joiner->told = true;
    return sl_control_failed(&joiner->control, &joiner->root.keys, false, 0);
}

static int tell_seat(struct joiner *joiner, uint64_t number)
{
    uint8_t bytes[SL_SEAT_BYTES];
    size_t len = sl_seat_pack(&joiner->seat, bytes);
    int err = sl_control_send(joiner->root.fd, &joiner->root.keys, true, SL_FRAME_SEAT, number,
                              bytes, len);

    return err == 0 || err == -EPIPE || err == -ECONNRESET /* it may have said why */
               ? 0
               : sl_fail(err, "rank 0 at %s takes no more bytes: %s", joiner->root.name,
                         strerror(-err));
}

/* ---- the seat ---- */

static int expects(void *owner, int rank)
{
    struct joiner *joiner = owner;
    const struct sl_edge *child = sl_gather_child(joiner->gather, rank);

    if (child == NULL)
        return sl_fail(-EPROTO, "it calls itself rank %d, which is no child of rank %d", rank,
                       joiner->gather->tree.rank);
    if (child->fd >= 0)
        return sl_fail(-EPROTO, "there is a rank %d already (two processes with the same rank?)",
                       rank);
    return 0;
}

static void admit(void *owner, int rank, int fd, bool nearby, const struct sl_meeting_keys *keys,
                  const char *from)
{
    struct joiner *joiner = owner;

    (void)nearby, (void)from;
    sl_gather_join(sl_gather_child(joiner->gather, rank), fd, keys, NULL);
}

static int open_door(struct joiner *joiner)
{
    struct sl_door_owner owner = {joiner, expects, admit};
    struct sl_listeners listeners = joiner->listeners;

    joiner->listeners = (struct sl_listeners){.count = 0};
    return sl_door_open(&joiner->near, &joiner->root.job, &listeners, &owner, &joiner->door);
}

/* Not all children are of this host and user. */
static int open_network(struct joiner *joiner)
{
    const struct sl_config *config = joiner->party->config;
    struct sl_listeners listeners;
    struct sl_config defaults;
    int err;

    if (joiner->control.frame.len != 0 || joiner->door == NULL || joiner->seat.network)
        return sl_fail(-EBADMSG, "rank 0 asks rank %d for a seat that it cannot have",
                       joiner->gather->tree.rank);
    if (config == NULL)
        sl_config_defaults(&defaults);
    err = sl_seat_open_network(config != NULL ? config : &defaults, &joiner->seat, &listeners);
    err = err ?: sl_door_listen(joiner->door, &listeners);
    return err ?: tell_seat(joiner, SL_NUMBER_OPENED);
}

/* ---- the parent ---- */

static int take_parent(struct joiner *joiner)
{
    const struct sl_gather *gather = joiner->gather;
    size_t len;

    if (joiner->control.frame.kind != SL_FRAME_PARENT ||
        sl_control_open(&joiner->root.keys, false, SL_NUMBER_SEAT, joiner->control.bytes, &len) !=
            0)
        return sl_fail(-EBADMSG,
                       "what rank 0 at %s says of this rank's parent was changed on the way",
                       joiner->root.name);
    if (gather->tree.parent == 0)
        return len == 0 ? 0 : sl_fail(-EPROTO, "rank 0 gave rank %d a parent", gather->tree.rank);
    return sl_seat_unpack(joiner->control.bytes + SL_FRAME_BYTES, len, &joiner->parent);
}

/* Until rank 0 has all ranks, or has said why not. */
static int await_parent(struct joiner *joiner)
{
    uint64_t deadline_ns = sl_io_now() + 2 * joiner->timeout_ns + PATIENCE_MS * SL_NS_PER_MS;

    for (;;) {
        int err = read_root(joiner);

        if (err == 1 && joiner->control.frame.kind != SL_FRAME_OPEN)
            return take_parent(joiner);
        if (err == 1)
            err = open_network(joiner);
        else if (err == 0 && sl_io_await(joiner->root.fd, POLLIN, deadline_ns) == -ETIMEDOUT)
            err = sl_fail(-ETIMEDOUT, "rank 0 at %s did not gather all ranks within %.3g s",
                          joiner->root.name, seconds(joiner));
        if (err != 0)
            return err;
    }
}

/* A seat on this host has loopback first, where it has TCP. */
static int search_parent(struct joiner *joiner)
{
    const struct sl_config *config = joiner->party->config;
    struct sl_places where = {.nearby = NULL};
    struct sl_config defaults;
    int err = 0;

    if (config == NULL)
        sl_config_defaults(&defaults);
    sl_nearby_seat_name(joiner->parent.id, joiner->name);
    if (joiner->parent.id != 0)
        where.nearby = joiner->name;
    if (joiner->parent.network) {
        err = sl_card_localize(config != NULL ? config : &defaults, &joiner->parent.card);
        where.card = &joiner->parent.card;
    }
    return err
               ?: sl_search_start(&joiner->near, joiner->gather->tree.parent, &where,
                                  joiner->timeout_ns, &joiner->search);
}

static void take_found(struct joiner *joiner, struct sl_found *found)
{
    sl_gather_join(&joiner->gather->up, found->fd, &found->keys, found->name);
    explicit_bzero(found, sizeof(*found));
    sl_search_end(joiner->search);
    joiner->search = NULL;
}

static int fail_absent(struct joiner *joiner)
{
    const struct sl_gather *gather = joiner->gather;
    const struct sl_edge *child = sl_gather_absent(joiner->gather);

    return sl_fail(-ETIMEDOUT,
                   "rank %d of %d did not reach rank %d, its parent in the tree, within %.3g s; "
                   "see its output, and whether a firewall closes ports between hosts",
                   child->rank, gather->tree.size, gather->tree.rank, seconds(joiner));
}

/* One round of all that goes on at a time: the search, the door, and rank 0's word. */
static int place_round(struct joiner *joiner, uint64_t deadline_ns)
{
    struct pollfd polls[SL_SEARCH_POLLS + 2];
    struct sl_found found = {.fd = -1};
    uint64_t until_ns = SL_NEVER, due_ns = deadline_ns;
    unsigned count = 0;
    int err = 0;

    if (joiner->search != NULL)
        err = sl_search_prepare(joiner->search, polls, &count, &until_ns);
    if (joiner->door != NULL && sl_door_due_ns(joiner->door) < due_ns)
        due_ns = sl_door_due_ns(joiner->door);
    polls[count] = (struct pollfd){joiner->root.fd, POLLIN, 0};
    polls[count + 1] =
        (struct pollfd){joiner->door != NULL ? sl_door_fd(joiner->door) : -1, POLLIN, 0};
    if (err == 0 &&
        poll(polls, count + 2, sl_io_poll_ms(until_ns < due_ns ? until_ns : due_ns)) < 0 &&
        errno != EINTR)
        err = sl_fail(-errno, "poll of the neighbours in the tree failed: %s", strerror(errno));
    if (err == 0 && polls[count].revents != 0)
        err = read_root(joiner);
    if (err == 1)
        err = sl_fail(-EBADMSG, "rank 0 at %s sent a frame of kind %d while ranks meet",
                      joiner->root.name, (int)joiner->control.frame.kind);
    if (err == 0 && joiner->door != NULL)
        sl_door_round(joiner->door);
    if (err == 0 && joiner->search != NULL)
        err = sl_search_take(joiner->search, polls, &found);
    if (err == 1) {
        take_found(joiner, &found);
        err = 0;
    }
    return err;
}

/* Until parent and children are there. */
static int take_place(struct joiner *joiner)
{
    uint64_t deadline_ns = sl_io_now() + joiner->timeout_ns + CHILDREN_MS * SL_NS_PER_MS;
    int err = joiner->gather->tree.parent > 0 ? search_parent(joiner) : 0;

    while (err == 0 && (joiner->search != NULL || sl_gather_absent(joiner->gather) != NULL)) {
        err = place_round(joiner, deadline_ns);
        if (err == 0 && sl_io_now() >= deadline_ns && sl_gather_absent(joiner->gather) != NULL)
            err = fail_absent(joiner);
    }
    return err;
}

/* ---- all of it ---- */

/* Rank 0 ends this connection, unless it is the parent. */
static int be_seated(struct joiner *joiner)
{
    struct sl_gather *gather = joiner->gather;
    struct sl_meeting_keys none = {.sealed = false};

    if (sl_control_send(joiner->root.fd, &none, true, SL_FRAME_SEATED, 0, NULL, 0) != 0) {
        int err = read_root(joiner); /* it may have said why */

        return err < 0 ? err : fail_root(joiner);
    }
    if (gather->tree.parent != 0)
        return 0;
    sl_gather_join(&gather->up, joiner->root.fd, &joiner->root.keys, joiner->root.name);
    joiner->root.fd = -1;
    return 0;
}

static int meet(struct joiner *joiner)
{
    struct sl_gather *gather = joiner->gather;
    int err = 0;

    gather->job = joiner->root.job;
    gather->base.nearby = joiner->root.nearby;
    joiner->near = (struct sl_terms){.rank = gather->tree.rank,
                                     .size = gather->tree.size,
                                     .secret = gather->job.tree,
                                     .secret_len = sizeof(gather->job.tree),
                                     .sealed = gather->sealed};
    memcpy(joiner->near.job, joiner->terms.job, sizeof(joiner->near.job));
    if (gather->sealed)
        gather->base.session = gather->job.session;
    if (is_inner(joiner))
        err = open_door(joiner) ?: tell_seat(joiner, SL_NUMBER_SEAT);
    err = err ?: await_parent(joiner);
    err = err ?: take_place(joiner);
    return err ?: be_seated(joiner);
}

/* The parent may have let this rank in, and its welcome be on the way: it would see no more than an
 * end. */
static void await_welcome(struct joiner *joiner)
{
    uint64_t end_ns = sl_io_now() + FAREWELL_MS * SL_NS_PER_MS, until_ns;
    struct pollfd polls[SL_SEARCH_POLLS];
    struct sl_found found = {.fd = -1};
    unsigned count;
    int err = 0;

    while (err == 0 && sl_search_proving(joiner->search) && sl_io_now() < end_ns) {
        err = sl_search_prepare(joiner->search, polls, &count, &until_ns);
        if (err == 0)
            poll(polls, count, sl_io_poll_ms(until_ns < end_ns ? until_ns : end_ns));
        err = err ?: sl_search_take(joiner->search, polls, &found);
    }
    if (err == 1)
        take_found(joiner, &found);
}

/* Tells rank 0, which tells all, and the neighbours that are connected already. */
static int report(struct joiner *joiner, int code)
{
    uint8_t body[4 + SL_SENTENCE_MAX];
    char why[SL_SENTENCE_MAX + 1];
    size_t len;

    snprintf(why, sizeof(why), "%s", sluice_last_error());
    if (joiner->search != NULL)
        await_welcome(joiner);
    sl_fail(code, "%s", why);
    len = sl_sentence_make(code, why, body);
    if (!joiner->told && joiner->root.fd >= 0)
        (void)sl_control_send(joiner->root.fd, &joiner->root.keys, true, SL_FRAME_FAILED,
                              SL_NUMBER_FAILED, body, len);
    return sl_gather_break(joiner->gather, code, NULL);
}

static void joiner_fini(struct joiner *joiner)
{
    sl_search_end(joiner->search);
    sl_door_close(joiner->door);
    sl_listeners_close(&joiner->listeners);
    if (joiner->root.fd >= 0)
        close(joiner->root.fd);
    explicit_bzero(joiner, sizeof(*joiner));
}

int sl_rendezvous_join(const struct sl_party *party, const struct sl_places *places,
                       struct sl_exchange **out)
{
    struct joiner joiner = {.party = party,
                            .timeout_ns = party->timeout_ms * SL_NS_PER_MS,
                            .root = {.fd = -1},
                            .terms = {.rank = party->rank,
                                      .size = party->size,
                                      .secret = party->secret,
                                      .secret_len = strlen(party->secret),
                                      .sealed = *party->secret != '\0'}};
    struct sl_gather *gather;
    int err = sl_gather_create(party, &gather);

    if (err != 0)
        return err;
    joiner.gather = gather;
    if (is_inner(&joiner))
        err = sl_seat_open(&joiner.seat, &joiner.listeners);
    err = err ?: sl_job_hash(party->job, joiner.terms.job);
    err = err ?: find_root(&joiner, places);
    if (err == 0) {
        err = meet(&joiner);
        if (err != 0)
            err = report(&joiner, err);
    }
    joiner_fini(&joiner);
    if (err == 0)
        *out = &gather->base;
    else
        gather->base.close(&gather->base);
    return err;
}
