/* SPDX-License-Identifier: Apache-2.0 */
/* The groups of cases of the contract test; each returns how many failed. */
#ifndef SL_TESTS_CONTRACT_CASES_H
#define SL_TESTS_CONTRACT_CASES_H

#include <stddef.h>
#include <stdint.h>

/* Beside SL_CAP_*: the case needs faulty_break(). */
#define CONTRACT_FAULTY (UINT32_C(1) << 31)

/* A case and the capabilities (SL_CAP_*) without which it says nothing about a transport. Include
 * <cmocka.h> first. */
struct contract_case {
    uint32_t caps;
    struct CMUnitTest test;
};

/* Runs those cases that the transport under test has the capabilities for. */
int contract_run(const struct contract_case *cases, size_t count);

int contract_traffic_cases(void);         /* contract_transport.c: messages and control messages */
int contract_room_cases(void);            /* room.c: receives that take shorter messages */
int contract_life_cases(void);            /* life.c: connecting, losing and destroying endpoints */
int contract_memory_cases(void);          /* memory.c: map, read, sleeping and waking */
int contract_forked_cases(void);          /* forked.c: the peer is another process */
int contract_channels_cases(void);        /* channels.c: channels do not wait for each other */
int contract_channels_bytes_cases(void);  /* channels_bytes.c: bytes moved on each channel */
int contract_channels_close_cases(void);  /* channels_close.c: channels, endpoints, peers end */
int contract_channels_random_cases(void); /* channels_random.c: drawn from seeds */

#endif
