/* SPDX-License-Identifier: Apache-2.0 */
/* Subcommands about the node agent, a file each. */
#ifndef SLUICE_CTL_AGENT_H
#define SLUICE_CTL_AGENT_H

#include "tools/ctl/command.h"

int sc_status(const struct sc_context *context, int count, char **words);
int sc_ports(const struct sc_context *context, int count, char **words);
int sc_ranks(const struct sc_context *context, int count, char **words);
int sc_top(const struct sc_context *context, int count, char **words);
int sc_events(const struct sc_context *context, int count, char **words);
int sc_verdicts(const struct sc_context *context, int count, char **words);
int sc_ack(const struct sc_context *context, int count, char **words);
int sc_clear(const struct sc_context *context, int count, char **words);
int sc_doctor(const struct sc_context *context, int count, char **words);
int sc_probe(const struct sc_context *context, int count, char **words);
int sc_replay(const struct sc_context *context, int count, char **words);

#endif
