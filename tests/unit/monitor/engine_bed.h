/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine alone, with a clock of the test, for tests of checks: they give samples and see what is
 * told.
 */
#ifndef SL_TESTS_UNIT_MONITOR_ENGINE_BED_H
#define SL_TESTS_UNIT_MONITOR_ENGINE_BED_H

#include "monitor/engine.h"

extern struct sl_mon *mon;
extern struct sl_mon_time now; /* for sl_mon_set_time() */
extern unsigned told;          /* transitions, since the begin; of the last one: */
extern struct sl_mon_step last_step;
extern enum sl_mon_check last_check;
extern char last_text[SL_MON_TEXT];

/* For set-ups and teardowns. */
void engine_begin(unsigned subjects_max);
int engine_end(void **state);
enum sl_mon_state engine_state(enum sl_mon_kind kind, const char *name, enum sl_mon_check check);

#endif
