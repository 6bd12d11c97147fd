/* SPDX-License-Identifier: Apache-2.0 */
/* sluicectl diagnose: it needs no agent. */
#ifndef SLUICE_CTL_DIAGNOSE_H
#define SLUICE_CTL_DIAGNOSE_H

#include <stdbool.h>
#include <stdint.h>

extern const char sc_diagnose_usage[]; /* a line, indented as in the usage; "" where it is absent */
extern const char *const sc_diagnose_absent; /* NULL: it is built */

int sc_diagnose(int count, char **words);
/* Seconds as nanoseconds, with three decimals at most to be exact. False: it is no such number. */
bool sc_seconds(const char *text, int64_t *out);

#endif
