/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/tcp.h"

#include "core/err.h"
#include "monitor/netlink.h"

#include <arpa/inet.h>
#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/inet_diag.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- a message ---- */

/* Behind tcpi_snd_wnd, in headers newer than those of Debian 12: rcv_wnd, rehash, total_rto. */
#define TOTAL_RTO (offsetof(struct tcp_info, tcpi_snd_wnd) + 3 * sizeof(uint32_t))

static void take_address(uint8_t family, const __be32 from[4], uint8_t out[16])
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

    if (family == AF_INET) {
        memcpy(out, mapped, sizeof(mapped));
        memcpy(out + 12, from, 4);
    } else {
        memcpy(out, from, 16);
    }
}

static bool take_info(const struct nlattr *attribute, struct sl_mon_tcp_flow *out)
{
    size_t len = mnl_attr_get_payload_len(attribute);
    struct tcp_info info;
    uint16_t rtos;

    /* Linux 4.19, the least that says what is asked here. */
    if (len < offsetof(struct tcp_info, tcpi_snd_wnd))
        return false;
    memset(&info, 0, sizeof(info));
    info.tcpi_snd_wnd = UINT32_MAX;
    memcpy(&info, mnl_attr_get_payload(attribute), len < sizeof(info) ? len : sizeof(info));
    if (len >= TOTAL_RTO + sizeof(rtos)) {
        memcpy(&rtos, (const char *)mnl_attr_get_payload(attribute) + TOTAL_RTO, sizeof(rtos));
        out->rtos = rtos;
        out->has_rtos = true;
    }
    out->in_loss = info.tcpi_ca_state == TCP_CA_Loss;
    out->backoff = info.tcpi_backoff;
    out->rtt = info.tcpi_rtt;
    out->unacked = info.tcpi_unacked;
    out->window = info.tcpi_snd_wnd;
    out->segments = info.tcpi_data_segs_out;
    out->again = info.tcpi_total_retrans;
    out->twice = info.tcpi_dsack_dups;
    out->acked = info.tcpi_bytes_acked;
    out->busy = info.tcpi_busy_time;
    out->closed_for = info.tcpi_rwnd_limited;
    return true;
}

bool sl_mon_tcp_parse(const struct nlmsghdr *message, size_t len, struct sl_mon_tcp_flow *out)
{
    const struct inet_diag_msg *diag;
    const struct nlattr *attribute;
    bool has_info = false;

    *out = (struct sl_mon_tcp_flow){.cookie = 0};
    if (!sl_mon_netlink_is(message, len, SOCK_DIAG_BY_FAMILY, sizeof(*diag)))
        return false;
    diag = mnl_nlmsg_get_payload(message);
    if (diag->idiag_family != AF_INET && diag->idiag_family != AF_INET6)
        return false;
    out->cookie = (uint64_t)diag->id.idiag_cookie[1] << 32 | diag->id.idiag_cookie[0];
    take_address(diag->idiag_family, diag->id.idiag_src, out->local);
    take_address(diag->idiag_family, diag->id.idiag_dst, out->remote);
    out->ports[0] = ntohs(diag->id.idiag_sport);
    out->ports[1] = ntohs(diag->id.idiag_dport);
    sl_mon_attr_for_each(attribute, message, sizeof(*diag))
    {
        if (mnl_attr_get_type(attribute) == INET_DIAG_INFO)
            has_info = take_info(attribute, out);
    }
    return has_info;
}

bool sl_mon_tcp_parse_own(const struct nlmsghdr *message, size_t len, uint8_t address[16],
                          unsigned *ifindex)
{
    const struct ifaddrmsg *header;
    const struct nlattr *attribute;
    unsigned family, rank = 0;

    if (!sl_mon_netlink_is(message, len, RTM_NEWADDR, sizeof(*header)))
        return false;
    header = mnl_nlmsg_get_payload(message);
    family = header->ifa_family;
    if (family != AF_INET && family != AF_INET6)
        return false;
    *ifindex = header->ifa_index;
    sl_mon_attr_for_each(attribute, message, sizeof(*header))
    {
        /* Of a point-to-point link IFA_ADDRESS is the other end. */
        unsigned type = mnl_attr_get_type(attribute);
        unsigned is_better = type == IFA_LOCAL ? 2 : type == IFA_ADDRESS ? 1 : 0;
        __be32 words[4] = {0};
        size_t size = family == AF_INET ? 4 : 16;

        if (is_better <= rank || mnl_attr_get_payload_len(attribute) < size)
            continue;
        memcpy(words, mnl_attr_get_payload(attribute), size);
        take_address((uint8_t)family, words, address);
        rank = is_better;
    }
    return rank > 0;
}

void sl_mon_tcp_address(const uint8_t address[16], char *out, size_t cap)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    bool is_v4 = memcmp(address, mapped, sizeof(mapped)) == 0;

    if (inet_ntop(is_v4 ? AF_INET : AF_INET6, is_v4 ? address + 12 : address, out,
                  (socklen_t)cap) == NULL)
        snprintf(out, cap, "?");
}

static bool parse_address(const char *text, uint8_t out[16])
{
    __be32 words[4] = {0};

    if (inet_pton(AF_INET, text, words) == 1)
        take_address(AF_INET, words, out);
    else if (inet_pton(AF_INET6, text, words) == 1)
        take_address(AF_INET6, words, out);
    else
        return false;
    return true;
}

/* ---- counters of the host ---- */

static const struct {
    const char *protocol, *name, *kind;
} counters[SL_MON_TCP_COUNTER_COUNT] = {
#define X(id, protocol_, name_, kind_)                                                             \
    [SL_MON_TCP_##id] = {.protocol = protocol_, .name = name_, .kind = kind_},
    SL_MON_TCP_COUNTERS(X)
#undef X
};

const char *sl_mon_tcp_counter_kind(enum sl_mon_tcp_counter counter)
{
    return counters[counter].kind;
}

static void take_counter(const char *protocol, size_t protocol_len, const char *name,
                         size_t name_len, const char *value, struct sl_mon_tcp_counters *io)
{
    for (unsigned i = 0; i < SL_MON_TCP_COUNTER_COUNT; i++)
        if (strlen(counters[i].protocol) == protocol_len &&
            strncmp(counters[i].protocol, protocol, protocol_len) == 0 &&
            strlen(counters[i].name) == name_len &&
            strncmp(counters[i].name, name, name_len) == 0 && *value >= '0' && *value <= '9') {
            io->values[i] = strtoull(value, NULL, 10);
            io->has |= 1u << i;
        }
}

/* Lines come in pairs: "Tcp: RtoAlgorithm RtoMin ..." and "Tcp: 1 200 ...". */
void sl_mon_tcp_read_counters(const char *text, struct sl_mon_tcp_counters *io)
{
    while (*text != '\0') {
        const char *names = text, *values = strchr(text, '\n');
        size_t len = strcspn(names, ":");

        if (values == NULL)
            return;
        values++;
        const char *end = values + strcspn(values, "\n");

        if (names[len] != ':' || strncmp(names, values, len + 1) != 0) {
            text = values;
            continue;
        }
        const char *name = names + len + 1, *value = values + len + 1;

        while (*name == ' ' && value < end && *value == ' ') {
            size_t name_len = strcspn(++name, " \n"), value_len = strcspn(++value, " \n");

            take_counter(names, len, name, name_len, value, io);
            name += name_len;
            value += value_len;
        }
        text = *end == '\n' ? end + 1 : end;
    }
}

/* ---- what is known ---- */

#define HASH (4 * SL_MON_TCP_FLOWS_MAX) /* a power of two */
#define SHORT_NS (SL_MON_S / 20)        /* lists closer than that say nothing of rates */
#define LONG_NS (30 * SL_MON_S)         /* nor do those farther apart */
#define FORGET_NS SL_MON_HOUR           /* a peer without a connection */
#define USUAL_COUNT 5                   /* of good seconds: from then on there is a usual time */

/* A connection in a list. */
struct seen {
    uint64_t cookie, acked, busy, closed_for;
    double best; /* bytes a second */
    uint32_t segments, again, twice, rtos, unacked;
    uint16_t peer;
};

struct list {
    unsigned count;
    struct seen flows[SL_MON_TCP_FLOWS_MAX];
    uint16_t places[HASH]; /* in flows, + 1; 0: none */
};

/* What the connections of a peer did between two lists. */
struct sum {
    unsigned flows, known, active, stuck, closed; /* known: in both lists */
    unsigned sending, timed_out;                  /* have something under way; had a timeout */
    uint64_t acked, segments, again, twice;       /* in all */
    double busy, busy_in_all, closed_for;         /* seconds: of those that are active; of all; */
    double rtt;                                   /* µs, by the bytes that took so long */
    char stuck_text[32], closed_text[32];         /* the first of them, by its ports */
};

struct peer {
    bool is_there;
    uint8_t remote[16];
    uint8_t netif;
    struct sl_mon_subject *subject; /* NULL: nothing much was sent to it */
    uint64_t seen_ns;
    struct sum sum;
    double recent_acked, recent_busy; /* bytes, seconds: of the latest lists, the newest most */
    double best;      /* bytes a second of a connection while it has something to send */
    double usual_rtt; /* µs, while it was near its best */
    unsigned usual_count;
};

struct netif {
    char name[16];
    double rate, best; /* bytes a second, idle times too, over all peers */
    bool is_accused;   /* of one of its ways something is told */
};

struct sl_mon_tcp {
    struct sl_mon *mon;
    struct sl_mon_subject *host;
    struct list *now, *before;
    uint64_t began_ns, before_ns; /* 0: there was no list before */
    uint64_t left_out, totals[SL_MON_TCP_COUNTER_COUNT];
    struct sl_mon_tcp_counters counters;
    unsigned peers_end, netif_count;
    double seconds;
    struct peer peers[SL_MON_TCP_PEERS_MAX];
    struct netif netifs[SL_MON_TCP_NETIFS_MAX];
};

int sl_mon_tcp_create(struct sl_mon *mon, struct sl_mon_tcp **out)
{
    struct sl_mon_tcp *tcp = calloc(1, sizeof(*tcp));

    if (tcp == NULL)
        return sl_fail(-ENOMEM, "no memory for TCP connections");
    tcp->mon = mon;
    tcp->now = calloc(1, sizeof(*tcp->now));
    tcp->before = calloc(1, sizeof(*tcp->before));
    if (tcp->now == NULL || tcp->before == NULL) {
        sl_mon_tcp_destroy(tcp);
        return sl_fail(-ENOMEM, "no memory for TCP connections");
    }
    *out = tcp;
    return 0;
}

void sl_mon_tcp_destroy(struct sl_mon_tcp *tcp)
{
    if (tcp == NULL)
        return;
    free(tcp->now);
    free(tcp->before);
    free(tcp);
}

/* The place of a cookie, or the free one where it belongs: there are more places than flows. */
static unsigned place_of(const struct list *list, uint64_t cookie)
{
    unsigned at = (unsigned)((cookie * UINT64_C(0x9e3779b97f4a7c15)) >> 40) & (HASH - 1);

    while (list->places[at] != 0 && list->flows[list->places[at] - 1].cookie != cookie)
        at = (at + 1) & (HASH - 1);
    return at;
}

static int netif_of(struct sl_mon_tcp *tcp, const char *name)
{
    for (unsigned i = 0; i < tcp->netif_count; i++)
        if (strcmp(tcp->netifs[i].name, name) == 0)
            return (int)i;
    if (tcp->netif_count == SL_MON_TCP_NETIFS_MAX)
        return -1;
    snprintf(tcp->netifs[tcp->netif_count].name, sizeof(tcp->netifs[0].name), "%s", name);
    return (int)tcp->netif_count++;
}

static int peer_of(struct sl_mon_tcp *tcp, const char *name, const uint8_t remote[16])
{
    int netif = netif_of(tcp, name), free_one = -1;

    for (unsigned i = 0; i < tcp->peers_end; i++) {
        const struct peer *peer = &tcp->peers[i];

        if (!peer->is_there)
            free_one = free_one < 0 ? (int)i : free_one;
        else if (peer->netif == netif && memcmp(peer->remote, remote, 16) == 0)
            return (int)i;
    }
    if (free_one < 0 && tcp->peers_end < SL_MON_TCP_PEERS_MAX)
        free_one = (int)tcp->peers_end++;
    if (free_one < 0 || netif < 0)
        return -1;
    tcp->peers[free_one] = (struct peer){.is_there = true, .netif = (uint8_t)netif};
    memcpy(tcp->peers[free_one].remote, remote, 16);
    return free_one;
}

/* What was known when the agent ended, so that what is wrong with it can end too. */
static void adopt(struct sl_mon_tcp *tcp)
{
    for (const struct sl_mon_subject *at = sl_mon_next(tcp->mon, NULL); at != NULL;
         at = sl_mon_next(tcp->mon, at)) {
        const char *to = at->kind == SL_MON_PEER ? strstr(at->name, " to ") : NULL;
        uint8_t remote[16];
        char netif[16];
        int peer;

        if (to == NULL || !parse_address(to + strlen(" to "), remote))
            continue;
        snprintf(netif, sizeof(netif), "%.*s", (int)(to - at->name), at->name);
        peer = peer_of(tcp, netif, remote);
        if (peer < 0)
            continue;
        tcp->peers[peer].subject = sl_mon_find(tcp->mon, SL_MON_PEER, at->name);
        tcp->peers[peer].seen_ns = tcp->began_ns;
    }
}

/* ---- a list ---- */

void sl_mon_tcp_begin(struct sl_mon_tcp *tcp)
{
    struct list *list = tcp->before;

    tcp->before_ns = tcp->began_ns;
    tcp->began_ns = sl_mon_time(tcp->mon)->mono_ns;
    tcp->before = tcp->now;
    tcp->now = list;
    list->count = 0;
    memset(list->places, 0, sizeof(list->places));
    tcp->seconds = (double)(tcp->began_ns - tcp->before_ns) / 1e9;
    if (tcp->before_ns == 0)
        adopt(tcp);
    for (unsigned i = 0; i < tcp->peers_end; i++)
        tcp->peers[i].sum = (struct sum){.flows = 0};
    for (unsigned i = 0; i < tcp->netif_count; i++)
        tcp->netifs[i].rate = 0;
}

static bool is_comparable(const struct sl_mon_tcp *tcp)
{
    return tcp->before_ns != 0 && tcp->began_ns - tcp->before_ns >= SHORT_NS &&
           tcp->began_ns - tcp->before_ns <= LONG_NS;
}

static void text_ports(const struct sl_mon_tcp_flow *flow, char *out, size_t cap)
{
    snprintf(out, cap, "port %u to port %u", flow->ports[0], flow->ports[1]);
}

/* Adds what it did since the list before. */
static void sum_flow(const struct sl_mon_tcp *tcp, const struct sl_mon_tcp_flow *flow,
                     const struct seen *was, struct seen *is, struct sum *sum)
{
    uint64_t acked = flow->acked - was->acked;
    double rate = (double)acked / tcp->seconds;
    double busy = (double)(flow->busy - was->busy) / 1e6;
    double closed_for = (double)(flow->closed_for - was->closed_for) / 1e6;
    bool is_shut = closed_for >= 0.8 * tcp->seconds;

    sum->known++;
    sum->acked += acked;
    sum->segments += flow->segments - was->segments;
    sum->again += flow->again - was->again;
    sum->twice += flow->twice - was->twice;
    sum->sending += acked > 0 || (flow->unacked > 0 && was->unacked > 0);
    sum->timed_out += flow->has_rtos ? flow->rtos != was->rtos : flow->in_loss;
    sum->rtt += (double)flow->rtt * (double)acked;
    sum->busy_in_all += busy;
    if (rate > is->best)
        is->best = rate;
    if (busy >= 0.5 * tcp->seconds) {
        sum->active++;
        sum->busy += busy;
        sum->closed_for += closed_for;
    }
    /* Nothing is acknowledged, not even what was sent long before: it is not the window, which the
     * receiver closes by an acknowledgement. */
    if (flow->backoff > 0 && flow->unacked > 0 && was->unacked > 0 && acked == 0 &&
        flow->window != 0 && sum->stuck++ == 0)
        text_ports(flow, sum->stuck_text, sizeof(sum->stuck_text));
    /* A receiver that reads slower than this host sends closes its window all the time, in health
     * too: it is slow when much less goes through than did. */
    if (is_shut && is->best >= 65536 && rate <= is->best / 4 && sum->closed++ == 0)
        text_ports(flow, sum->closed_text, sizeof(sum->closed_text));
}

void sl_mon_tcp_flow(struct sl_mon_tcp *tcp, const char *netif, const struct sl_mon_tcp_flow *flow)
{
    struct list *list = tcp->now;
    unsigned place = place_of(list, flow->cookie);
    const struct seen *was = NULL;
    int peer;

    if (list->places[place] != 0)
        return; /* listed twice: it moved while the kernel went through them */
    if (list->count == SL_MON_TCP_FLOWS_MAX) {
        tcp->left_out++;
        return;
    }
    unsigned at = tcp->before->places[place_of(tcp->before, flow->cookie)];

    if (at != 0)
        was = &tcp->before->flows[at - 1];
    peer = was != NULL ? was->peer : peer_of(tcp, netif, flow->remote);
    if (peer < 0) {
        tcp->left_out++;
        return;
    }
    struct seen *is = &list->flows[list->count++];

    list->places[place] = (uint16_t)list->count;
    *is = (struct seen){.cookie = flow->cookie,
                        .acked = flow->acked,
                        .busy = flow->busy,
                        .closed_for = flow->closed_for,
                        .best = was != NULL ? was->best : 0,
                        .segments = flow->segments,
                        .again = flow->again,
                        .twice = flow->twice,
                        .rtos = flow->rtos,
                        .unacked = flow->unacked,
                        .peer = (uint16_t)peer};
    tcp->peers[peer].seen_ns = tcp->began_ns;
    tcp->peers[peer].sum.flows++;
    if (was != NULL && is_comparable(tcp))
        sum_flow(tcp, flow, was, is, &tcp->peers[peer].sum);
}

/* ---- rules ---- */

#define LOSS_PER_S 10     /* segments lost in a second, at least */
#define LOSS_PART 5e-4    /* of those that were sent */
#define SLOW_PART 4       /* less than a fourth of the best is slow */
#define BUSY_PART 0.9     /* of its time a connection has something to send */
#define BUSY_LEAST 0.02   /* seconds */
#define FULL_PART 0.8     /* of the most that an interface carried: it carries all it can */
#define BEST_KEPT 0.9998  /* of the best, from second to second: half in an hour */
#define DAMAGED_PER_S 5   /* wrong checksums in a second, at least */
#define DAMAGED_PART 1e-6 /* of the segments that came */

static void tell(const struct sl_mon_tcp *tcp, struct sl_mon_subject *subject,
                 enum sl_mon_check check, bool is_bad, struct sl_mon_evidence *evidence)
{
    evidence->source = "inet_diag";
    sl_mon_sample(tcp->mon, subject, check, is_bad, evidence);
}

/* What was sent again and not in vain: the receiver did not have it. Where most of it was in vain,
 * segments overtook each other, and nothing is known of loss. */
static double lost(const struct sum *sum)
{
    return sum->twice * 2 >= sum->again ? 0 : (double)(sum->again - sum->twice);
}

/* Segments that this host sent again, of all its connections, by what it found them lost. */
struct found {
    uint64_t by_timeouts, by_recoveries;
};

/*
 * Two kinds of loss. Segments that are lost here and there are found by acknowledgements of later
 * ones, and a recovery sends them again; few wait for a timeout. In a blackout all that is under
 * way is lost, of most connections, and only a timeout finds out. Recoveries themselves are no
 * measure: a quick flow has some in every second in which nothing was lost, and they are taken
 * back.
 */
static void check_loss(const struct sl_mon_tcp *tcp, const struct peer *peer,
                       const struct found *found)
{
    const struct sum *sum = &peer->sum;
    double count = lost(sum);
    bool is_dark = sum->stuck > 0 || (sum->timed_out > 0 && 2 * sum->timed_out >= sum->sending &&
                                      count > 0 && found->by_timeouts > found->by_recoveries);
    bool is_lossy = !is_dark && count >= LOSS_PER_S * tcp->seconds &&
                    count >= LOSS_PART * (double)sum->segments;
    struct sl_mon_evidence evidence = {.after = sum->again};

    snprintf(evidence.text, sizeof(evidence.text),
             "%.0f of %llu segments were lost in %.1f s, beside %llu that were sent twice in vain",
             count, (unsigned long long)sum->segments, tcp->seconds,
             (unsigned long long)(sum->again < sum->twice ? sum->again : sum->twice));
    tell(tcp, peer->subject, SL_MON_CHECK_PEER_LOSS, is_lossy, &evidence);
    if (sum->stuck > 0)
        snprintf(evidence.text, sizeof(evidence.text),
                 "nothing arrives on %u of %u connections (%s), which repeat what they sent",
                 sum->stuck, sum->flows, sum->stuck_text);
    else
        snprintf(
            evidence.text, sizeof(evidence.text),
            "%u of %u connections that send had a timeout in %.1f s: at times all of it is lost",
            sum->timed_out, sum->sending, tcp->seconds);
    tell(tcp, peer->subject, SL_MON_CHECK_PEER_BLACKOUT, is_dark, &evidence);
}

static void check_receiver(const struct sl_mon_tcp *tcp, const struct peer *peer)
{
    const struct sum *sum = &peer->sum;
    struct sl_mon_evidence evidence = {.after = sum->closed};

    snprintf(evidence.text, sizeof(evidence.text),
             "%u of %u connections wait for a receiver that takes nothing, or little (%s)",
             sum->closed, sum->flows, sum->closed_text);
    tell(tcp, peer->subject, SL_MON_CHECK_PEER_SLOW, sum->closed > 0, &evidence);
}

static double rate_of(const struct sl_mon_tcp *tcp, const struct peer *peer)
{
    return (double)peer->sum.acked / tcp->seconds;
}

/* Who is active always had something to send. */
static bool is_full(const struct sl_mon_tcp *tcp, const struct sum *sum)
{
    return sum->active > 0 && sum->busy >= BUSY_PART * sum->active * tcp->seconds;
}

/* Bytes a second of a connection while it has something to send. */
static double speed_of(const struct sum *sum)
{
    return sum->busy_in_all > 0 ? (double)sum->acked / sum->busy_in_all : 0;
}

/* Microseconds; 0: nothing was acknowledged. */
static double rtt_of(const struct sum *sum)
{
    return sum->acked > 0 ? sum->rtt / (double)sum->acked : 0;
}

/*
 * The way is slow when its connections always had something to send, no receiver kept them waiting,
 * nothing was lost, it takes longer than usual, and they are a fourth at most as fast as they were;
 * and when the interface carries half at most of what it did on an average of its own, idle times
 * too: others may send more, and what passes a shaper's bucket in bursts is faster than the way.
 */
static void check_rate(const struct sl_mon_tcp *tcp, const struct peer *peer)
{
    const struct sum *sum = &peer->sum;
    const struct netif *netif = &tcp->netifs[peer->netif];
    double all = sum->active * tcp->seconds, speed = speed_of(sum), rtt = rtt_of(sum);
    bool is_known = peer->usual_count >= USUAL_COUNT && sum->known * 2 >= sum->flows;
    bool is_open = sum->closed_for < 0.1 * all && sum->stuck == 0 && sum->timed_out == 0;
    bool is_slow = speed * SLOW_PART <= peer->best && rtt >= 1.5 * peer->usual_rtt;
    bool has_room = netif->rate * 2 <= netif->best;
    struct sl_mon_evidence evidence = {.before = (uint64_t)peer->best, .after = (uint64_t)speed};

    snprintf(evidence.text, sizeof(evidence.text),
             "a connection gets %.0f Mbit/s at a round trip of %.1f ms, without loss; it was %.0f "
             "at %.1f ms",
             speed * 8 / 1e6, rtt / 1e3, peer->best * 8 / 1e6, peer->usual_rtt / 1e3);
    tell(tcp, peer->subject, SL_MON_CHECK_PEER_RATE,
         is_known && is_full(tcp, sum) && is_open && is_slow && has_room &&
             lost(sum) < LOSS_PER_S * tcp->seconds,
         &evidence);
}

static bool is_calm(const struct sl_mon_subject *subject)
{
    return sl_mon_subject_state(subject) == SL_MON_OK;
}

/* What is known of the way stays as it is while something is told of it. */
static bool is_accused(const struct peer *peer)
{
    return peer->subject != NULL && !is_calm(peer->subject);
}

static void learn_rates(struct sl_mon_tcp *tcp)
{
    for (unsigned i = 0; i < tcp->netif_count; i++)
        tcp->netifs[i].is_accused = false;
    for (unsigned i = 0; i < tcp->peers_end; i++)
        if (tcp->peers[i].is_there) {
            struct netif *netif = &tcp->netifs[tcp->peers[i].netif];

            netif->rate += rate_of(tcp, &tcp->peers[i]);
            netif->is_accused = netif->is_accused || is_accused(&tcp->peers[i]);
        }
    for (unsigned i = 0; i < tcp->netif_count; i++) {
        struct netif *netif = &tcp->netifs[i];

        if (!netif->is_accused)
            netif->best *= BEST_KEPT;
        if (netif->rate > netif->best)
            netif->best = netif->rate;
    }
}

/*
 * How fast a connection gets rid of what it has to send, whatever the times in which it has
 * nothing. The kernel counts such times in ticks of its clock, so a few of them say nothing. Bursts
 * may be faster than the way, as a shaper lets them pass: its speed is what connections get that
 * always have something to send while the interface carries all it can.
 */
static void learn(const struct sl_mon_tcp *tcp, struct peer *peer)
{
    const struct sum *sum = &peer->sum;
    const struct netif *netif = &tcp->netifs[peer->netif];
    double speed = speed_of(sum);

    if (!is_accused(peer))
        peer->best *= BEST_KEPT;
    peer->recent_acked = 0.7 * peer->recent_acked + (double)sum->acked;
    peer->recent_busy = 0.7 * peer->recent_busy + sum->busy_in_all;
    if (peer->recent_busy < BUSY_LEAST || sum->acked == 0)
        return;
    if (is_full(tcp, sum) && netif->rate >= FULL_PART * netif->best)
        peer->best = speed;
    else
        speed = peer->recent_acked / peer->recent_busy;
    if (speed > peer->best)
        peer->best = speed;
    if (speed * 2 >= peer->best) {
        peer->usual_rtt +=
            (rtt_of(sum) - peer->usual_rtt) / (peer->usual_count < 20 ? 1 + peer->usual_count : 20);
        peer->usual_count++;
    }
}

static void check_peer(struct sl_mon_tcp *tcp, struct peer *peer, const struct found *found)
{
    if (peer->subject == NULL && rate_of(tcp, peer) >= SL_MON_TCP_SUBJECT) {
        char address[48], name[SL_MON_NAME];

        sl_mon_tcp_address(peer->remote, address, sizeof(address));
        snprintf(name, sizeof(name), "%s to %s", tcp->netifs[peer->netif].name, address);
        peer->subject = sl_mon_subject(tcp->mon, SL_MON_PEER, name);
    }
    if (peer->subject == NULL)
        return;
    if (peer->sum.acked > 0)
        sl_mon_use(tcp->mon, peer->subject);
    check_loss(tcp, peer, found);
    check_receiver(tcp, peer);
    check_rate(tcp, peer);
}

static void forget(struct sl_mon_tcp *tcp, struct peer *peer)
{
    if (tcp->began_ns - peer->seen_ns < FORGET_NS || is_accused(peer))
        return;
    if (peer->subject != NULL)
        sl_mon_forget(tcp->mon, peer->subject);
    *peer = (struct peer){.is_there = false};
}

static void check_host(struct sl_mon_tcp *tcp, const uint64_t *delta)
{
    double damaged = (double)delta[SL_MON_TCP_DAMAGED], came = (double)delta[SL_MON_TCP_IN];
    struct sl_mon_evidence evidence = {.after = tcp->counters.values[SL_MON_TCP_DAMAGED]};

    if (tcp->host == NULL)
        tcp->host = sl_mon_subject(tcp->mon, SL_MON_HOST, "host");
    if (tcp->host == NULL || (tcp->counters.has >> SL_MON_TCP_DAMAGED & 1) == 0)
        return;
    evidence.before = evidence.after - delta[SL_MON_TCP_DAMAGED];
    snprintf(evidence.text, sizeof(evidence.text),
             "%.0f TCP segments came with a wrong checksum in %.1f s, beside %.0f good ones",
             damaged, tcp->seconds, came);
    tell(tcp, tcp->host, SL_MON_CHECK_HOST_DAMAGE,
         damaged >= DAMAGED_PER_S * tcp->seconds && damaged >= DAMAGED_PART * came, &evidence);
}

void sl_mon_tcp_end(struct sl_mon_tcp *tcp, const struct sl_mon_tcp_counters *host)
{
    uint64_t delta[SL_MON_TCP_COUNTER_COUNT] = {0};
    uint32_t both = host->has & tcp->counters.has;

    for (unsigned i = 0; i < SL_MON_TCP_COUNTER_COUNT; i++)
        if ((both >> i & 1) != 0 && host->values[i] >= tcp->counters.values[i]) {
            delta[i] = host->values[i] - tcp->counters.values[i];
            tcp->totals[i] += delta[i];
        }
    tcp->counters = *host;
    if (!is_comparable(tcp))
        return;
    /* The kernel does not count the first segment after a timeout among those that follow. */
    struct found found = {
        .by_timeouts = delta[SL_MON_TCP_TIMEOUTS] + delta[SL_MON_TCP_AGAIN_BY_TIMEOUT],
        .by_recoveries = delta[SL_MON_TCP_AGAIN_BY_RECOVERY],
    };

    learn_rates(tcp);
    for (unsigned i = 0; i < tcp->peers_end; i++)
        if (tcp->peers[i].is_there) {
            learn(tcp, &tcp->peers[i]);
            check_peer(tcp, &tcp->peers[i], &found);
            forget(tcp, &tcp->peers[i]);
        }
    check_host(tcp, delta);
}

/* ---- what others ask ---- */

uint64_t sl_mon_tcp_left_out(const struct sl_mon_tcp *tcp)
{
    return tcp->left_out;
}

unsigned sl_mon_tcp_flows(const struct sl_mon_tcp *tcp)
{
    return tcp->now->count;
}

bool sl_mon_tcp_view(const struct sl_mon_tcp *tcp, unsigned i, struct sl_mon_tcp_view *out)
{
    const struct peer *peer = &tcp->peers[i];

    if (i >= tcp->peers_end)
        return false;
    *out = (struct sl_mon_tcp_view){.name = ""};
    if (!peer->is_there || peer->subject == NULL)
        return true;
    out->name = peer->subject->name;
    out->flows = peer->sum.flows;
    out->best_bytes = peer->best;
    if (peer->sum.acked > 0)
        out->rtt_us = (uint32_t)(peer->sum.rtt / (double)peer->sum.acked);
    if (is_comparable(tcp)) {
        out->acked_bytes = rate_of(tcp, peer);
        out->again = (double)peer->sum.again / tcp->seconds;
        out->twice = (double)peer->sum.twice / tcp->seconds;
    }
    return true;
}

const uint64_t *sl_mon_tcp_totals(const struct sl_mon_tcp *tcp)
{
    return tcp->totals;
}
