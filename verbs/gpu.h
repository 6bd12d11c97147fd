/* SPDX-License-Identifier: Apache-2.0 */
/* GPU memory: registered with every rail. What arrives for it is multipath/gpu_copy.h's. */
#ifndef SL_VERBS_GPU_H
#define SL_VERBS_GPU_H

#include "verbs/region.h"

/* May GPU memory be registered with all rails, as far as they and the settings go? */
bool sl_verbs_gpu_possible(const struct sl_verbs_iface *iface);
/* As sl_verbs_reg_all(). -ENOTSUP, with the reason. */
int sl_verbs_gpu_reg(struct sl_verbs_iface *iface, const struct sl_mem *mem,
                     struct sl_verbs_mr *mr);
/* On rails that lack it, the same. */
int sl_verbs_gpu_again(struct sl_verbs_iface *iface, struct sl_verbs_mr *mr);

#endif
