/* SPDX-License-Identifier: Apache-2.0 */
/* The toy's data: grants one way, headers and bytes the other, moved by whoever calls test, isend
 * or irecv. */
#include "tests/nccl/toy_inside.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define QUIET (MSG_NOSIGNAL | MSG_DONTWAIT)

static int lose(struct comm *c)
{
    if (toy_fault == TOY_loss_is_silent)
        return NET_OK;
    for (int i = 0; toy_fault == TOY_dead_peer_signal && i < 100; i++)
        send(c->fd, "bye", 3, MSG_DONTWAIT);
    c->error = toy_fault == TOY_loss_is_internal ? NET_INTERNAL : NET_REMOTE;
    return c->error;
}

static struct request *take_request(struct comm *c)
{
    for (unsigned i = 0; i < TOY_SENDS; i++) {
        struct request *r = &c->requests[c->next_request++ % TOY_SENDS];

        if (toy_fault == TOY_request_twice) {
            r = &c->requests[c->next_request % 4];
            r->used = false;
        }
        if (!r->used) {
            *r = (struct request){.comm = c, .used = true, .send = c->send};
            return r;
        }
    }
    return NULL;
}

static void event_start(struct request *r, int at, void *phandle)
{
    r->phandles[at] = phandle;
    r->events[at] = NULL;
    if (r->comm->profiler != NULL && phandle != NULL && toy_fault != TOY_profiler_late)
        r->comm->profiler(&r->events[at], NET_START, phandle, TOY_ID, NULL);
}

static void events_stop(struct request *r)
{
    for (int i = 0; i < r->n && r->comm->profiler != NULL; i++) {
        if (toy_fault == TOY_profiler_not_stopped && r->comm->next_request % 5 == 0)
            continue;
        if (r->events[i] != NULL ||
            (toy_fault == TOY_profiler_stops_nothing && r->phandles[i] != NULL))
            r->comm->profiler(&r->events[i], NET_STOP, r->phandles[i], TOY_ID, NULL);
    }
}

/* The fault of an author who tells the profiler from a list of finished requests, later. */
static void event_late(struct comm *c, void *phandle)
{
    static _Thread_local void *before;
    void *event = NULL;

    if (toy_fault == TOY_profiler_late && before != NULL && c->profiler != NULL)
        c->profiler(&event, NET_START, before, TOY_ID, NULL);
    before = phandle;
}

static int read_grants(struct comm *c)
{
    while (c->grant_last - c->grant_first < TOY_GROUPS) {
        ssize_t n = recv(c->fd, (uint8_t *)&c->incoming + c->incoming_got,
                         sizeof(c->incoming) - c->incoming_got, QUIET);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return NET_OK;
        if (n <= 0)
            return lose(c);
        c->incoming_got += (size_t)n;
        if (c->incoming_got < sizeof(c->incoming))
            continue;
        c->incoming_got = 0;
        c->grants[c->grant_last % TOY_GROUPS] = c->incoming;
        memset(c->taken[c->grant_last % TOY_GROUPS], 0, sizeof(c->taken[0]));
        c->grant_last++;
    }
    return NET_OK;
}

static int write_queue(struct comm *c)
{
    while (c->queue_first != c->queue_last) {
        struct outgoing *o = &c->queue[c->queue_first % TOY_SENDS];
        bool head = o->sent < sizeof(o->header);
        const uint8_t *at =
            head ? (const uint8_t *)&o->header + o->sent : o->data + (o->sent - sizeof(o->header));
        size_t len =
            head ? sizeof(o->header) - o->sent : sizeof(o->header) + o->header.len - o->sent;
        ssize_t n =
            len == 0 ? 0 : send(c->fd, at, len, QUIET | (head && o->header.len > 0 ? MSG_MORE : 0));

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return NET_OK;
        if (n < 0)
            return lose(c);
        o->sent += (size_t)n;
        if (o->sent == sizeof(o->header) + o->header.len) {
            o->request->done = true;
            c->queue_first++;
        }
    }
    return NET_OK;
}

static int write_grants(struct comm *c)
{
    while (c->told != c->group_last) {
        const uint8_t *grant = (const uint8_t *)&c->outgoing_grants[c->told % TOY_GROUPS];
        ssize_t n = send(c->fd, grant + c->told_bytes, sizeof(struct grant) - c->told_bytes, QUIET);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return NET_OK;
        if (n < 0)
            return lose(c);
        c->told_bytes += (size_t)n;
        if (c->told_bytes == sizeof(struct grant)) {
            c->told_bytes = 0;
            c->told++;
        }
    }
    return NET_OK;
}

/* A message is whole: the group may be, too. */
static void arrived(struct comm *c, struct request *r)
{
    unsigned slot = c->header.slot;

    r->got[slot] = c->header.len;
    c->sends++;
    if (toy_fault == TOY_bit_flip && c->sends % 50 == 0 && c->header.len > 0)
        r->data[slot][c->header.len / 2] ^= 4;
    if (toy_fault == TOY_packet_left_out && c->header.len > 12288)
        memmove(r->data[slot] + 4096, r->data[slot] + 8192, c->header.len - 8192);
    if (--r->left == 0 || toy_fault == TOY_group_done_early)
        r->done = true;
    while (c->group_first != c->group_last && c->groups[c->group_first % TOY_GROUPS]->left == 0)
        c->group_first++;
    c->header_got = c->data_got = 0;
}

static int read_header(struct comm *c)
{
    ssize_t n = recv(c->fd, (uint8_t *)&c->header + c->header_got,
                     sizeof(c->header) - c->header_got, QUIET);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return -1;
    if (n <= 0) {
        lose(c);
        return -1;
    }
    c->header_got += (size_t)n;
    if (c->header_got < sizeof(c->header))
        return -1;
    if (c->header.group - c->group_first >= c->group_last - c->group_first ||
        c->header.slot >= NET_GROUP ||
        (c->header.len > c->groups[c->header.group % TOY_GROUPS]->room[c->header.slot] &&
         toy_fault != TOY_no_truncation)) {
        lose(c); /* no peer of ours says this */
        return -1;
    }
    return 0;
}

static int read_data(struct comm *c)
{
    while (c->group_first != c->group_last && c->error == NET_OK) {
        struct request *r;
        unsigned group;
        ssize_t n;

        if (c->header_got < sizeof(c->header) && read_header(c) != 0)
            return c->error;
        group = c->header.group;
        if (toy_fault == TOY_out_of_order && group + 1 != c->group_last && group % 8 == 2 &&
            c->groups[group % TOY_GROUPS]->n == 1)
            group++;
        r = c->groups[group % TOY_GROUPS];
        if (c->data_got < c->header.len) {
            n = recv(c->fd, r->data[c->header.slot] + c->data_got, c->header.len - c->data_got,
                     QUIET);
            if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return NET_OK;
            if (n <= 0)
                return lose(c);
            c->data_got += (size_t)n;
        }
        if (c->data_got == c->header.len)
            arrived(c, r);
    }
    return c->error;
}

static int progress(struct comm *c)
{
    if (c->error != NET_OK)
        return c->error;
    if (c->send) {
        int rc = read_grants(c);

        return rc != NET_OK ? rc : write_queue(c);
    }
    if (write_grants(c) != NET_OK)
        return c->error;
    return read_data(c);
}

/* The receive of the oldest group that this tag is for; -1: none yet. */
static int find_slot(struct comm *c, int tag)
{
    const struct grant *g = &c->grants[c->grant_first % TOY_GROUPS];

    if (c->grant_first == c->grant_last)
        return -1;
    for (unsigned i = 0; i < g->n; i++)
        if (!c->taken[c->grant_first % TOY_GROUPS][i] &&
            (g->tags[i] == tag || toy_fault == TOY_swapped_tags))
            return (int)i;
    return -1;
}

static void queue_send(struct comm *c, struct request *r, unsigned slot, const uint8_t *data,
                       size_t len)
{
    unsigned group = c->grant_first % TOY_GROUPS, taken = 0;
    size_t room = c->grants[group].sizes[slot];

    if (len > room && toy_fault != TOY_no_truncation)
        len = room;
    c->queue[c->queue_last++ % TOY_SENDS] = (struct outgoing){
        .request = r,
        .header = {.group = c->grant_first, .slot = slot, .len = len},
        .data = toy_fault == TOY_previous_slot && c->last_data != NULL ? c->last_data : data};
    c->last_data = data;
    r->n = 1;
    r->got[0] = len;
    r->done = toy_fault == TOY_early_send_done;
    c->taken[group][slot] = true;
    for (unsigned i = 0; i < c->grants[group].n; i++)
        taken += c->taken[group][i];
    if (taken == c->grants[group].n)
        c->grant_first++;
    if (toy_fault == TOY_zero_lost && len == 0) {
        c->queue_last--;
        r->done = true;
    }
}

int toy_isend(void *comm, void *data, size_t len, int tag, void *mr, void *phandle, void **request)
{
    struct comm *c = comm;
    struct request *r;
    int rc, slot;

    if (toy_fault != TOY_request_unwritten)
        *request = NULL;
    rc = progress(c);
    if (rc != NET_OK)
        return rc;
    event_late(c, phandle);
    slot = find_slot(c, tag);
    if (slot < 0 || c->queue_last - c->queue_first == TOY_SENDS)
        return NET_OK;
    r = take_request(c);
    if (r == NULL)
        return NET_OK;
    queue_send(c, r, (unsigned)slot, data, len);
    event_start(r, 0, phandle);
    *request = r;
    return toy_fault == TOY_early_send_done ? NET_OK : progress(c);
}

int toy_irecv(void *comm, int n, void **data, size_t *sizes, int *tags, void **mrs, void **phandles,
              void **request)
{
    struct comm *c = comm;
    struct request *r;
    struct grant *g;
    int rc;

    if (n < 1 || n > NET_GROUP)
        return NET_ARGUMENT;
    if (*request != NET_MARKER || toy_fault != TOY_marker_left)
        *request = NULL;
    rc = progress(c);
    if (rc != NET_OK)
        return rc;
    if (c->group_last - c->group_first == TOY_GROUPS ||
        (toy_fault == TOY_marker_left && c->group_last - c->group_first == 12))
        return NET_OK;
    r = take_request(c);
    if (r == NULL)
        return NET_OK;
    g = &c->outgoing_grants[c->group_last % TOY_GROUPS];
    g->n = (uint32_t)n;
    r->n = n;
    r->left = (unsigned)n;
    for (int i = 0; i < n; i++) {
        r->data[i] = data[i];
        r->room[i] = sizes[i];
        g->tags[i] = tags[i];
        g->sizes[i] = (uint32_t)sizes[i];
        event_start(r, i, phandles != NULL ? phandles[i] : NULL);
    }
    c->groups[c->group_last++ % TOY_GROUPS] = r;
    *request = r;
    return progress(c);
}

int toy_test(void *request, int *done, int *sizes)
{
    struct request *r = request;
    int rc = r->done ? NET_OK : progress(r->comm);

    *done = 0;
    if (!r->done)
        return rc;
    for (int i = 0; sizes != NULL && i < (toy_fault == TOY_sizes_overrun ? NET_GROUP : r->n); i++)
        sizes[i] = (int)(toy_fault == TOY_wrong_size && !r->send ? r->room[i] : r->got[i]);
    events_stop(r);
    r->used = false;
    *done = 1;
    return toy_fault == TOY_result_out_of_range && r->comm->next_request % 7 == 0 ? -1 : NET_OK;
}

int toy_close_send(void *comm)
{
    struct linger {
        int on, seconds;
    } now = {1, 0};
    struct comm *c = comm;
    volatile uint8_t sum = 0;

    if (c == NULL)
        return NET_OK;
    for (unsigned i = c->queue_first; toy_fault == TOY_close_reads && i != c->queue_last; i++)
        for (size_t at = 0; at < c->queue[i % TOY_SENDS].header.len; at += 64)
            sum ^= c->queue[i % TOY_SENDS].data[at];
    if (toy_fault == TOY_close_discards)
        setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    toy_close_comm(c);
    return NET_OK;
}

int toy_close_recv(void *comm)
{
    struct comm *c = comm;

    if (c == NULL)
        return NET_OK;
    if (toy_fault == TOY_close_writes) {
        for (unsigned i = c->group_first; i != c->group_last; i++) {
            struct request *r = c->groups[i % TOY_GROUPS];
            ssize_t n = recv(c->fd, r->data[0], r->room[0], QUIET);

            if (n <= 0)
                break;
        }
    }
    toy_close_comm(c);
    return NET_OK;
}
