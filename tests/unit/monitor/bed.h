/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A whole agent over files of the test and a clock of the test: one RDMA port (mlx5_0:1) that
 * carries traffic, every other source switched off.
 */
#ifndef SL_TESTS_UNIT_MONITOR_BED_H
#define SL_TESTS_UNIT_MONITOR_BED_H

#include "monitor/agent.h"

#include <stdbool.h>

struct bed {
    char folder[64]; /* rdma/, state.db, events */
    struct sl_mon_config config;
    struct sl_mon_time now;
    struct sl_agent *agent;
    const char *boot_id;
    unsigned packets;
};

extern struct bed bed;

int bed_begin(void **state);
int bed_end(void **state);
void bed_restart(void); /* with bed.config, bed.boot_id */
void bed_stop(void);
void bed_run(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void bed_put(const char *file, const char *text); /* below the port's folder */
void bed_pass(uint64_t ns);                       /* the clocks only */
void bed_second(void);                            /* with some traffic, and a tick */
unsigned bed_lines(char *last, size_t cap);       /* of the events file: how many, and the last */
bool bed_has_metric(const char *line);
void bed_expect_metric(const char *line, bool there);
enum sl_mon_state bed_state(enum sl_mon_check check, const char *name);

#endif
