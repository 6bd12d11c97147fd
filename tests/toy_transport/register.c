/* SPDX-License-Identifier: Apache-2.0 */
/* The toy of docs/adding-a-transport.md, in a test that contains it. */
#include "core/err.h"
#include "core/registry.h"

extern const struct sl_transport_ops sl_toy_ops;

__attribute__((constructor(201))) static void register_toy(void)
{
    sl_assert(sl_transport_register(&sl_toy_ops) == 0);
}
