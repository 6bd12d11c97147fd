/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of the agent, as text. Used once by subcommands, and each second by top. */
#ifndef SLUICE_CTL_SHOW_H
#define SLUICE_CTL_SHOW_H

#include "tools/ctl/ask.h"

#include <stdio.h>

struct sc_page {
    FILE *out;
    const char *end; /* of a line */
    unsigned width;  /* that no line is longer than; 0: any */
    double now;
};

struct sc_page sc_page_plain(void);

/* Of /v1/status. */
void sc_show_head(const struct sc_page *page, struct json_object *status);
void sc_show_probes(const struct sc_page *page, struct json_object *probes);
/* What is not ok; nothing, where nothing is. */
/* The ports that ranks are told to avoid, or to use less; nothing where there are none. */
void sc_show_steering(const struct sc_page *page, struct json_object *steering);
void sc_show_conditions(const struct sc_page *page, struct json_object *conditions);
/* Of /v1/ports; before, an answer of some time ago, or NULL: rates rather than totals. */
void sc_show_ports(const struct sc_page *page, struct json_object *answer,
                   struct json_object *before);
/* Of /v1/ranks: the processes, and whatever tables the sources add. */
void sc_show_ranks(const struct sc_page *page, struct json_object *answer);

#endif
