/* SPDX-License-Identifier: Apache-2.0 */
/* A build without the node agent has no subcommands about it. */
#include "tools/ctl/command.h"

const struct sc_command sc_agent_commands[1];
const unsigned sc_agent_command_count = 0;
const char *const sc_agent_absent =
    "this sluicectl was built without the node agent (needs json-c and the headers of libcurl, and "
    "what meson lists under \"Not built\")";
