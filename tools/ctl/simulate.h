/* SPDX-License-Identifier: Apache-2.0 */
/* sluicectl simulate: made-up jobs with known faults, and what the rules make of them. */
#ifndef SLUICE_CTL_SIMULATE_H
#define SLUICE_CTL_SIMULATE_H

extern const char sc_simulate_usage[]; /* lines, indented as in the usage; "" where it is absent */
extern const char sc_simulate_help[];

/* The exit status. */
int sc_simulate(int count, char **words);

#endif
