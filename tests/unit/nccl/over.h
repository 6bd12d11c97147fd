/* SPDX-License-Identifier: Apache-2.0 */
/* What is around all cases of a program: nothing, or the fake rails that it was built for. */
#ifndef SL_TESTS_NCCL_OVER_H
#define SL_TESTS_NCCL_OVER_H

#ifdef OVER_FAKE_RAILS
#include "tests/unit/nccl/rails.h"

static int before_all(void **state)
{
    (void)state;
    rails_up(0);
    return 0;
}

static int after_all(void **state)
{
    (void)state;
    rails_down();
    return 0;
}
#else
#define before_all NULL
#define after_all NULL
#endif

#endif
