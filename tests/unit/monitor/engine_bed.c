/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/monitor/engine_bed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

struct sl_mon *mon;
struct sl_mon_time now;
unsigned told;
struct sl_mon_step last_step;
enum sl_mon_check last_check;
char last_text[SL_MON_TEXT];

static void on_transition(void *arg, const struct sl_mon_transition *transition)
{
    (void)arg;
    told++;
    last_step = transition->step;
    last_check = transition->check;
    snprintf(last_text, sizeof(last_text), "%s", transition->evidence->text);
}

void engine_begin(unsigned subjects_max)
{
    const struct sl_mon_options options = {.subjects_max = subjects_max,
                                           .on_transition = on_transition};

    told = 0;
    now = (struct sl_mon_time){.mono_ns = SL_MON_HOUR, .boot_ns = SL_MON_HOUR};
    assert_int_equal(sl_mon_create(&options, &mon), 0);
    sl_mon_set_time(mon, &now);
}

int engine_end(void **state)
{
    (void)state;
    sl_mon_destroy(mon);
    return 0;
}

enum sl_mon_state engine_state(enum sl_mon_kind kind, const char *name, enum sl_mon_check check)
{
    const struct sl_mon_subject *subject = sl_mon_find(mon, kind, name);

    assert_non_null(subject);
    return (enum sl_mon_state)sl_mon_condition(subject, check)->state;
}
