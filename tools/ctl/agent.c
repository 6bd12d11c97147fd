/* SPDX-License-Identifier: Apache-2.0 */
/* The table of subcommands about the node agent. */
#include "tools/ctl/agent.h"

#include "core/err.h"

const struct sc_command sc_agent_commands[] = {
    {"status", "", "health of the host, sources, and what is not ok", sc_status},
    {"ports", "", "network and RDMA ports", sc_ports},
    {"ranks", "", "ranks of jobs on this host", sc_ranks},
    {"top", "[--count N]", "the same, live; q ends it", sc_top},
    {"events", "[--since ID] [--follow]", "what changed", sc_events},
    {"verdicts", "[--all]", "what is wrong, and what was", sc_verdicts},
    {"ack", "ID [--by NAME]", "somebody has seen that verdict", sc_ack},
    {"clear", "KIND SUBJECT", "it is repaired: what was wrong with it ends", sc_clear},
    {"probe",
     "--to HOST [--from HOST] [--rail NAME] [--rdma [--to-rail NAME] [--traffic-class N]] "
     "[--address ADDRESS] [--count N] [--gap-us N] [--bytes N] | --plan FILE",
     "packets from one agent to another and back: loss and delay", sc_probe},
    {"doctor", "[--root DIR]", "what works on this host, and what to install or allow", sc_doctor},
    {"replay", "BUNDLE", "what the agent recorded, through its rules once more", sc_replay},
};

const unsigned sc_agent_command_count = SL_ARRAY_LEN(sc_agent_commands);
const char *const sc_agent_absent;
