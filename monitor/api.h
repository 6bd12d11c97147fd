/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's API: what it answers (monitor/api_answer.h), over a unix socket and, if asked for,
 * over HTTP at an address, which may only read.
 *
 * No thread: the owner waits for sl_api_fd() to be readable, beside the agent's. Whoever asks or
 * reads slowly is closed after a while and holds nobody up; each of the two has so many clients at
 * once, and the next ones wait.
 */
#ifndef SL_MONITOR_API_H
#define SL_MONITOR_API_H

#include "monitor/agent.h"

#define SL_API_CLIENTS 64  /* at once, of either socket */
#define SL_API_WAITERS 32  /* of those, who wait for events; others are answered at once */
#define SL_API_DEADLINE 20 /* seconds for a request to come, and to be read by whoever asked */

struct sl_api;

/* A socket that cannot be had is said, as a sentence, and tried again every 10 s. -ENOMEM. */
int sl_api_create(struct sl_agent *agent, void (*say)(const char *sentence), struct sl_api **out);
void sl_api_destroy(struct sl_api *api);
/* The agent began anew, perhaps with other sockets; those who wait go on to wait. NULL: it could
 * not, and what is left is sl_api_destroy(). */
void sl_api_set_agent(struct sl_api *api, struct sl_agent *agent);

int sl_api_fd(const struct sl_api *api);
/* Answers who asks. True: there is more to do at once. */
bool sl_api_turn(struct sl_api *api);
/* Once a period, after the agent's. */
void sl_api_tick(struct sl_api *api);

#endif
