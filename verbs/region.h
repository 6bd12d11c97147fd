/* SPDX-License-Identifier: Apache-2.0 */
/* Registered memory, on every rail: pools of our own, and what users register. */
#ifndef SL_VERBS_REGION_H
#define SL_VERBS_REGION_H

#include "core/mem.h"
#include "core/transport.h"
#include "multipath/iface.h"
#include "verbs/ibv_dl.h"

#include <stdbool.h>

struct sl_verbs_iface;
struct sl_verbs_rail;

#define SL_VERBS_ACCESS                                                                            \
    (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE) /* to registered memory */

/* Registered memory of our own, on every rail. */
struct sl_verbs_pool {
    uint8_t *bytes;
    size_t len;
    struct ibv_mr *mr[SL_MP_RAILS_MAX];
};

/* The user's memory: a region on every rail. */
struct sl_verbs_mr {
    struct sl_mp_region base;
    struct ibv_mr *mr[SL_MP_RAILS_MAX];
};

int sl_verbs_pool_init(struct sl_verbs_iface *iface, size_t len, struct sl_verbs_pool *out);
void sl_verbs_pool_fini(struct sl_verbs_iface *iface, struct sl_verbs_pool *pool);
int sl_verbs_mr_reg(struct sl_iface *iface, const struct sl_mem *mem, struct sl_mr **out,
                    struct sl_key *key);
void sl_verbs_mr_dereg(struct sl_iface *iface, struct sl_mr *mr);
void sl_verbs_mem_init(struct sl_verbs_iface *iface);
unsigned sl_verbs_mem_gone(struct sl_iface *iface, void *addr, size_t len);

/* One registration; the error is a sentence about limits where it is one. */
int sl_verbs_reg(const struct sl_verbs_rail *rail, void *addr, size_t len, struct ibv_mr **out);
/* The same on every rail, or none. */
int sl_verbs_reg_all(struct sl_verbs_iface *iface, void *addr, size_t len, struct ibv_mr **mr);
void sl_verbs_dereg_all(struct sl_verbs_iface *iface, struct ibv_mr **mr);

#endif
