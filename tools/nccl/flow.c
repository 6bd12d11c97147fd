/* SPDX-License-Identifier: Apache-2.0 */
/* Flows: their connections, and the words about channels. */
#include "tools/nccl/flow.h"

#include "core/log.h"
#include "tools/nccl/link.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS_MAX (2 * SL_NCCL_ASKS_MAX)

/* Time and polls in which a transport hears that the peer had all of a channel that it closed. */
#define CLOSED_NS SL_NS_PER_S
#define CLOSED_LOOKS 16

struct said {
    struct sl_node link; /* flow->words */
    uint8_t bytes[SL_NCCL_WORD_BYTES];
};

/* ---- life ---- */

int sl_nccl_flow_new(struct sl_nccl_engine *engine, const uint8_t id[SL_WIREUP_ID_BYTES],
                     struct sl_nccl_flow **out)
{
    struct sl_nccl_flow *flow = calloc(1, sizeof(*flow));
    int err =
        flow != NULL ? sl_nccl_wireup_hold(engine) : sl_fail(-ENOMEM, "no memory for a connection");

    if (err != 0) {
        free(flow);
        return err;
    }
    flow->engine = engine;
    flow->holds = true;
    flow->number = ++engine->last_number;
    memcpy(flow->id, id, sizeof(flow->id));
    snprintf(flow->peer_name, sizeof(flow->peer_name), "a peer");
    sl_list_init(&flow->comms);
    sl_list_init(&flow->asks);
    sl_list_init(&flow->words);
    sl_list_push_back(&engine->flows, &flow->link);
    *out = flow;
    return 0;
}

static void ask_free(struct sl_nccl_ask *ask)
{
    ask->flow->ask_count--;
    sl_list_remove(&ask->link);
    free(ask);
}

static void drop_words(struct sl_nccl_flow *flow)
{
    struct sl_node *node;

    while ((node = sl_list_pop_front(&flow->words)) != NULL)
        free(sl_container_of(node, struct said, link));
    flow->word_count = 0;
    if (flow->saying.next != NULL)
        sl_list_remove(&flow->saying);
    flow->saying.next = NULL;
}

void sl_nccl_flow_free(struct sl_nccl_flow *flow)
{
    sl_assert(flow->comm_count == 0);
    if (flow->number != 0)
        sl_wireup_drop(flow->engine->wireup, flow->number);
    if (flow->ep != NULL)
        flow->ep->iface->ops->ep_destroy(flow->ep);
    sl_list_foreach(&flow->asks, node) ask_free(sl_container_of(node, struct sl_nccl_ask, link));
    drop_words(flow);
    sl_list_remove(&flow->link);
    if (flow->holds)
        sl_nccl_wireup_put(flow->engine);
    free(flow->why);
    free(flow);
}

void sl_nccl_flow_lose(struct sl_nccl_flow *flow, int status, const char *why)
{
    if (flow->lost != 0)
        return;
    flow->lost = status;
    sl_text_set(&flow->why, "%s", why);
    sl_list_foreach(&flow->comms, node)
    {
        struct sl_nccl_comm *comm = sl_container_of(node, struct sl_nccl_comm, on_flow);

        if (comm->ep != NULL)
            sl_nccl_comm_lose(comm, status, why);
    }
    sl_list_foreach(&flow->asks, node) ask_free(sl_container_of(node, struct sl_nccl_ask, link));
    drop_words(flow);
}

bool sl_nccl_flow_has_channels(const struct sl_nccl_flow *flow)
{
    return (flow->ep->iface->caps & SL_CAP_CHANNELS) != 0;
}

/* Without channels an endpoint is for one connection, of the end that dialed it. Of one that comes
 * about it is not known yet. */
static bool takes_more(const struct sl_nccl_flow *flow)
{
    return flow->ep == NULL || sl_nccl_flow_has_channels(flow) ||
           (flow->dialed && flow->comm_count == 0);
}

unsigned sl_nccl_flow_count(const struct sl_nccl_engine *engine,
                            const uint8_t id[SL_WIREUP_ID_BYTES], struct sl_nccl_flow **least)
{
    bool self = memcmp(id, engine->addr.id, SL_WIREUP_ID_BYTES) == 0;
    unsigned count = 0;

    *least = NULL;
    sl_list_foreach(&engine->flows, node)
    {
        struct sl_nccl_flow *flow = sl_container_of(node, struct sl_nccl_flow, link);

        if (flow->lost != 0 || memcmp(flow->id, id, sizeof(flow->id)) != 0 ||
            (self && !flow->dialed) || !takes_more(flow))
            continue;
        count++;
        if (*least == NULL || flow->comm_count < (*least)->comm_count)
            *least = flow;
    }
    return count;
}

/* One that the peer has dialed is the peer's to end, until it was of use. */
static bool is_needed(const struct sl_nccl_flow *flow)
{
    if (flow->comm_count > 0)
        return true;
    return flow->lost == 0 && (flow->ask_count > 0 || (!flow->dialed && !flow->used));
}

void sl_nccl_flow_join(struct sl_nccl_flow *flow, struct sl_nccl_comm *comm)
{
    comm->flow = flow;
    flow->comm_count++;
    flow->used = true;
    sl_list_push_back(&flow->comms, &comm->on_flow);
}

/* ---- words ---- */

static void say(struct sl_nccl_flow *flow, enum sl_nccl_word_kind kind, uint32_t channel,
                uint64_t token)
{
    const struct sl_nccl_word word = {.kind = kind, .channel = channel, .token = token};
    struct said *said = NULL;

    if (flow->lost != 0)
        return;
    if (flow->word_count == WORDS_MAX) {
        sl_nccl_flow_lose(flow, -EBADMSG, "the peer asks without end and hears no answer");
        return;
    }
    said = malloc(sizeof(*said));
    if (said == NULL) {
        sl_nccl_flow_lose(flow, -ENOMEM, "no memory for a word to the peer");
        return;
    }
    sl_nccl_word_encode(&word, said->bytes);
    flow->word_count++;
    sl_list_push_back(&flow->words, &said->link);
    if (flow->saying.next == NULL)
        sl_list_push_back(&flow->engine->saying, &flow->saying);
}

static void say_now(struct sl_nccl_flow *flow)
{
    while (flow->ep != NULL && flow->lost == 0 && flow->word_count > 0) {
        struct said *said = sl_container_of(flow->words.next, struct said, link);
        int err = flow->ep->iface->ops->ctrl(flow->ep, said->bytes, sizeof(said->bytes));

        if (err == -EAGAIN)
            return;
        if (err != 0) {
            sl_nccl_flow_lose(flow, err, sluice_last_error());
            return;
        }
        sl_list_remove(&said->link);
        free(said);
        flow->word_count--;
    }
    if (flow->word_count == 0)
        drop_words(flow);
}

void sl_nccl_flows_say(struct sl_nccl_engine *engine)
{
    sl_list_foreach(&engine->saying, node)
        say_now(sl_container_of(node, struct sl_nccl_flow, saying));
}

void sl_nccl_flow_forget(struct sl_nccl_comm *comm)
{
    comm->flow->comm_count--;
    sl_list_remove(&comm->on_flow);
    comm->flow = NULL;
    comm->asked = comm->accepted = false;
}

void sl_nccl_flow_leave(struct sl_nccl_comm *comm)
{
    struct sl_nccl_flow *flow = comm->flow;
    struct sl_ep *ep = comm->ep;
    bool asked = comm->asked;

    comm->ep = NULL;
    if (flow == NULL)
        return;
    sl_nccl_flow_forget(comm);
    if (!is_needed(flow)) {
        sl_nccl_flow_free(flow);
        return;
    }
    if (ep != NULL)
        ep->iface->ops->channel_close(ep, comm->channel);
    else if (asked)
        say(flow, SL_NCCL_GIVEN_UP, comm->channel, 0);
}

void sl_nccl_flow_ask(struct sl_nccl_comm *comm)
{
    struct sl_nccl_flow *flow = comm->flow;

    comm->asked = true;
    if (sl_nccl_flow_has_channels(flow)) {
        flow->last_channel += flow->last_channel == 0 && flow->dialed ? 1 : 2;
        comm->channel = flow->last_channel;
    }
    say(flow, SL_NCCL_OPEN, comm->channel, comm->to.token);
}

struct sl_nccl_ask *sl_nccl_flow_asked(const struct sl_nccl_engine *engine, uint64_t token,
                                       bool is_up)
{
    sl_list_foreach(&engine->flows, flow_node)
    {
        struct sl_nccl_flow *flow = sl_container_of(flow_node, struct sl_nccl_flow, link);

        sl_list_foreach(&flow->asks, node)
        {
            struct sl_nccl_ask *ask = sl_container_of(node, struct sl_nccl_ask, link);

            if (ask->token == token && (flow->ep != NULL || !is_up))
                return ask;
        }
    }
    return NULL;
}

void sl_nccl_flow_answer(struct sl_nccl_ask *ask, bool accepted)
{
    struct sl_nccl_flow *flow = ask->flow;

    say(flow, accepted ? SL_NCCL_ACCEPTED : SL_NCCL_REFUSED, ask->channel, 0);
    if (flow->lost == 0) /* else it is gone */
        ask_free(ask);
    say_now(flow);
}

/* ---- words of the peer ---- */

static struct sl_nccl_ask *find_ask(const struct sl_nccl_flow *flow, uint32_t channel)
{
    sl_list_foreach(&flow->asks, node)
    {
        struct sl_nccl_ask *ask = sl_container_of(node, struct sl_nccl_ask, link);

        if (ask->channel == channel)
            return ask;
    }
    return NULL;
}

static struct sl_nccl_comm *find_comm(const struct sl_nccl_flow *flow, uint32_t channel)
{
    sl_list_foreach(&flow->comms, node)
    {
        struct sl_nccl_comm *comm = sl_container_of(node, struct sl_nccl_comm, on_flow);

        if (comm->channel == channel && (comm->ep != NULL || comm->asked))
            return comm;
    }
    return NULL;
}

/* The peer numbers its channels: odd, if it has dialed. */
static bool is_the_peers(const struct sl_nccl_flow *flow, uint32_t channel)
{
    if (flow->ep != NULL && !sl_nccl_flow_has_channels(flow))
        return channel == 0 && !flow->dialed && flow->comm_count == 0;
    return channel != 0 && channel % 2 == (flow->dialed ? 0 : 1);
}

static const char *hear_open(struct sl_nccl_flow *flow, const struct sl_nccl_word *word)
{
    struct sl_nccl_ask *ask;

    if (!is_the_peers(flow, word->channel) || find_ask(flow, word->channel) != NULL ||
        find_comm(flow, word->channel) != NULL)
        return "the peer opens a channel that is not its own";
    if (!sl_nccl_listens(flow->engine, word->token)) {
        say(flow, SL_NCCL_REFUSED, word->channel, 0);
        return NULL;
    }
    if (flow->ask_count == SL_NCCL_ASKS_MAX)
        return "the peer asks for too many connections";
    ask = calloc(1, sizeof(*ask));
    if (ask == NULL) {
        say(flow, SL_NCCL_REFUSED, word->channel, 0); /* it asks again */
        return NULL;
    }
    *ask = (struct sl_nccl_ask){.flow = flow, .channel = word->channel, .token = word->token};
    flow->ask_count++;
    sl_list_push_back(&flow->asks, &ask->link);
    return NULL;
}

/* Of one that nobody waits for any more GIVEN_UP is on its way, or closing it told. */
static void hear_answer(struct sl_nccl_flow *flow, const struct sl_nccl_word *word)
{
    struct sl_nccl_comm *comm = find_comm(flow, word->channel);

    if (comm == NULL || !comm->asked || comm->accepted)
        return;
    comm->asked = comm->accepted = word->kind == SL_NCCL_ACCEPTED;
    if (!comm->accepted)
        sl_nccl_dial_failed(comm, -ECONNREFUSED, "; nobody awaits it");
}

static void hear_given_up(struct sl_nccl_flow *flow, uint32_t channel)
{
    struct sl_nccl_ask *ask = find_ask(flow, channel);
    struct sl_nccl_comm *comm = find_comm(flow, channel);

    if (ask != NULL)
        ask_free(ask);
    else if (comm != NULL && !comm->is_send && comm->ep != NULL)
        sl_nccl_comm_lose(comm, -ECONNRESET, "it had given up before it was accepted");
}

void sl_nccl_flow_hear(struct sl_nccl_flow *flow, const void *bytes, size_t len)
{
    struct sl_nccl_word word;
    const char *wrong = NULL;

    if (flow->lost != 0)
        return;
    if (sl_nccl_word_decode(bytes, len, &word) != 0)
        wrong = "the peer talks nonsense";
    else if (word.kind == SL_NCCL_OPEN)
        wrong = hear_open(flow, &word);
    else if (word.kind == SL_NCCL_GIVEN_UP)
        hear_given_up(flow, word.channel);
    else
        hear_answer(flow, &word);
    if (wrong != NULL)
        sl_nccl_flow_lose(flow, -EBADMSG, wrong);
}

/* ---- from time to time ---- */

/* The peer has closed it, and nothing comes of it any more. A receiver that has all closes at once:
 * its word may be here before the news that our last messages arrived. So sends that are under way
 * have some time to end well; what the peer never took would not end otherwise. */
static bool is_closed(struct sl_nccl_comm *comm)
{
    struct sl_nccl_engine *engine = comm->engine;

    if (!comm->ep->iface->ops->channel_starves(comm->ep, comm->channel))
        return false;
    if (!comm->is_send || comm->send.under_way == 0)
        return true;
    if (comm->closed_ns == 0) {
        comm->closed_ns = sl_nccl_now(engine);
        comm->closed_looks = engine->looks;
    }
    return engine->looks - comm->closed_looks >= CLOSED_LOOKS &&
           sl_nccl_now(engine) - comm->closed_ns >= CLOSED_NS;
}

static void tidy(struct sl_nccl_flow *flow)
{
    sl_list_foreach(&flow->comms, node)
    {
        struct sl_nccl_comm *comm = sl_container_of(node, struct sl_nccl_comm, on_flow);

        if (comm->ep != NULL && comm->lost == 0 && sl_nccl_flow_has_channels(flow) &&
            is_closed(comm))
            sl_nccl_comm_lose(comm, -ECONNRESET, "the peer has closed it");
    }
    if (!is_needed(flow)) {
        sl_nccl_flow_free(flow);
    } else if (flow->holds && flow->number == 0) { /* not in the callback that said so */
        flow->holds = false;
        sl_nccl_wireup_put(flow->engine);
    }
}

void sl_nccl_flows_tidy(struct sl_nccl_engine *engine)
{
    sl_list_foreach(&engine->flows, node) tidy(sl_container_of(node, struct sl_nccl_flow, link));
}
