/* SPDX-License-Identifier: Apache-2.0 */
/* sluicectl matrix: what messages from rank to rank took. It needs no agent. */
#ifndef SLUICE_CTL_MATRIX_H
#define SLUICE_CTL_MATRIX_H

extern const char sc_matrix_usage[]; /* a line, indented as in the usage; "" where it is absent */

int sc_matrix(int count, char **words);

#endif
