/* SPDX-License-Identifier: Apache-2.0 */
/* sluicectl: what an operator or a planner asks the agent and tells the processes of this host. */
#include "core/err.h"
#include "core/path_watch.h"
#include "lib/api.h"
#include "tools/ctl/case.h"
#include "tools/ctl/command.h"
#include "tools/ctl/diagnose.h"
#include "tools/ctl/matrix.h"
#include "tools/ctl/paths.h"
#include "tools/ctl/simulate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage_paths[] = "usage: sluicectl [--file FILE] paths show [--json]\n"
                                  "       sluicectl [--file FILE] paths set [KEY=...] SETTING...\n"
                                  "       sluicectl [--file FILE] paths clear [KEY=...]\n"
                                  "       sluicectl [--file FILE] paths load < TABLE\n";

static const char usage_end[] =
    "       sluicectl --help | --version\n"
    "\n"
    "Says by which network paths the processes of this host send, while they run.\n"
    "\n"
    "  show    print the path table\n"
    "  set     add a rule, or change the rule of the same keys\n"
    "  clear   take the rule of these keys out; without keys, all rules\n"
    "  load    replace the table by the one on standard input\n"
    "\n"
    "  KEY      job=NAME, rank=N, peer=N, path=N, port=NAME (mlx5_0:1); what is left out stands "
    "for all\n"
    "  SETTING  weight=1..100, avoid, use, label=HEX (0..fffff)\n"
    "\n"
    "FILE is that of SLUICE_PATHS_TABLE, or else /dev/shm/sluice-paths.UID.\n";

static const char usage_diagnose[] =
    "\n"
    "  diagnose    which rank, link or part of the program makes a job hang, by what others\n"
    "              recorded: PyTorch Flight Recorder's dumps, NCCL RAS in JSON; .gz as well\n"
    "  --stall N   what is pending for less is no hang (30)\n"
    "  --at TIME   when the files were written, in seconds since 1970: else all that is\n"
    "              pending counts as too old\n"
    "  --bundle BUNDLE  write the inputs and the result there, for replay and explain\n"
    "  --job NAME       the job's name: part of the ids of verdicts\n"
    "  --false-isolations RATE  of healthy nodes, a node and day, that are acceptable (0.0001):\n"
    "              from it follows the probability from which on a node is to be isolated\n"
    "\n"
    "  diagnose --live  the same of a job that runs, until two looks agree that something is\n"
    "              wrong. SOURCE: host (state pages of this host; the default), agent[:SOCKET],\n"
    "              http://HOST:PORT (an agent), ras[:HOST[:PORT]] (NCCL), @FILE with one a line\n"
    "  --every N   seconds from look to look (1)\n"
    "  --wait N    how long a look waits for sources that do not answer (2)\n"
    "  --for N     ends after so many seconds, whatever it found\n"
    "  --follow    goes on, and says what changes\n"
    "  --job NAME  of several jobs that one\n"
    "              example: sluicectl diagnose --live host http://node2:9494 --stall 20\n"
    "\n"
    "  matrix      what messages from rank to rank took, beside what those of their size take\n"
    "  --path P    of messages on this path alone\n";

static const char usage_agent[] =
    "\n"
    "Asks the node agent of this host, sluiced, what is wrong, and tells it what people know.\n"
    "\n";

static const char usage_options[] =
    "\n"
    "  --socket PATH  the agent's socket (default: " SC_SOCKET "), or http://HOST:PORT\n"
    "  -o json        JSON in place of text\n"
    "  KIND           port, nic, gpu, process, host\n";

static const char usage_status[] =
    "\n"
    "Exit status: 0; 1 when it could not be done; 2 when the "
    "arguments are wrong. Of status, also 3:\n"
    "something is wrong with the host, or (diagnose) the job; of what asks the agent, also "
    "4: it does not answer, or (status)\n"
    "it cannot read a source that it is asked to.\n";

static void print_usage(FILE *out)
{
    fputs(usage_paths, out);
    for (unsigned i = 0; i < sc_agent_command_count; i++)
        fprintf(out, "       sluicectl [--socket PATH] [-o json] %s%s%s\n",
                sc_agent_commands[i].name, sc_agent_commands[i].arguments[0] != '\0' ? " " : "",
                sc_agent_commands[i].arguments);
    fputs(sc_diagnose_usage, out);
    fputs(sc_case_usage, out);
    fputs(sc_simulate_usage, out);
    fputs(sc_matrix_usage, out);
    fputs(usage_end, out);
    if (sc_diagnose_absent == NULL)
        fputs(usage_diagnose, out);
    fputs(sc_case_help, out);
    fputs(sc_simulate_help, out);
    if (sc_agent_command_count > 0) {
        fputs(usage_agent, out);
        for (unsigned i = 0; i < sc_agent_command_count; i++)
            fprintf(out, "  %-10s  %s\n", sc_agent_commands[i].name, sc_agent_commands[i].help);
        fputs(usage_options, out);
    }
    fputs(usage_status, out);
}

static int refuse(void)
{
    print_usage(stderr);
    return SC_ARGUMENTS;
}

/* ---- what commands share ---- */

int sc_complain(void)
{
    fprintf(stderr, "sluicectl: %s\n", sluice_last_error());
    return SC_FAILED;
}

int sc_refuse(const char *command)
{
    for (unsigned i = 0; i < sc_agent_command_count; i++)
        if (strcmp(sc_agent_commands[i].name, command) == 0)
            fprintf(stderr, "usage: sluicectl [--socket PATH] [-o json] %s %s\n", command,
                    sc_agent_commands[i].arguments);
    return SC_ARGUMENTS;
}

const char *sc_option(int count, char **words, int *i, const char *name)
{
    const char *word = words[*i];
    size_t len = strlen(name);

    if (word == NULL || strncmp(word, "--", 2) != 0 || strncmp(word + 2, name, len) != 0)
        return NULL;
    if (word[2 + len] == '=')
        return word + 3 + len;
    if (word[2 + len] != '\0')
        return NULL;
    return *i + 1 < count ? words[++*i] ?: "" : "";
}

bool sc_number(const char *text, unsigned long long most, unsigned long long *out)
{
    char *end;

    if (text[0] < '0' || text[0] > '9' || strlen(text) > 19)
        return false;
    *out = strtoull(text, &end, 10);
    return *end == '\0' && *out <= most;
}

/* ---- paths ---- */

/* given, or what the settings say. */
static bool find_file(const char *given, char *out, size_t cap)
{
    struct sl_config config;

    if (given == NULL && sl_config_merge(NULL, &config) != 0) {
        fprintf(stderr, "sluicectl: %s\n", sluice_last_error());
        return false;
    }
    if (given == NULL)
        sl_path_file_name(config.paths_table, out, cap);
    else if (given[0] != '\0' && strlen(given) < cap)
        snprintf(out, cap, "%s", given);
    else
        out[0] = '\0';
    if (out[0] == '\0')
        fputs(given != NULL ? "sluicectl: that is no name of a file\n"
                            : "sluicectl: SLUICE_PATHS_TABLE is off\n",
              stderr);
    return out[0] != '\0';
}

static int run_paths(const char *given, int count, char **words)
{
    char file[SL_PATH_FILE_MAX];
    const char *verb = count > 0 ? words[0] : "";
    bool json = count == 2 && strcmp(words[1], "--json") == 0;
    bool show = strcmp(verb, "show") == 0 && (count == 1 || json);
    bool set = strcmp(verb, "set") == 0 && count > 1;
    bool clear = strcmp(verb, "clear") == 0;
    bool load = strcmp(verb, "load") == 0 && count == 1;

    if (!show && !set && !clear && !load)
        return refuse();
    if (!find_file(given, file, sizeof(file)))
        return 1;
    if (show)
        return sc_paths_show(file, json);
    if (set)
        return sc_paths_set(file, count - 1, words + 1);
    return clear ? sc_paths_clear(file, count - 1, words + 1) : sc_paths_load(file);
}

/* ---- the agent ---- */

/* Takes the options that all of these commands have out of words, wherever they are. False: one is
 * wrong. */
static bool take_options(int *count, char **words, struct sc_context *out)
{
    int left = 0;

    for (int i = 0; i < *count; i++) {
        const char *socket = sc_option(*count, words, &i, "socket"), *output;

        if (socket != NULL) {
            if (socket[0] == '\0')
                return false;
            out->socket = socket;
            continue;
        }
        output = sc_option(*count, words, &i, "output");
        if (output == NULL && strcmp(words[i], "-o") == 0)
            output = i + 1 < *count ? words[++i] ?: "" : "";
        if (output == NULL)
            words[left++] = words[i];
        else if (strcmp(output, "json") == 0)
            out->json = true;
        else
            return false;
    }
    *count = left;
    return true;
}

static int run_agent(int count, char **words)
{
    struct sc_context context = {.socket = SC_SOCKET};

    if (!take_options(&count, words, &context) || count == 0)
        return refuse();
    for (unsigned i = 0; i < sc_agent_command_count; i++)
        if (strcmp(words[0], sc_agent_commands[i].name) == 0)
            return sc_agent_commands[i].run(&context, count - 1, words + 1);
    if (sc_agent_absent != NULL) {
        fprintf(stderr, "sluicectl: there is no command '%s'; %s\n", words[0], sc_agent_absent);
        return SC_ARGUMENTS;
    }
    return refuse();
}

int main(int argc, char **argv)
{
    const char *file = NULL;
    int at = 1, status;

    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        print_usage(stdout);
        return 0;
    }
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        printf("sluicectl %s\n", sluice_version_string());
        return 0;
    }
    if (argc > 3 && strcmp(argv[1], "--file") == 0) {
        file = argv[2];
        at = 3;
    }
    if (argc <= at)
        return refuse();
    if (file == NULL && strcmp(argv[at], "diagnose") == 0)
        return sc_diagnose(argc - at - 1, argv + at + 1);
    if (file == NULL && strcmp(argv[at], "simulate") == 0)
        return sc_simulate(argc - at - 1, argv + at + 1);
    if (file == NULL && sc_case(argc - 1, argv + 1, &status))
        return status;
    if (file == NULL && strcmp(argv[at], "matrix") == 0)
        return sc_matrix(argc - at - 1, argv + at + 1);
    if (strcmp(argv[at], "paths") != 0)
        return file == NULL ? run_agent(argc - 1, argv + 1) : refuse();
    return run_paths(file, argc - at - 1, argv + at + 1);
}
