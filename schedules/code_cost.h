/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Terms of the cost formulas of algorithms that send encodings (docs/design/0045): work of the
 * processor that encodes and decodes, bytes on links, and what of the two overlaps.
 *
 * A rank encodes on the thread that also moves its messages. So work and wire overlap only where
 * the wire is somebody else's: a NIC, and the kernel behind a socket but for its copies. Between
 * ranks that share memory the bytes' time is the processor's own.
 */
#ifndef SL_SCHEDULES_CODE_COST_H
#define SL_SCHEDULES_CODE_COST_H

#include "schedules/build.h"

/* So many times as long must the elements' own bytes be predicted to take, or they are sent:
 * predictions that are closer decide nothing, and what is sent as it is loses nothing. */
#define SL_CODE_GAIN 1.1

/* Of a rank, in ns, but for rounds. */
struct sl_code_time {
    double work;    /* of its processor */
    double wire;    /* of the link that it shares with its host's others */
    double latency; /* in which neither has anything to do */
    double rounds;  /* pieces that overlap, one after the other */
};

/* Of that many elements, each by one of code's kinds of work. */
static inline double sl_code_work_ns(const struct sl_costs *costs, double elements, float work)
{
    return elements * sizeof(float) * costs->code * (double)work * sl_cost_crowd(costs);
}

/* Bytes that encodings of so many elements take: predicted, where only the most is known. */
double sl_code_bytes_of(const struct sl_code *code, uint64_t elements);

/* Adds what it takes to send (and to receive) so many elements in encodings, over link, in so many
 * messages. sharers: ranks whose bytes go over that link at the same time. */
void sl_code_time_send(const struct sl_costs *costs, const struct sl_link_cost *link,
                       const struct sl_code *code, uint64_t elements, double messages,
                       uint32_t sharers, struct sl_code_time *time);

/* The same where a part of it goes within the host and the rest between hosts: to every other rank
 * as much. */
void sl_code_time_send_all(const struct sl_shape *shape, const struct sl_costs *costs,
                           const struct sl_code *code, uint64_t elements, double messages,
                           struct sl_code_time *time);

/* The slower of work and wire, and the other one for the piece that cannot overlap. */
double sl_code_time_total(const struct sl_code_time *time);

/* Ranks of the host that has most. */
uint32_t sl_code_locals(const struct sl_shape *shape);

#endif
