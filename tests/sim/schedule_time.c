/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/schedule_time.h"

#include "core/err.h"

#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

/* A step with a message, posted: the n-th send of a pair of ranks meets its n-th receive. */
struct post {
    double at;
    uint64_t len, sent, received; /* bytes */
    double last_sent;             /* when the last slice left */
    uint32_t rank, peer, step;    /* of the side that posted */
    uint32_t other;               /* NONE until it has met */
    uint32_t next;                /* in the one list that it is in */
};

struct list {
    uint32_t head, tail;
};

struct pair {
    struct list sends, receives; /* that have not met */
    struct list ready;           /* sends that may leave */
};

enum what { LEAVES, LINK_FREE, ARRIVES, RECEIVED, SENT };

struct event {
    double at;
    uint64_t number; /* events of one time come in the order of their making */
    uint32_t what, who;
};

struct rank {
    const struct sl_schedule *s;
    uint32_t *turns, *first; /* owned: steps by channel */
    uint32_t *next;          /* owned: per channel */
    bool *done;              /* owned */
    uint32_t left;           /* steps that have not ended */
    bool sending;
    uint32_t last_peer;
    double in_free;
};

struct sim {
    struct rank *ranks;
    struct pair *pairs; /* [sender * size + receiver] */
    struct post *posts;
    struct event *heap;
    size_t post_count, event_count, event_room;
    uint64_t events_made;
    const struct st_links *links;
    uint32_t size, esize;
    double now;
};

/* ---- lists and events ---- */

static void push(struct sim *sim, struct list *list, uint32_t post)
{
    sim->posts[post].next = NONE;
    if (list->head == NONE)
        list->head = post;
    else
        sim->posts[list->tail].next = post;
    list->tail = post;
}

static uint32_t pop(struct sim *sim, struct list *list)
{
    uint32_t post = list->head;

    if (post != NONE)
        list->head = sim->posts[post].next;
    return post;
}

static bool before(const struct event *a, const struct event *b)
{
    return a->at < b->at || (a->at == b->at && a->number < b->number);
}

static void add_event(struct sim *sim, double at, enum what what, uint32_t who)
{
    struct event event = {at, sim->events_made++, what, who};
    size_t i = sim->event_count++;

    if (sim->event_count > sim->event_room) {
        sim->event_room = 2 * sim->event_room + 1024;
        sim->heap = realloc(sim->heap, sim->event_room * sizeof(*sim->heap));
        sl_assert(sim->heap != NULL);
    }
    for (; i > 0 && before(&event, &sim->heap[(i - 1) / 2]); i = (i - 1) / 2)
        sim->heap[i] = sim->heap[(i - 1) / 2];
    sim->heap[i] = event;
}

static struct event take_event(struct sim *sim)
{
    struct event first = sim->heap[0], last = sim->heap[--sim->event_count];
    size_t i = 0;

    for (;;) {
        size_t child = 2 * i + 1;

        if (child + 1 < sim->event_count && before(&sim->heap[child + 1], &sim->heap[child]))
            child++;
        if (child >= sim->event_count || !before(&sim->heap[child], &last))
            break;
        sim->heap[i] = sim->heap[child];
        i = child;
    }
    sim->heap[i] = last;
    return first;
}

/* ---- links ---- */

/* The pair whose message uses the link of rank r next; NULL: none is ready. */
static struct pair *next_ready(struct sim *sim, uint32_t r)
{
    struct rank *rank = &sim->ranks[r];
    struct pair *best = NULL;

    for (uint32_t i = 1; i <= sim->size && (best == NULL || !sim->links->fair); i++) {
        struct pair *pair = &sim->pairs[r * sim->size + (rank->last_peer + i) % sim->size];

        if (pair->ready.head != NONE && (best == NULL || pair->ready.head < best->ready.head))
            best = pair;
    }
    if (best != NULL)
        rank->last_peer = (uint32_t)(best - sim->pairs) % sim->size;
    return best;
}

static uint64_t slice_of(uint64_t len, uint64_t done)
{
    return len - done < ST_SLICE_BYTES ? len - done : ST_SLICE_BYTES;
}

static void use_link(struct sim *sim, uint32_t r)
{
    const struct st_links *links = sim->links;
    struct pair *pair = sim->ranks[r].sending ? NULL : next_ready(sim, r);

    if (pair == NULL)
        return;
    uint32_t number = pair->ready.head;
    struct post *post = &sim->posts[number];
    uint64_t len = slice_of(post->len, post->sent);
    double busy = (post->sent == 0 ? links->message_ns : 0) + (double)len / links->out[r];

    sim->ranks[r].sending = true;
    post->sent += len;
    post->last_sent = sim->now + busy;
    if (post->sent == post->len)
        pop(sim, &pair->ready);
    add_event(sim, sim->now + busy, LINK_FREE, r);
    add_event(sim, sim->now + links->latency_ns, ARRIVES, number);
}

static void leaves(struct sim *sim, uint32_t number)
{
    const struct post *post = &sim->posts[number];

    push(sim, &sim->pairs[post->rank * sim->size + post->peer].ready, number);
    use_link(sim, post->rank);
}

/* The first byte of a slice is there; the receiver's link takes slices in the order of these. */
static void arrives(struct sim *sim, uint32_t number)
{
    struct post *post = &sim->posts[number];
    struct rank *to = &sim->ranks[post->peer];
    uint64_t len = slice_of(post->len, post->received);
    double start = to->in_free > sim->now ? to->in_free : sim->now;
    double end = start + (post->received == 0 ? sim->links->message_ns : 0) +
                 (double)len / sim->links->in[post->peer];

    to->in_free = end;
    post->received += len;
    if (post->received < post->len)
        return;
    double last_byte = post->last_sent + sim->links->latency_ns;

    end = end > last_byte ? end : last_byte;
    add_event(sim, end, RECEIVED, post->other);
    add_event(sim, end + sim->links->latency_ns, SENT, number);
}

/* ---- steps ---- */

static void post_message(struct sim *sim, uint32_t r, uint32_t index, bool send)
{
    const struct sl_step *step = &sim->ranks[r].s->steps[index];
    struct pair *pair = &sim->pairs[send ? r * sim->size + step->peer : step->peer * sim->size + r];
    uint32_t mine = (uint32_t)sim->post_count++;
    uint32_t other = pop(sim, send ? &pair->receives : &pair->sends);

    sim->posts[mine] = (struct post){.at = sim->now,
                                     .len = step->count * sim->esize,
                                     .rank = r,
                                     .peer = step->peer,
                                     .step = index,
                                     .other = other};
    if (other == NONE) {
        push(sim, send ? &pair->sends : &pair->receives, mine);
        return;
    }
    sim->posts[other].other = mine;
    uint32_t from = send ? mine : other, to = send ? other : mine;
    double told = sim->posts[to].at + sim->links->latency_ns;

    sl_assert(sim->posts[from].len == sim->posts[to].len);
    add_event(sim, told > sim->posts[from].at ? told : sim->posts[from].at, LEAVES, from);
}

static bool may_start(const struct rank *rank, const struct sl_step *step)
{
    for (uint32_t i = 0; i < step->dep_count; i++)
        if (!rank->done[rank->s->deps[step->dep_first + i]])
            return false;
    return true;
}

static void step_over(struct rank *rank, uint32_t index)
{
    rank->done[index] = true;
    rank->left--;
}

/* Starts steps of a channel as far as it goes. Returns whether one has ended. */
static bool walk(struct sim *sim, uint32_t r, uint32_t channel)
{
    struct rank *rank = &sim->ranks[r];
    bool ended = false;

    for (; rank->next[channel] < rank->first[channel + 1]; rank->next[channel]++) {
        uint32_t index = rank->turns[rank->next[channel]];
        const struct sl_step *step = &rank->s->steps[index];
        uint8_t message = sl_step_row(step)->message;

        sl_assert(!sl_step_uses_windows(step) && step->runner == 0);
        if (!may_start(rank, step))
            break;
        if (message != SL_NO_MESSAGE) {
            post_message(sim, r, index, message == SL_SENDS);
        } else {
            step_over(rank, index);
            ended = true;
        }
    }
    return ended;
}

static void advance(struct sim *sim, uint32_t r)
{
    bool ended = true;

    while (ended) {
        ended = false;
        for (uint32_t c = 0; c < sim->ranks[r].s->channel_count; c++)
            ended |= walk(sim, r, c);
    }
}

static void message_over(struct sim *sim, uint32_t number)
{
    const struct post *post = &sim->posts[number];

    step_over(&sim->ranks[post->rank], post->step);
    advance(sim, post->rank);
}

/* ---- a run ---- */

static void *zeroed(size_t count, size_t item)
{
    void *memory = calloc(count + 1, item);

    sl_assert(memory != NULL);
    return memory;
}

static void sort_steps(struct rank *rank)
{
    const struct sl_schedule *s = rank->s;

    rank->turns = zeroed(s->step_count, sizeof(*rank->turns));
    rank->first = zeroed(s->channel_count + 1, sizeof(*rank->first));
    rank->next = zeroed(s->channel_count, sizeof(*rank->next));
    rank->done = zeroed(s->step_count, sizeof(*rank->done));
    rank->left = s->step_count;
    for (uint32_t i = 0; i < s->step_count; i++)
        rank->first[s->steps[i].channel + 1]++;
    for (uint32_t c = 0; c < s->channel_count; c++) {
        rank->first[c + 1] += rank->first[c];
        rank->next[c] = rank->first[c];
    }
    for (uint32_t i = 0; i < s->step_count; i++)
        rank->turns[rank->next[s->steps[i].channel]++] = i;
    for (uint32_t c = 0; c < s->channel_count; c++)
        rank->next[c] = rank->first[c];
}

static void sim_init(struct sim *sim, const struct sl_schedule *schedules)
{
    const struct list empty = {NONE, NONE};
    size_t messages = 0;

    sim->ranks = zeroed(sim->size, sizeof(*sim->ranks));
    sim->pairs = zeroed((size_t)sim->size * sim->size, sizeof(*sim->pairs));
    for (uint32_t i = 0; i < sim->size * sim->size; i++)
        sim->pairs[i] = (struct pair){empty, empty, empty};
    for (uint32_t r = 0; r < sim->size; r++) {
        sim->ranks[r] = (struct rank){.s = &schedules[r], .last_peer = r};
        sort_steps(&sim->ranks[r]);
        messages += schedules[r].step_count;
    }
    sim->posts = zeroed(messages, sizeof(*sim->posts));
}

static void sim_fini(struct sim *sim)
{
    for (uint32_t r = 0; r < sim->size; r++) {
        free(sim->ranks[r].turns);
        free(sim->ranks[r].first);
        free(sim->ranks[r].next);
        free(sim->ranks[r].done);
    }
    free(sim->ranks);
    free(sim->pairs);
    free(sim->posts);
    free(sim->heap);
}

static void happen(struct sim *sim, const struct event *event)
{
    sim->now = event->at;
    switch (event->what) {
    case LEAVES: leaves(sim, event->who); break;
    case ARRIVES: arrives(sim, event->who); break;
    case LINK_FREE:
        sim->ranks[event->who].sending = false;
        use_link(sim, event->who);
        break;
    default: message_over(sim, event->who); break;
    }
}

double st_run(const struct sl_schedule *schedules, uint32_t size, uint32_t esize,
              const struct st_links *links)
{
    struct sim sim = {.links = links, .size = size, .esize = esize};
    uint64_t left = 0;
    double end = 0;

    sim_init(&sim, schedules);
    for (uint32_t r = 0; r < size; r++)
        advance(&sim, r);
    while (sim.event_count > 0) {
        struct event event = take_event(&sim);

        happen(&sim, &event);
        end = event.what == SENT ? end : sim.now;
    }
    for (uint32_t r = 0; r < size; r++)
        left += sim.ranks[r].left;
    sim_fini(&sim);
    return left == 0 ? end : -1;
}
