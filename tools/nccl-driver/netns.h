/* SPDX-License-Identifier: Apache-2.0 */
/* A network namespace whose only link can be cut. */
#pragma once

#include <stdbool.h>

/* Moves this process, and what it forks, into a new one with its loopback up. NULL, or why not. */
const char *netns_enter(void);
int netns_loopback(bool up);
