/* SPDX-License-Identifier: Apache-2.0 */
/* Stories as cases of cmocka. */
#ifndef SL_TESTS_MODEL_STORY_H
#define SL_TESTS_MODEL_STORY_H

#include "tests/model/machine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define POLLS 5 /* a thread that waits looks so many times, then goes */

/* Threads that look for what others do. */
#define UNTIL(condition)                                                                           \
    for (int polls = 0; !(condition); polls++) {                                                   \
        if (polls == POLLS)                                                                        \
            return;                                                                                \
        model_yield();                                                                             \
    }

static inline void run_story(const struct model_story *story, unsigned switches, long limit)
{
    long count = model_run(story, switches, limit);

    print_message("# %ld executions\n", count < 0 ? -count : count);
    if (count < 0)
        fail_msg("execution %ld: %s", -count, model_why);
}

static inline void nothing_to_begin(void)
{
}

#endif
