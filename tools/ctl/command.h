/* SPDX-License-Identifier: Apache-2.0 */
/* sluicectl's subcommands that ask the node agent, or look at the host for it. */
#ifndef SLUICE_CTL_COMMAND_H
#define SLUICE_CTL_COMMAND_H

#include <stdbool.h>
#include <stddef.h>

#define SC_SOCKET "/run/sluiced/api.sock"

/* Exit statuses. */
enum {
    SC_GOOD = 0,
    SC_FAILED = 1,     /* it could not be done */
    SC_ARGUMENTS = 2,  /* the arguments are wrong */
    SC_UNHEALTHY = 3,  /* something is wrong with the host */
    SC_UNREACHABLE = 4 /* the agent does not answer, or does not read what it is asked to */
};

struct sc_context {
    const char *socket; /* a path, or "http://HOST:PORT" */
    bool json;
};

struct sc_command {
    const char *name, *arguments, *help;
    /* words: what is after its name. The exit status. */
    int (*run)(const struct sc_context *context, int count, char **words);
};

extern const struct sc_command sc_agent_commands[];
extern const unsigned sc_agent_command_count;
/* NULL: they are built. */
extern const char *const sc_agent_absent;

/* Says that the arguments of a command are wrong: SC_ARGUMENTS. */
int sc_refuse(const char *command);
/* Says the thread's last error: SC_FAILED. */
int sc_complain(void);
/* word is "--NAME" and has a value after it, or is "--NAME=VALUE": the value, and *i goes on. NULL:
 * it is not that option. "": its value is missing. */
const char *sc_option(int count, char **words, int *i, const char *name);
/* Digits alone. */
bool sc_number(const char *text, unsigned long long most, unsigned long long *out);

#endif
