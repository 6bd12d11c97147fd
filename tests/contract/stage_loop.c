/* SPDX-License-Identifier: Apache-2.0 */
/* The stage of the loop: what other fakes stand on keeps the contract itself. */
#include "tests/contract/stage_virtual.h"

static struct sl_transport_ops ops;
const struct sl_transport_ops *const stage_ops = &ops;
const bool stage_forks = false;

__attribute__((constructor)) static void ops_fill(void)
{
    ops = loop_ops;
}

void stage_reset(void)
{
    stage_virtual_check();
    stage_virtual_reset(30);
}
