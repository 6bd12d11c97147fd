/* SPDX-License-Identifier: Apache-2.0 */
/* sluicectl diagnose: it needs no agent. */
#ifndef SLUICE_CTL_DIAGNOSE_H
#define SLUICE_CTL_DIAGNOSE_H

extern const char sc_diagnose_usage[]; /* a line, indented as in the usage; "" where it is absent */
extern const char *const sc_diagnose_absent; /* NULL: it is built */

int sc_diagnose(int count, char **words);

#endif
