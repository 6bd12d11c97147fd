/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/port.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define SPEED_PART 0.95         /* of the best: less is slower */
#define LONG_NS (30 * SL_MON_S) /* readings farther apart say nothing of rates */

const struct sl_mon_counter_row sl_mon_counters[SL_MON_COUNTER_COUNT] = {
#define X(id, name_, alias_, bits_, kind_)                                                         \
    [SL_MON_COUNTER_##id] = {.name = name_, .alias = alias_, .kind = kind_, .bits = bits_},
    SL_MON_COUNTERS(X)
#undef X
};

void sl_mon_port_init(struct sl_mon_port *port, struct sl_mon_subject *subject)
{
    *port = (struct sl_mon_port){.subject = subject};
}

/* A counter of 32 bits that was beyond its middle and is before it has wrapped; any other that is
 * less than it was has been reset. */
bool sl_mon_counter_delta(enum sl_mon_counter counter, uint64_t before, uint64_t after,
                          uint64_t *out)
{
    const uint64_t middle = UINT64_C(1) << 31, whole = UINT64_C(1) << 32;

    if (after >= before) {
        *out = after - before;
        return true;
    }
    if (sl_mon_counters[counter].bits != 32 || before >= whole || before < middle ||
        after >= middle)
        return false;
    *out = after + whole - before;
    return true;
}

/* ---- rules ---- */

/*
 * When a second is bad: so many a second at least, or so many in the last hour, or, where packets
 * are counted, more than one in so many of them. The rates are those that operators use
 * (NVSentinel's defaults); by traffic, as a busy port may lose a packet now and then.
 */
struct rule {
    enum sl_mon_check check;
    enum sl_mon_counter counter;
    double per_s, per_hour; /* 0: no such bound */
    double per_packet;      /* what is less is none, however many; 0: it does not count */
};

static const struct rule rules[] = {
    {SL_MON_CHECK_PORT_SYMBOL, SL_MON_COUNTER_SYMBOL, 10, 120, 0},
    {SL_MON_CHECK_PORT_RECOVERY, SL_MON_COUNTER_RECOVERY, 0, 5, 0},
    {SL_MON_CHECK_PORT_RECEIVE, SL_MON_COUNTER_RECEIVE_ERRORS, 10, 0, 1e-6},
    {SL_MON_CHECK_PORT_DISCARD, SL_MON_COUNTER_DISCARDS, 100, 0, 1e-6},
    {SL_MON_CHECK_PORT_LOSS, SL_MON_COUNTER_ACK_TIMEOUT, 1, 0, 0},
    {SL_MON_CHECK_PORT_LOSS, SL_MON_COUNTER_OUT_OF_SEQUENCE, 10, 0, 1e-5},
    {SL_MON_CHECK_PORT_LOSS, SL_MON_COUNTER_PACKET_SEQ, 10, 0, 1e-5},
    {SL_MON_CHECK_PORT_LOSS, SL_MON_COUNTER_SLOW_RESTART, 10, 0, 0},
    {SL_MON_CHECK_PORT_NOT_READY, SL_MON_COUNTER_RNR, 1, 0, 0},
};

struct span {
    const struct sl_mon_port *port;
    const struct sl_mon_reading *reading;
    double seconds, packets;
    uint64_t delta[SL_MON_COUNTER_COUNT];
    uint64_t has; /* of these */
};

static bool is_bad(const struct span *span, const struct rule *rule)
{
    double came = (double)span->delta[rule->counter];

    if (came == 0)
        return false;
    if (rule->per_packet != 0 && span->packets > 0 && came / span->packets < rule->per_packet)
        return false;
    return (rule->per_s != 0 && came / span->seconds >= rule->per_s) ||
           (rule->per_hour != 0 && span->port->hourly[rule->counter] >= rule->per_hour);
}

static void tell_counter(struct sl_mon *mon, const struct span *span, const struct rule *rule,
                         const char *source)
{
    const struct sl_mon_counter_row *row = &sl_mon_counters[rule->counter];
    struct sl_mon_evidence evidence = {.source = source,
                                       .before = span->port->last.counters[rule->counter],
                                       .after = span->reading->counters[rule->counter]};

    snprintf(evidence.text, sizeof(evidence.text),
             "%s went from %llu to %llu in %.1f s, beside %.0f packets", row->name,
             (unsigned long long)evidence.before, (unsigned long long)evidence.after, span->seconds,
             span->packets);
    sl_mon_sample(mon, span->port->subject, rule->check, true, &evidence);
}

/* Of each check that counters are behind: bad by one of them, or good by all that are there. */
static void check_counters(struct sl_mon *mon, const struct span *span, const char *source)
{
    for (unsigned i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        const struct rule *bad = NULL;
        bool has = false;
        unsigned first = i;

        while (i + 1 < sizeof(rules) / sizeof(rules[0]) && rules[i + 1].check == rules[first].check)
            i++;
        for (unsigned j = first; j <= i; j++) {
            if ((span->has >> rules[j].counter & 1) == 0)
                continue;
            has = true;
            if (bad == NULL && is_bad(span, &rules[j]))
                bad = &rules[j];
        }
        if (bad != NULL)
            tell_counter(mon, span, bad, source);
        else if (has)
            sl_mon_sample(mon, span->port->subject, rules[first].check, false, NULL);
    }
}

/* Any of them at all. */
static void check_integrity(struct sl_mon *mon, const struct span *span, const char *source)
{
    static const enum sl_mon_counter counters[] = {SL_MON_COUNTER_INTEGRITY,
                                                   SL_MON_COUNTER_OVERRUN};

    for (unsigned i = 0; i < 2; i++) {
        const struct rule rule = {SL_MON_CHECK_PORT_INTEGRITY, counters[i], 0, 0, 0};

        if ((span->has >> counters[i] & 1) != 0 && span->delta[counters[i]] != 0)
            tell_counter(mon, span, &rule, source);
    }
}

/* ---- state ---- */

static void check_state(struct sl_mon *mon, const struct sl_mon_port *port, const char *source,
                        const struct sl_mon_reading *reading)
{
    struct sl_mon_evidence evidence = {.source = source};
    bool was_down = port->last_ns != 0 && port->last.has_state && !port->last.is_up;

    /* One that is found down for the first time may be up at once: then it was a flap. */
    if (!reading->has_state || (!reading->is_up && !was_down))
        return;
    snprintf(evidence.text, sizeof(evidence.text), "the port is down; it was in use %.0f s ago",
             (double)(sl_mon_time(mon)->mono_ns - port->subject->used_ns) / 1e9);
    sl_mon_sample(mon, port->subject, SL_MON_CHECK_PORT_DOWN, !reading->is_up, &evidence);
}

static void check_speed(struct sl_mon *mon, struct sl_mon_port *port, const char *source,
                        const struct sl_mon_reading *reading)
{
    struct sl_mon_evidence evidence = {
        .source = source, .before = port->best_speed, .after = reading->speed};

    if (!reading->is_up || reading->speed == 0)
        return; /* a port without a link has none */
    if (reading->speed > port->best_speed)
        port->best_speed = reading->speed;
    snprintf(evidence.text, sizeof(evidence.text), "the link runs at %.1f Gbit/s, and did at %.1f",
             (double)reading->speed / 1e9, (double)port->best_speed / 1e9);
    sl_mon_sample(mon, port->subject, SL_MON_CHECK_PORT_SPEED,
                  (double)reading->speed < SPEED_PART * (double)port->best_speed, &evidence);
}

static unsigned flap_bucket(uint64_t down_ns)
{
    static const uint64_t bounds[SL_MON_FLAP_BUCKETS - 1] = {SL_MON_S / 100, SL_MON_S / 10,
                                                             SL_MON_S, 10 * SL_MON_S, SL_MON_MIN};
    unsigned i = 0;

    while (i < SL_MON_FLAP_BUCKETS - 1 && down_ns > bounds[i])
        i++;
    return i;
}

void sl_mon_port_flapped(struct sl_mon *mon, struct sl_mon_port *port, const char *source,
                         uint32_t times, uint64_t down_ns)
{
    struct sl_mon_evidence evidence = {
        .source = source, .before = port->flaps, .after = port->flaps + times};
    char lasted[48] = "";

    port->flaps += times;
    if (down_ns != 0) {
        port->flaps_lasted[flap_bucket(down_ns)]++;
        port->flapped_ns += down_ns;
        snprintf(lasted, sizeof(lasted), ", %.0f ms the last time", (double)down_ns / 1e6);
    }
    snprintf(evidence.text, sizeof(evidence.text), "the link went down and came back %u time%s%s",
             times, times == 1 ? "" : "s", lasted);
    sl_mon_sample(mon, port->subject, SL_MON_CHECK_PORT_FLAP, true, &evidence);
}

/* By counts: messages about a link are merged, its counts are not. */
static void check_flaps(struct sl_mon *mon, struct sl_mon_port *port, const char *source,
                        const struct sl_mon_reading *reading, const struct span *span)
{
    uint64_t downs = 0;

    if (reading->has_downs && port->last.has_downs && reading->downs > port->last.downs)
        downs = reading->downs - port->last.downs;
    if (span->delta[SL_MON_COUNTER_LINK_DOWNED] > downs)
        downs = span->delta[SL_MON_COUNTER_LINK_DOWNED];
    /* One that stays down is no flap. */
    if (downs > 0 && reading->has_state && !reading->is_up)
        downs--;
    if (downs > 0)
        sl_mon_port_flapped(mon, port, source, downs > UINT32_MAX ? UINT32_MAX : (uint32_t)downs,
                            0);
}

/* ---- a reading ---- */

static void span_count(struct sl_mon_port *port, const struct sl_mon_reading *reading,
                       struct span *span)
{
    double decay = exp(-span->seconds / 3600);
    bool was_reset = false;

    for (unsigned i = 0; i < SL_MON_COUNTER_COUNT; i++) {
        uint64_t delta = 0;

        port->hourly[i] *= decay;
        if ((reading->has & port->last.has & UINT64_C(1) << i) == 0)
            continue;
        if (!sl_mon_counter_delta((enum sl_mon_counter)i, port->last.counters[i],
                                  reading->counters[i], &delta)) {
            was_reset = true;
            continue;
        }
        span->has |= UINT64_C(1) << i;
        span->delta[i] = delta;
        port->hourly[i] += (double)delta;
        port->totals[i] += delta;
    }
    port->resets += was_reset;
}

/* Of a network interface its own counts, of an RDMA port its words of 4 bytes. */
static uint64_t count_bytes(struct sl_mon_port *port, const struct sl_mon_reading *reading,
                            const struct span *span)
{
    uint64_t sent = 4 * span->delta[SL_MON_COUNTER_TRANSMIT_WORDS];
    uint64_t received = 4 * span->delta[SL_MON_COUNTER_RECEIVE_WORDS];

    if (reading->has_bytes && port->last.has_bytes) {
        sent += reading->sent > port->last.sent ? reading->sent - port->last.sent : 0;
        received +=
            reading->received > port->last.received ? reading->received - port->last.received : 0;
    }
    port->sent += sent;
    port->received += received;
    return sent + received;
}

static bool carried(struct sl_mon_port *port, const struct sl_mon_reading *reading,
                    const struct span *span)
{
    return count_bytes(port, reading, span) + span->delta[SL_MON_COUNTER_TRANSMIT_PACKETS] +
               span->delta[SL_MON_COUNTER_RECEIVE_PACKETS] >
           0;
}

void sl_mon_port_read(struct sl_mon *mon, struct sl_mon_port *port, const char *source,
                      const struct sl_mon_reading *reading)
{
    uint64_t now_ns = sl_mon_time(mon)->mono_ns, passed_ns = now_ns - port->last_ns;
    struct span span = {.port = port, .reading = reading, .seconds = (double)passed_ns / 1e9};

    if (port->last_ns == now_ns)
        return; /* no time has passed: it says nothing */
    if (port->last_ns != 0) {
        span_count(port, reading, &span);
        span.packets = (double)(span.delta[SL_MON_COUNTER_TRANSMIT_PACKETS] +
                                span.delta[SL_MON_COUNTER_RECEIVE_PACKETS]);
        if (carried(port, reading, &span))
            sl_mon_use(mon, port->subject);
        check_flaps(mon, port, source, reading, &span);
        check_integrity(mon, &span, source);
        if (passed_ns <= LONG_NS)
            check_counters(mon, &span, source);
    }
    if (port->clears != port->subject->clears) {
        port->clears = port->subject->clears;
        port->best_speed = 0;
    }
    check_state(mon, port, source, reading);
    check_speed(mon, port, source, reading);
    port->last = *reading;
    port->last_ns = now_ns;
}
