/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's side of the process that answers probes over RDMA (probe_echo_rdma.h): begins it when
 * somebody asks, and says where it listens. Never waits. */
#ifndef SL_MONITOR_PROBE_RESPONDER_H
#define SL_MONITOR_PROBE_RESPONDER_H

#include "monitor/probe_echo_rdma.h"
#include "monitor/reader.h"

struct sl_probe_responder {
    struct sl_mon_reader reader;
    enum sl_probe_state state; /* while there is no process: SOON, or NONE for a while */
    uint64_t begun_ns, next_ns;
    unsigned count;
    struct sl_probe_port ports[SL_PROBE_PORTS];
    char why[SL_PROBE_WHY];
    uint64_t answered, foreign, beyond; /* in all */
    struct sl_probe_record record;
};

void sl_probe_responder_init(struct sl_probe_responder *responder);
void sl_probe_responder_fini(struct sl_probe_responder *responder);
/* Takes what the process has said; ends one that does not get ready. */
void sl_probe_responder_tick(struct sl_probe_responder *responder, uint64_t now_ns);
/* Page `number` of where it listens. order: borrowed, for as long as the responder is there. */
void sl_probe_responder_page(struct sl_probe_responder *responder,
                             const struct sl_probe_echo_order *order, uint32_t number,
                             uint64_t now_ns, struct sl_probe_page *out);

#endif
