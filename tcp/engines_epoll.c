/* SPDX-License-Identifier: Apache-2.0 */
/* The engines of a build without liburing. */
#include "tcp/engine.h"

#include <stddef.h>

const struct sl_tcp_engine_ops *const sl_tcp_engines[] = {&sl_tcp_epoll, NULL};
