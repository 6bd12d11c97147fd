/* SPDX-License-Identifier: Apache-2.0 */
/* The engines of a build with liburing, in the order in which auto tries them:
 * docs/design/0004-tcp-engines.md has the measurements. */
#include "tcp/engine.h"

#include <stddef.h>

const struct sl_tcp_engine_ops *const sl_tcp_engines[] = {&sl_tcp_epoll, &sl_tcp_uring, NULL};
