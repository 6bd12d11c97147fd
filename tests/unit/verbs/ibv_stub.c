/* SPDX-License-Identifier: Apache-2.0 */
/* A libibverbs as it was: without the functions that came later (and, if STUB_LACKS names one,
 * without that). They have names only: nobody calls them. */
#include "verbs/ibv_dl.h"

#ifndef STUB_LACKS
#define STUB_LACKS "none"
#endif

#define NEEDED(type, name, args)                                                                   \
    __asm__(".ifnc " #name "," STUB_LACKS "\n.text\n.globl " #name "\n.type " #name                \
            ", @function\n" #name ":\n.endif\n");
#define LATER(type, name, args)

SL_IBV_FUNCTIONS(NEEDED, LATER)
