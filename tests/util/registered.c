/* SPDX-License-Identifier: Apache-2.0 */
/* In every test: the transports are registered before main(), as lib/start.c does in programs. */
#include "lib/backends.h"

__attribute__((constructor(200))) static void registered(void)
{
    sl_backends_register();
}
