/* SPDX-License-Identifier: Apache-2.0 */
/* A build without what asks agents. */
#include "tools/ctl/live.h"

sc_fetch *const sc_agent_fetch = NULL;
