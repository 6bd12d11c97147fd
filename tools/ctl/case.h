/* SPDX-License-Identifier: Apache-2.0 */
/* sluicectl replay, explain, graph: they need no agent. */
#ifndef SLUICE_CTL_CASE_H
#define SLUICE_CTL_CASE_H

#include <stdbool.h>

extern const char sc_case_usage[]; /* lines, indented as in the usage; "" where it is absent */
extern const char sc_case_help[];

/* words: all of the command line after the program's name. False: it is no such command (an agent's
 * recording is replayed elsewhere). */
bool sc_case(int count, char **words, int *status);

#endif
