/* SPDX-License-Identifier: Apache-2.0 */
/* Registered memory, on every rail: pools of our own, and what users register. */
#ifndef SL_VERBS_REGION_H
#define SL_VERBS_REGION_H

#include "core/mem.h"
#include "core/transport.h"
#include "multipath/iface.h"
#include "verbs/open_device.h"

#include <stdbool.h>

struct sl_verbs_iface;
struct sl_verbs_rail;

/* Registered memory of our own, on every rail. */
struct sl_verbs_pool {
    uint8_t *bytes;
    size_t len;
    enum sl_verbs_writers writers;
    struct ibv_mr *mr[SL_MP_RAILS_MAX];
};

/* The user's memory: a region on every rail. */
struct sl_verbs_mr {
    struct sl_mp_region base;
    struct sl_node link; /* of iface->regions */
    void *addr;
    bool is_gone; /* its memory, or a part: it is registered nowhere again */
    struct sl_verbs_claim claims[SL_MP_RAILS_MAX];
};

int sl_verbs_pool_init(struct sl_verbs_iface *iface, size_t len, enum sl_verbs_writers writers,
                       struct sl_verbs_pool *out);
void sl_verbs_pool_fini(struct sl_verbs_iface *iface, struct sl_verbs_pool *pool);
/* On one more rail, or one less. */
int sl_verbs_pool_join(struct sl_verbs_iface *iface, struct sl_verbs_pool *pool, unsigned rail);
void sl_verbs_pool_leave(struct sl_verbs_iface *iface, struct sl_verbs_pool *pool, unsigned rail);
int sl_verbs_mr_reg(struct sl_iface *iface, const struct sl_mem *mem, struct sl_mr **out,
                    struct sl_key *key);
void sl_verbs_mr_dereg(struct sl_iface *iface, struct sl_mr *mr);
void sl_verbs_mem_init(struct sl_verbs_iface *iface);
unsigned sl_verbs_mem_gone(struct sl_iface *iface, void *addr, size_t len);

/* Takes the claims of this interface on memory that other ones have reported gone. */
void sl_verbs_mem_sync(struct sl_verbs_iface *iface);

/* Peers are to write to staging by the rail, if it is registered there. */
void sl_verbs_staging_told(struct sl_verbs_iface *iface, unsigned rail);
/* Nothing is registered with the rail's device any more: of a lost one, before it is closed. */
void sl_verbs_mem_leave(struct sl_verbs_rail *rail);
/* Our own pools are registered with the rail's device, too. After an error some may be. */
int sl_verbs_pools_join(struct sl_verbs_rail *rail);
/* All that is registered is so with the rail's device, too, which is another one than before. After
 * an error some is. */
int sl_verbs_mem_join(struct sl_verbs_rail *rail);
/* Is no rail lost, and all memory registered on each that is open? */
bool sl_verbs_mem_is_even(const struct sl_verbs_iface *iface);

/* On every rail that is not lost and has it not yet; ordinary memory on none that is on its way
 * back, whose sl_verbs_mem_join() sees to it: 1 or 0 as sl_verbs_memory_get(), or its error;
 * then nothing has changed. */
int sl_verbs_reg_all(struct sl_verbs_iface *iface, const struct sl_mem *mem,
                     struct sl_verbs_claim *claims);
/* True: a device has let go of that memory. */
bool sl_verbs_dereg_all(struct sl_verbs_iface *iface, struct sl_verbs_claim *claims);

#endif
