/* SPDX-License-Identifier: Apache-2.0 */
/* What collectives of encodings should take, by measured costs of links and codecs. */
#include "schedules/code_cost.h"

/* Of a byte's cost between hosts, so many copies in the caches are the processor's work: in and out
 * of the kernel, from memory and to it. The rest is the link's. */
#define SOCKET_COPIES 8
/* Of a message's latency, so much is work at most; linear_cost() has the same part. */
#define MESSAGE_PART 4
#define MESSAGE_WORK_MOST 2000.0

double sl_code_bytes_of(const struct sl_code *code, uint64_t elements)
{
    if (elements == 0)
        return 0;
    if (code->usual != 0)
        return (double)elements * (double)code->usual;
    return (double)code->bytes(code, elements);
}

static double least(double a, double b)
{
    return a < b ? a : b;
}

void sl_code_time_send(const struct sl_costs *costs, const struct sl_link_cost *link,
                       const struct sl_code *code, uint64_t elements, double messages,
                       uint32_t sharers, struct sl_code_time *time)
{
    double crowd = sl_cost_crowd(costs), bytes = sl_code_bytes_of(code, elements);
    bool own = link == &costs->shm; /* the processor moves them */
    double moves = own ? link->beta : least(link->beta, SOCKET_COPIES * costs->copy);
    double message = least(link->alpha / MESSAGE_PART, MESSAGE_WORK_MOST) + 4 * costs->step;

    time->work += (bytes * moves + messages * message) * crowd;
    if (!own)
        time->wire += bytes * link->beta * sharers;
}

/* The same on all ranks, as costs must be. */
uint32_t sl_code_locals(const struct sl_shape *shape)
{
    uint32_t most = 0;

    if (shape->host == NULL)
        return shape->size;
    for (uint32_t host = 0, seen = 0; seen < shape->size; host++) {
        uint32_t locals = 0;

        for (uint32_t r = 0; r < shape->size; r++)
            locals += shape->host[r] == host;
        seen += locals;
        most = locals > most ? locals : most;
    }
    return most;
}

void sl_code_time_send_all(const struct sl_shape *shape, const struct sl_costs *costs,
                           const struct sl_code *code, uint64_t elements, double messages,
                           struct sl_code_time *time)
{
    uint32_t locals = sl_code_locals(shape), others = shape->size - locals;
    uint32_t peers = shape->size - 1;
    uint64_t away = peers != 0 ? elements / peers * others : 0;
    double part = peers != 0 ? (double)others / peers : 0;

    sl_code_time_send(costs, &costs->shm, code, elements - away, messages * (1 - part), 1, time);
    if (others != 0)
        sl_code_time_send(costs, &costs->net, code, away, messages * part, locals, time);
}

double sl_code_time_total(const struct sl_code_time *time)
{
    double slow = time->work > time->wire ? time->work : time->wire;
    double fast = time->work > time->wire ? time->wire : time->work;

    return time->latency + slow + fast / (time->rounds > 1 ? time->rounds : 1);
}
