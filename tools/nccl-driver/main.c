/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl_driver: does to a network plugin what NCCL's proxy does, and looks whether it behaves. See
 * --help; what it asks of a plugin stands in docs/nccl-driver.md.
 */
#include "tools/nccl-driver/runner.h"

#include <fnmatch.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct run_options options = {.deadline_ns = 10000 * MS, .call_ns = 2000 * MS};
static const char *pattern;
static unsigned versions; /* bits; none: whatever the plugin has */
static bool faults = true, fail_fast;
static int placements = 3;
static unsigned passed, failures, skips;

static const char usage[] =
    "usage: nccl_driver [test] [options] PLUGIN.so    conformance, as TAP\n"
    "       nccl_driver bench [options] PLUGIN.so     throughput and latency between two "
    "processes\n"
    "       nccl_driver socket [options]              the same of one blocking TCP stream, no "
    "plugin\n"
    "       nccl_driver list                          the cases\n"
    "\n"
    "  --api N[,N]      12, 11, 10, 9, 8 or 6; default: all that the plugin has\n"
    "  --place P        threads, processes or both (default): where ranks live\n"
    "  --case GLOB      only these cases; names the ones that are extra, too\n"
    "  --no-faults      no fault beneath the plugin\n"
    "  --fail-fast      end at the first failure\n"
    "  --dev N          which device; default 0\n"
    "  --seed N         order of connects and turns; default 1\n"
    "  --deadline-ms N  for every wait; default 10000\n"
    "  --fault-ms N     for requests to end after a fault; default 10000\n"
    "  --call-ms N      for a call that may not block; default 2000\n"
    "  --env R:NAME=V   in the process of rank R; may be repeated\n"
    "  --until FILE     cases in which somebody else breaks something are told so by FILE\n"
    "  --verbose        the plugin's log on stderr\n"
    "bench, socket:\n"
    "  --min N --max N  message sizes, doubling by 4 (K, M); default 8 to 4M\n"
    "  --flight N       messages in flight, of a stream: in memory; default 8\n"
    "  --conns N        connections that share the messages; default 1\n"
    "  --both           both directions at once\n"
    "  --time-ms N      for each size; default 300\n"
    "  --repeats N      of each, the median is shown; default 5\n"
    "  --json           one JSON object\n";

static uint64_t number(const char *text, const char *name)
{
    char *end;
    uint64_t n = strtoull(text, &end, 10);

    if (*end == 'K' || *end == 'k')
        n <<= 10, end++;
    else if (*end == 'M' || *end == 'm')
        n <<= 20, end++;
    if (end == text || *end != '\0') {
        fprintf(stderr, "nccl_driver: --%s %s is no number\n", name, text);
        exit(2);
    }
    return n;
}

static void set_versions(const char *text)
{
    char *end;

    do {
        unsigned long n = strtoul(text, &end, 10);
        bool known = false;

        for (unsigned v = 0; v < net_version_count; v++)
            known |= (unsigned long)net_versions[v] == n;
        if (!known || (*end != ',' && *end != '\0')) {
            fprintf(stderr, "nccl_driver: --api %s: 12, 11, 10, 9, 8 or 6\n", text);
            exit(2);
        }
        versions |= 1u << n;
        options.version = (int)n;
        text = end + 1;
    } while (*end == ',');
}

static void add_env(const char *text)
{
    if (options.env_count == sizeof(options.env) / sizeof(options.env[0]) || text[0] < '0' ||
        text[0] >= '0' + RANKS_MOST || text[1] != ':' || strchr(text, '=') == NULL) {
        fprintf(stderr, "nccl_driver: --env %s: RANK:NAME=VALUE, 16 at most\n", text);
        exit(2);
    }
    options.env[options.env_count++] = text;
}

static void set_place(const char *text)
{
    placements = strcmp(text, "threads") == 0     ? CASE_THREADS
                 : strcmp(text, "processes") == 0 ? CASE_PROCESSES
                 : strcmp(text, "both") == 0      ? CASE_ANYWHERE
                                                  : 0;
    if (placements == 0) {
        fprintf(stderr, "nccl_driver: --place %s: threads, processes or both\n", text);
        exit(2);
    }
}

/* value and flag options, by place in the table of main(). */
enum option_id {
    OPT_API,
    OPT_PLACE,
    OPT_CASE,
    OPT_NO_FAULTS,
    OPT_FAIL_FAST,
    OPT_DEV,
    OPT_SEED,
    OPT_DEADLINE,
    OPT_FAULT,
    OPT_CALL,
    OPT_VERBOSE,
    OPT_ENV,
    OPT_UNTIL,
    OPT_MIN,
    OPT_MAX,
    OPT_FLIGHT,
    OPT_CONNS,
    OPT_BOTH,
    OPT_TIME,
    OPT_REPEATS,
    OPT_JSON,
    OPT_HELP
};

static const struct option table[] = {[OPT_API] = {"api", 1},
                                      [OPT_PLACE] = {"place", 1},
                                      [OPT_CASE] = {"case", 1},
                                      [OPT_NO_FAULTS] = {"no-faults", 0},
                                      [OPT_FAIL_FAST] = {"fail-fast", 0},
                                      [OPT_DEV] = {"dev", 1},
                                      [OPT_SEED] = {"seed", 1},
                                      [OPT_DEADLINE] = {"deadline-ms", 1},
                                      [OPT_FAULT] = {"fault-ms", 1},
                                      [OPT_CALL] = {"call-ms", 1},
                                      [OPT_VERBOSE] = {"verbose", 0},
                                      [OPT_ENV] = {"env", 1},
                                      [OPT_UNTIL] = {"until", 1},
                                      [OPT_MIN] = {"min", 1},
                                      [OPT_MAX] = {"max", 1},
                                      [OPT_FLIGHT] = {"flight", 1},
                                      [OPT_CONNS] = {"conns", 1},
                                      [OPT_BOTH] = {"both", 0},
                                      [OPT_TIME] = {"time-ms", 1},
                                      [OPT_REPEATS] = {"repeats", 1},
                                      [OPT_JSON] = {"json", 0},
                                      [OPT_HELP] = {"help", 0},
                                      {0}};

static void set_option(enum option_id id)
{
    uint64_t n = 0;

    if (table[id].has_arg && id != OPT_PLACE && id != OPT_CASE && id != OPT_API && id != OPT_ENV &&
        id != OPT_UNTIL)
        n = number(optarg, table[id].name);
    switch (id) {
    case OPT_API: set_versions(optarg); break;
    case OPT_PLACE: set_place(optarg); break;
    case OPT_CASE: pattern = optarg; break;
    case OPT_NO_FAULTS: faults = false; break;
    case OPT_FAIL_FAST: fail_fast = true; break;
    case OPT_DEV: options.dev = (int)n; break;
    case OPT_SEED: options.seed = n; break;
    case OPT_DEADLINE: options.deadline_ns = n * MS; break;
    case OPT_FAULT: case_fault_ns = n * MS; break;
    case OPT_CALL: options.call_ns = n * MS; break;
    case OPT_ENV: add_env(optarg); break;
    case OPT_UNTIL: case_until = optarg; break;
    case OPT_VERBOSE: net_verbose = true; break;
    case OPT_MIN: bench_options.from = n; break;
    case OPT_MAX: bench_options.to = n; break;
    case OPT_FLIGHT: bench_options.in_flight = (unsigned)n; break;
    case OPT_CONNS: bench_options.connections = (unsigned)n; break;
    case OPT_BOTH: bench_options.both = true; break;
    case OPT_TIME: bench_options.time_ns = n * MS; break;
    case OPT_REPEATS: bench_options.repeats = (unsigned)n; break;
    case OPT_JSON: bench_options.json = true; break;
    case OPT_HELP: fputs(usage, stdout); exit(0);
    }
}

static bool wanted(const struct driver_case *c)
{
    if (pattern != NULL)
        return fnmatch(pattern, c->name, 0) == 0;
    if ((c->flags & CASE_EXTRA) != 0)
        return false;
    return faults || (c->flags & CASE_FAULT) == 0;
}

static void run_one(const struct driver_case *c, int version, enum placement placement)
{
    struct run_options o = options;
    char text[600];
    enum run_verdict verdict;
    unsigned number_of = passed + failures + skips + 1;

    o.version = version;
    o.placement = placement;
    verdict = run_case(&o, c, text, sizeof(text));
    printf("%sok %u - v%d_%s_%s%s%s\n", verdict == RUN_FAILED ? "not " : "", number_of, version,
           placement == PLACE_THREADS ? "threads" : "processes", c->name,
           verdict == RUN_SKIPPED ? " # SKIP " : "", verdict == RUN_SKIPPED ? text : "");
    if (verdict == RUN_FAILED)
        printf("# %s\n", text);
    fflush(stdout);
    passed += verdict == RUN_PASSED;
    failures += verdict == RUN_FAILED;
    skips += verdict == RUN_SKIPPED;
}

static void run_list(const struct driver_case *list, unsigned count, int version)
{
    for (unsigned i = 0; i < count; i++)
        for (int place = CASE_THREADS; place <= CASE_PROCESSES; place++) {
            if ((list[i].flags & placements & place) == 0 || !wanted(&list[i]) ||
                (fail_fast && failures > 0))
                continue;
            run_one(&list[i], version, place == CASE_THREADS ? PLACE_THREADS : PLACE_PROCESSES);
        }
}

static int run_all(void)
{
    for (unsigned v = 0; v < net_version_count; v++) {
        bool asked = (versions & (1u << net_versions[v])) != 0;
        char why[300];

        if (versions != 0 && !asked)
            continue;
        /* Any plugin may be older or newer; one that was named must be there. */
        if (run_probe(options.path, net_versions[v], why, sizeof(why)) != RUN_PASSED) {
            printf("%sok %u - v%d_loads%s%s\n", asked ? "not " : "", passed + failures + skips + 1,
                   net_versions[v], asked ? "\n# " : " # SKIP ", why);
            *(asked ? &failures : &skips) += 1;
            continue;
        }
        run_list(cases_basic, cases_basic_count, net_versions[v]);
        run_list(cases_life, cases_life_count, net_versions[v]);
        run_list(cases_fault, cases_fault_count, net_versions[v]);
    }
    printf("1..%u\n", passed + failures + skips);
    if (passed + failures + skips == 0)
        fprintf(stderr, "nccl_driver: no case fits (see: nccl_driver list)\n");
    return failures > 0 || passed == 0;
}

static void list(const struct driver_case *cases, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        printf("%-56s %d rank%s%s%s%s\n", cases[i].name, cases[i].ranks,
               cases[i].ranks > 1 ? "s" : " ", (cases[i].flags & CASE_FAULT) != 0 ? ", fault" : "",
               (cases[i].flags & CASE_NETNS) != 0 ? ", network namespace" : "",
               (cases[i].flags & CASE_EXTRA) != 0 ? ", only by --case" : "");
}

/* The allocator counts as used what a thread has freed and keeps for itself: cases that compare the
 * heap would see whose turn it was. It can be told so only before the program starts. */
static void start_without_thread_caches(char **argv)
{
    if (getenv("GLIBC_TUNABLES") == NULL &&
        setenv("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0", 0) == 0)
        execv("/proc/self/exe", argv);
}

int main(int argc, char **argv)
{
    const char *command = "test";
    char **whole = argv;
    sigset_t chld;
    int id;

    options.seed = 1;
    case_fault_ns = 10000 * MS;
    if (argc > 1 && (strcmp(argv[1], "test") == 0 || strcmp(argv[1], "bench") == 0 ||
                     strcmp(argv[1], "socket") == 0 || strcmp(argv[1], "list") == 0)) {
        command = argv[1];
        argv++;
        argc--;
    }
    if (strcmp(command, "test") == 0)
        start_without_thread_caches(whole);
    while (getopt_long(argc, argv, "", table, &id) == 0)
        set_option((enum option_id)id);
    if (strcmp(command, "list") == 0) {
        list(cases_basic, cases_basic_count);
        list(cases_life, cases_life_count);
        list(cases_fault, cases_fault_count);
        return 0;
    }
    if (optind != argc - (strcmp(command, "socket") != 0)) {
        fputs(usage, stderr);
        return 2;
    }
    options.path = argv[optind];
    sigemptyset(&chld);
    sigaddset(&chld, SIGCHLD);
    sigprocmask(SIG_BLOCK, &chld, NULL);
    if (run_prepare() != 0) {
        fprintf(stderr, "nccl_driver: no shared memory\n");
        return 1;
    }
    if (strcmp(command, "bench") == 0)
        return bench_run(&options);
    if (strcmp(command, "socket") == 0)
        return bench_socket(&options);
    return run_all();
}
