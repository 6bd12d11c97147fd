/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/probe_responder.h"

#include "core/err.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define READY_NS UINT64_C(10000000000) /* to open its devices in */
#define AGAIN_NS UINT64_C(5000000000)  /* after it could not */
#define PER_TICK 256

void sl_probe_responder_init(struct sl_probe_responder *responder)
{
    memset(responder, 0, sizeof(*responder));
    sl_mon_reader_init(&responder->reader);
    responder->state = SL_PROBE_SOON;
}

void sl_probe_responder_fini(struct sl_probe_responder *responder)
{
    sl_mon_reader_fini(&responder->reader);
}

static void end(struct sl_probe_responder *responder, const char *why, uint64_t now_ns)
{
    sl_mon_reader_end(&responder->reader);
    responder->count = 0;
    responder->state = why != NULL ? SL_PROBE_NONE : SL_PROBE_SOON;
    if (why == NULL)
        return;
    snprintf(responder->why, sizeof(responder->why), "%.159s", why);
    sl_tame_text(responder->why);
    responder->next_ns = now_ns + AGAIN_NS;
}

/* It comes from a process of our own, and is looked at all the same. */
static int take(void *arg)
{
    struct sl_probe_responder *responder = arg;
    struct sl_probe_record *record = &responder->record;

    record->why[sizeof(record->why) - 1] = '\0';
    record->port.name[sizeof(record->port.name) - 1] = '\0';
    if (record->magic != SL_PROBE_RECORD_MAGIC || record->type > SL_PROBE_RECORD_COUNTS)
        return -EBADMSG;
    switch ((enum sl_probe_record_type)record->type) {
    case SL_PROBE_RECORD_PORT:
        if (responder->count < SL_PROBE_PORTS)
            responder->ports[responder->count++] = record->port;
        break;
    case SL_PROBE_RECORD_READY: responder->state = SL_PROBE_READY; break;
    case SL_PROBE_RECORD_NONE:
        snprintf(responder->why, sizeof(responder->why), "%s", record->why);
        return -ENODEV;
    case SL_PROBE_RECORD_COUNTS:
        responder->answered += record->answered;
        responder->foreign += record->foreign;
        responder->beyond += record->beyond;
        break;
    }
    return 0;
}

void sl_probe_responder_tick(struct sl_probe_responder *responder, uint64_t now_ns)
{
    char why[SL_PROBE_WHY];
    int err;

    (void)sl_mon_reader_reap(&responder->reader);
    if (responder->reader.fd < 0)
        return;
    err = sl_mon_reader_each(&responder->reader, &responder->record, sizeof(responder->record),
                             PER_TICK, take, responder);
    memcpy(why, responder->why, sizeof(why));
    if (err == -ENODEV)
        end(responder, why, now_ns);
    else if (err == -EPIPE && responder->state == SL_PROBE_READY)
        end(responder, NULL, now_ns); /* nobody probed for a while */
    else if (err < 0)
        end(responder, "the process that answers probes over RDMA ended", now_ns);
    else if (responder->state == SL_PROBE_SOON && now_ns - responder->begun_ns > READY_NS)
        end(responder, "an RDMA device does not answer", now_ns);
}

static void begin(struct sl_probe_responder *responder, const struct sl_probe_echo_order *order,
                  uint64_t now_ns)
{
    responder->count = 0;
    responder->state = SL_PROBE_SOON;
    responder->begun_ns = now_ns;
    if (sl_mon_reader_begin(&responder->reader, "sluiced-probe", sl_probe_echo_rdma_run, order) !=
        0)
        end(responder, sluice_last_error(), now_ns);
}

void sl_probe_responder_page(struct sl_probe_responder *responder,
                             const struct sl_probe_echo_order *order, uint32_t number,
                             uint64_t now_ns, struct sl_probe_page *out)
{
    unsigned first;

    sl_probe_responder_tick(responder, now_ns);
    if (responder->reader.fd < 0 &&
        (responder->state != SL_PROBE_NONE || now_ns >= responder->next_ns))
        begin(responder, order, now_ns);
    memset(out, 0, sizeof(*out));
    out->state = responder->state;
    if (responder->state == SL_PROBE_NONE)
        memcpy(out->why, responder->why, sizeof(out->why));
    if (responder->state != SL_PROBE_READY)
        return;
    out->total = (uint16_t)responder->count;
    first = number < SL_PROBE_PORTS ? number * SL_PROBE_PAGE : SL_PROBE_PORTS;
    while (first + out->count < responder->count && out->count < SL_PROBE_PAGE) {
        out->ports[out->count] = responder->ports[first + out->count];
        out->count++;
    }
}
