/* SPDX-License-Identifier: Apache-2.0 */
/* sluicectl: what an operator or a planner tells the processes of this host. */
#include "core/err.h"
#include "core/path_watch.h"
#include "lib/api.h"
#include "tools/ctl/paths.h"

#include <stdio.h>
#include <string.h>

static const char usage[] =
    "usage: sluicectl [--file FILE] paths show [--json]\n"
    "       sluicectl [--file FILE] paths set [KEY=...] SETTING...\n"
    "       sluicectl [--file FILE] paths clear [KEY=...]\n"
    "       sluicectl [--file FILE] paths load < TABLE\n"
    "       sluicectl --help | --version\n"
    "\n"
    "Says by which network paths the processes of this host send, while they run.\n"
    "\n"
    "  show    print the path table\n"
    "  set     add a rule, or change the rule of the same keys\n"
    "  clear   take the rule of these keys out; without keys, all rules\n"
    "  load    replace the table by the one on standard input\n"
    "\n"
    "  KEY      job=NAME, rank=N, peer=N, path=N; what is left out stands for all\n"
    "  SETTING  weight=1..100, avoid, use, label=HEX (0..fffff)\n"
    "\n"
    "FILE is that of SLUICE_PATHS_TABLE, or else /dev/shm/sluice-paths.UID.\n"
    "Exit status: 0; 1 when it could not be done; 2 when the arguments are wrong.\n";

static int refuse(void)
{
    fputs(usage, stderr);
    return 2;
}

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

int main(int argc, char **argv)
{
    const char *file = NULL;
    int at = 1;

    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        fputs(usage, stdout);
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
    if (argc <= at || strcmp(argv[at], "paths") != 0)
        return refuse();
    return run_paths(file, argc - at - 1, argv + at + 1);
}
