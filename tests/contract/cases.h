/* SPDX-License-Identifier: Apache-2.0 */
/* The groups of cases of the contract test; each returns how many failed. */
#ifndef SL_TESTS_CONTRACT_CASES_H
#define SL_TESTS_CONTRACT_CASES_H

int contract_traffic_cases(void); /* contract_transport.c: messages and control messages */
int contract_life_cases(void);    /* life.c: connecting, losing and destroying endpoints */
int contract_memory_cases(void);  /* memory.c: map, read, sleeping and waking */
int contract_forked_cases(void);  /* forked.c: the peer is another process */

#endif
