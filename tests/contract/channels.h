/* SPDX-License-Identifier: Apache-2.0 */
/* What the cases of channels share; channels.c. */
#ifndef SL_TESTS_CONTRACT_CHANNELS_H
#define SL_TESTS_CONTRACT_CHANNELS_H

#include "tests/contract/pair.h"

void channel_open(struct pair *p, unsigned side, uint32_t channel);
void channel_open_both(struct pair *p, uint32_t channel);

/* A message each way on an open channel where nothing is under way. */
void channel_check_traffic(struct pair *p, uint32_t channel, size_t len, uint64_t tag);

/* A receive of channel 0 for a message of len bytes: with consume, with room for more, registered
 * or plain, by way. */
struct msg *channel_recv(struct side *side, size_t len, uint64_t tag, unsigned way);

#endif
