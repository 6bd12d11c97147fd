/* SPDX-License-Identifier: Apache-2.0 */
/* Connections under way: the common part of the plugin's two ends beside flow.h. */
#ifndef SL_NCCL_LINK_H
#define SL_NCCL_LINK_H

#include "tools/nccl/adapt.h"

#include "core/wireup.h"

#define SL_NCCL_RETRY_NS (50 * SL_NS_PER_MS)

struct sl_nccl_listen {
    struct sl_node node; /* engine->listens */
    struct sl_node all;
    struct sl_nccl_engine *engine;
    const struct sl_nccl_ctx *ctx;
    uint64_t token; /* of its handle */
    /* when a dialer with the handle had another secret; 0: not since one had both */
    uint64_t stranger_ns;
    char stranger[SL_NCCL_PEER_NAME]; /* its address */
};

/* The engine is locked in all of these. One more user that dials or listens, and one less:
 * wire-up is open meanwhile. */
int sl_nccl_wireup_hold(struct sl_nccl_engine *engine);
void sl_nccl_wireup_put(struct sl_nccl_engine *engine);
void sl_nccl_wireup_progress(struct sl_nccl_engine *engine);

uint64_t sl_nccl_now(const struct sl_nccl_engine *engine);
uint64_t sl_nccl_patience_ns(const struct sl_nccl_engine *engine);

/* Somebody of this engine listens with that token; who asks knows the secret. */
bool sl_nccl_listens(const struct sl_nccl_engine *engine, uint64_t token);
/* This attempt came to nothing; with -ECONNREFUSED there will be another one. why is of wire-up's
 * form: "; shm: ...". */
void sl_nccl_dial_failed(struct sl_nccl_comm *comm, int err, const char *why);

/* Its channel of its flow is agreed on: NCCL's from now on, or not to be started. */
int sl_nccl_link_take(struct sl_nccl_comm *comm);

#endif
