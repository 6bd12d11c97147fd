/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/queue.h"

#include "core/err.h"
#include "monitor/netlink.h"

#include <errno.h>
#include <inttypes.h>
#include <libmnl/libmnl.h>
#include <linux/gen_stats.h>
#include <linux/if_link.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- messages ---- */

/* The kernel's structure may be longer or shorter than ours. */
static void take(const struct nlattr *attribute, void *out, size_t size)
{
    size_t len = mnl_attr_get_payload_len(attribute);

    memcpy(out, mnl_attr_get_payload(attribute), len < size ? len : size);
}

static bool take_stats(const struct nlattr *nest, struct sl_mon_qdisc *out)
{
    const struct nlattr *attribute;
    bool has_basic = false;

    sl_mon_attr_for_each_nested(attribute, nest)
    {
        struct gnet_stats_basic basic = {.bytes = 0};
        struct gnet_stats_queue queue = {.qlen = 0};

        switch (mnl_attr_get_type(attribute)) {
        case TCA_STATS_BASIC:
            take(attribute, &basic, sizeof(basic));
            out->bytes = basic.bytes;
            has_basic = true;
            break;
        case TCA_STATS_QUEUE:
            take(attribute, &queue, sizeof(queue));
            out->backlog = queue.backlog;
            out->drops = queue.drops;
            out->requeues = queue.requeues;
            out->overlimits = queue.overlimits;
            break;
        default: break;
        }
    }
    return has_basic;
}

static bool is_kind(const struct nlattr *attribute, const char *kind)
{
    size_t len = strlen(kind) + 1;

    return mnl_attr_get_payload_len(attribute) == len &&
           memcmp(mnl_attr_get_payload(attribute), kind, len) == 0;
}

bool sl_mon_qdisc_parse(const struct nlmsghdr *message, size_t len, struct sl_mon_qdisc *out)
{
    const struct nlattr *attribute;
    const struct tcmsg *header;
    bool has_stats = false, is_none = false;

    *out = (struct sl_mon_qdisc){.ifindex = 0};
    if (!sl_mon_netlink_is(message, len, RTM_NEWQDISC, sizeof(*header)))
        return false;
    header = mnl_nlmsg_get_payload(message);
    if (header->tcm_ifindex <= 0 || header->tcm_parent == TC_H_INGRESS)
        return false;
    out->ifindex = (unsigned)header->tcm_ifindex;
    out->handle = header->tcm_handle;
    out->parent = header->tcm_parent;
    out->is_root = header->tcm_parent == TC_H_ROOT;
    sl_mon_attr_for_each(attribute, message, sizeof(*header))
    {
        unsigned type = mnl_attr_get_type(attribute);

        if (type == TCA_STATS2)
            has_stats = take_stats(attribute, out);
        if (type == TCA_KIND) {
            out->is_many = is_kind(attribute, "mq") || is_kind(attribute, "mqprio") ||
                           is_kind(attribute, "taprio");
            is_none = is_kind(attribute, "noqueue");
        }
    }
    return has_stats && !is_none;
}

bool sl_mon_sent_parse(const struct nlmsghdr *message, size_t len, struct sl_mon_sent *out)
{
    const struct if_stats_msg *header;
    const struct nlattr *attribute;
    struct rtnl_link_stats64 stats;

    *out = (struct sl_mon_sent){.ifindex = 0};
    if (!sl_mon_netlink_is(message, len, RTM_NEWSTATS, sizeof(*header)))
        return false;
    header = mnl_nlmsg_get_payload(message);
    sl_mon_attr_for_each(attribute, message, sizeof(*header))
    {
        if (mnl_attr_get_type(attribute) != IFLA_STATS_LINK_64)
            continue;
        memset(&stats, 0, sizeof(stats));
        take(attribute, &stats, sizeof(stats));
        out->ifindex = header->ifindex;
        out->bytes = stats.tx_bytes;
        out->dropped = stats.tx_dropped;
    }
    return out->ifindex != 0;
}

bool sl_mon_softnet_parse(const char *line, uint64_t *dropped, uint64_t *squeezed)
{
    unsigned values[3];

    if (sscanf(line, "%8x %8x %8x", &values[0], &values[1], &values[2]) != 3)
        return false;
    *dropped = values[1];
    *squeezed = values[2];
    return true;
}

/* ---- what is known ---- */

#define SHORT_NS (SL_MON_S / 2) /* readings closer than that say nothing of a stall */
#define LONG_NS (30 * SL_MON_S)

struct queue {
    unsigned ifindex;
    uint32_t handle, parent;
    bool is_root, is_there;
    uint64_t bytes, backlog, was_backlog, inflight, was_inflight;
    uint32_t drops, requeues;
    bool has_inflight, had_inflight, is_new;
    uint64_t moved; /* bytes since the reading before */
};

struct netif {
    char name[16]; /* "": free */
    unsigned ifindex;
    struct sl_mon_subject *subject; /* NULL: it was never told to stand still */
    bool is_there, is_new, is_stalled, has_many, is_down, was_down;
    uint64_t bytes, dropped, moved, more_dropped;
    uint32_t many; /* the handle of the qdisc that has one for each queue */
    uint64_t timeouts, more_timeouts;
    bool has_timeouts;
    uint64_t read_timeouts, backlog, handed;
    uint64_t total_drops, total_requeues, total_timeouts;
};

struct sl_mon_queues {
    struct sl_mon *mon;
    uint64_t began_ns, before_ns; /* 0: there was no reading */
    unsigned count, hint, netif_hint;
    struct queue queues[SL_MON_QUEUES_MAX];
    struct netif netifs[SL_MON_QUEUE_NETIFS_MAX];
};

int sl_mon_queues_create(struct sl_mon *mon, struct sl_mon_queues **out)
{
    struct sl_mon_queues *queues = calloc(1, sizeof(*queues));

    if (queues == NULL)
        return sl_fail(-ENOMEM, "no memory for the interfaces' queues");
    queues->mon = mon;
    *out = queues;
    return 0;
}

void sl_mon_queues_destroy(struct sl_mon_queues *queues)
{
    free(queues);
}

/* In the order in which they came last time, mostly. */
static struct netif *netif_of(struct sl_mon_queues *queues, unsigned ifindex)
{
    for (unsigned n = 0; n < SL_MON_QUEUE_NETIFS_MAX; n++) {
        unsigned i = (queues->netif_hint + n) % SL_MON_QUEUE_NETIFS_MAX;

        if (queues->netifs[i].name[0] != '\0' && queues->netifs[i].ifindex == ifindex) {
            queues->netif_hint = i;
            return &queues->netifs[i];
        }
    }
    return NULL;
}

static struct queue *queue_of(struct sl_mon_queues *queues, const struct sl_mon_qdisc *qdisc)
{
    for (unsigned n = 0; n < queues->count; n++) {
        unsigned i = (queues->hint + n) % queues->count;
        struct queue *queue = &queues->queues[i];

        if (queue->ifindex == qdisc->ifindex && queue->handle == qdisc->handle &&
            queue->parent == qdisc->parent) {
            queues->hint = i + 1;
            return queue;
        }
    }
    return NULL;
}

/* ---- a reading ---- */

void sl_mon_queues_begin(struct sl_mon_queues *queues)
{
    queues->before_ns = queues->began_ns;
    queues->began_ns = sl_mon_time(queues->mon)->mono_ns;
    for (unsigned i = 0; i < SL_MON_QUEUE_NETIFS_MAX; i++) {
        struct netif *netif = &queues->netifs[i];

        netif->is_there = netif->has_many = false;
        netif->backlog = netif->handed = netif->read_timeouts = 0;
        netif->has_timeouts = false;
    }
    for (unsigned i = 0; i < queues->count; i++)
        queues->queues[i].is_there = false;
}

static uint64_t delta64(uint64_t before, uint64_t after)
{
    return after >= before ? after - before : 0;
}

void sl_mon_queues_netif(struct sl_mon_queues *queues, const char *name,
                         const struct sl_mon_sent *sent)
{
    struct netif *netif = netif_of(queues, sent->ifindex);

    if (netif != NULL && strcmp(netif->name, name) != 0) { /* it was renamed */
        netif->name[0] = '\0';
        netif = NULL;
    }
    for (unsigned i = 0; i < SL_MON_QUEUE_NETIFS_MAX && netif == NULL; i++)
        if (queues->netifs[i].name[0] == '\0') {
            netif = &queues->netifs[i];
            *netif = (struct netif){.ifindex = sent->ifindex, .is_new = true};
            snprintf(netif->name, sizeof(netif->name), "%s", name);
        }
    if (netif == NULL)
        return;
    netif->is_there = true;
    netif->was_down = netif->is_down;
    netif->is_down = sent->is_down;
    netif->moved = delta64(netif->bytes, sent->bytes);
    netif->more_dropped = delta64(netif->dropped, sent->dropped);
    netif->bytes = sent->bytes;
    netif->dropped = sent->dropped;
}

void sl_mon_queues_qdisc(struct sl_mon_queues *queues, const struct sl_mon_qdisc *qdisc)
{
    struct netif *netif = netif_of(queues, qdisc->ifindex);
    struct queue *queue = queue_of(queues, qdisc);

    if (netif == NULL || !netif->is_there)
        return;
    if (qdisc->is_root && qdisc->is_many) {
        netif->has_many = true;
        netif->many = qdisc->handle;
        return;
    }
    /* What is below classes may wait for others, by design. */
    if (!qdisc->is_root && (!netif->has_many || qdisc->parent >> 16 != netif->many >> 16))
        return;
    if (queue == NULL) {
        if (queues->count == SL_MON_QUEUES_MAX)
            return;
        queue = &queues->queues[queues->count++];
        *queue = (struct queue){.ifindex = qdisc->ifindex,
                                .handle = qdisc->handle,
                                .parent = qdisc->parent,
                                .is_root = qdisc->is_root,
                                .is_new = true};
    }
    queue->is_there = true;
    queue->moved = delta64(queue->bytes, qdisc->bytes);
    queue->was_backlog = queue->backlog;
    queue->backlog = qdisc->backlog;
    queue->bytes = qdisc->bytes;
    queue->had_inflight = queue->has_inflight;
    queue->was_inflight = queue->inflight;
    queue->has_inflight = false;
    netif->backlog += qdisc->backlog;
    if (!queue->is_new) {
        netif->handed += queue->moved;
        netif->total_drops += qdisc->drops - queue->drops;
        netif->total_requeues += qdisc->requeues - queue->requeues;
    }
    queue->drops = qdisc->drops;
    queue->requeues = qdisc->requeues;
}

void sl_mon_queues_tx(struct sl_mon_queues *queues, unsigned ifindex, unsigned number,
                      const struct sl_mon_tx *tx)
{
    struct netif *netif = netif_of(queues, ifindex);

    if (netif == NULL || !netif->is_there)
        return;
    if (tx->has_timeouts) {
        netif->has_timeouts = true;
        netif->read_timeouts += tx->timeouts;
    }
    for (unsigned i = 0; i < queues->count && tx->has_inflight; i++) {
        struct queue *queue = &queues->queues[i];

        if (!queue->is_there || queue->ifindex != ifindex ||
            (queue->is_root ? number != 0 : (queue->parent & 0xffff) != number + 1))
            continue;
        queue->has_inflight = true;
        queue->inflight = tx->inflight;
        return;
    }
}

/* ---- rules ---- */

static void tell(const struct sl_mon_queues *queues, struct netif *netif, bool is_bad,
                 struct sl_mon_evidence *evidence)
{
    if (netif->subject == NULL && is_bad)
        netif->subject = sl_mon_subject(queues->mon, SL_MON_PORT, netif->name);
    if (netif->subject == NULL)
        netif->subject = sl_mon_find(queues->mon, SL_MON_PORT, netif->name);
    evidence->source = "rtnetlink";
    if (netif->subject != NULL)
        sl_mon_sample(queues->mon, netif->subject, SL_MON_CHECK_PORT_STALL, is_bad, evidence);
    netif->is_stalled = is_bad;
}

/* One queue of many stands still: what waits in it, or in the device, is what waited before. */
static const struct queue *stalled_queue(const struct sl_mon_queues *queues, unsigned ifindex)
{
    for (unsigned i = 0; i < queues->count; i++) {
        const struct queue *queue = &queues->queues[i];

        if (queue->ifindex != ifindex || queue->is_new || queue->moved != 0)
            continue;
        if (queue->backlog > 0 && queue->was_backlog > 0)
            return queue;
        if (queue->has_inflight && queue->had_inflight && queue->inflight > 0 &&
            queue->inflight == queue->was_inflight)
            return queue;
    }
    return NULL;
}

static void check(const struct sl_mon_queues *queues, struct netif *netif, double seconds)
{
    const struct queue *stalled = stalled_queue(queues, netif->ifindex);
    struct sl_mon_evidence evidence = {.before = netif->bytes, .after = netif->bytes};

    if (netif->more_timeouts > 0) {
        snprintf(evidence.text, sizeof(evidence.text),
                 "the driver gave up waiting for a transmit queue %" PRIu64 " times in %.1f s",
                 netif->more_timeouts, seconds);
        tell(queues, netif, true, &evidence);
    } else if (stalled != NULL) {
        snprintf(evidence.text, sizeof(evidence.text),
                 "%" PRIu64 " bytes wait for transmit queue %u, %" PRIu64
                 " are in it, and none was sent in %.1f s",
                 stalled->backlog, stalled->is_root ? 0 : (stalled->parent & 0xffff) - 1,
                 stalled->inflight, seconds);
        tell(queues, netif, true, &evidence);
    } else if (netif->moved == 0 && netif->bytes > 0 &&
               (netif->handed > 0 || netif->more_dropped > 0)) {
        snprintf(evidence.text, sizeof(evidence.text),
                 "%" PRIu64 " bytes went to the device in %.1f s, which threw away %" PRIu64
                 " packets and sent none",
                 netif->handed, seconds, netif->more_dropped);
        tell(queues, netif, true, &evidence);
    } else if (netif->moved > 0 || !netif->is_stalled) {
        tell(queues, netif, false, &evidence);
    } /* Else nobody tried to send anything since it stood still: nothing is known. */
}

void sl_mon_queues_end(struct sl_mon_queues *queues)
{
    uint64_t passed_ns = queues->began_ns - queues->before_ns;
    bool is_comparable = queues->before_ns != 0 && passed_ns >= SHORT_NS && passed_ns <= LONG_NS;
    unsigned kept = 0;

    for (unsigned i = 0; i < queues->count; i++)
        if (queues->queues[i].is_there)
            queues->queues[kept++] = queues->queues[i];
    queues->count = kept;
    for (unsigned i = 0; i < SL_MON_QUEUE_NETIFS_MAX; i++) {
        struct netif *netif = &queues->netifs[i];

        if (netif->name[0] == '\0')
            continue;
        if (!netif->is_there) {
            netif->name[0] = '\0';
            continue;
        }
        netif->more_timeouts = netif->has_timeouts && !netif->is_new
                                   ? delta64(netif->timeouts, netif->read_timeouts)
                                   : 0;
        if (netif->has_timeouts)
            netif->timeouts = netif->read_timeouts;
        netif->total_timeouts += netif->more_timeouts;
        /* Without a link nothing leaves, and that there is none is another check's. */
        if (!netif->is_new && is_comparable && !netif->is_down && !netif->was_down)
            check(queues, netif, (double)passed_ns / 1e9);
        netif->is_new = false;
    }
    for (unsigned i = 0; i < queues->count; i++)
        queues->queues[i].is_new = false;
}

bool sl_mon_queues_view(const struct sl_mon_queues *queues, unsigned i,
                        struct sl_mon_queue_view *out)
{
    const struct netif *netif = &queues->netifs[i];

    if (i >= SL_MON_QUEUE_NETIFS_MAX)
        return false;
    *out = (struct sl_mon_queue_view){.name = netif->name,
                                      .ifindex = netif->ifindex,
                                      .backlog = netif->backlog,
                                      .drops = netif->total_drops,
                                      .requeues = netif->total_requeues,
                                      .timeouts = netif->total_timeouts};
    return true;
}
