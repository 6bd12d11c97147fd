/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fault runs: ranks over a real transport, one fault at a random moment, drawn from a seed. Every
 * rank that is left must end in time with the right code, rank and step, results that were given
 * must be exact, and nothing may be left behind.
 *
 * usage: fault_ranks [--transport shm|epoll|uring|dpdk] [--runs N] [--seed S] [--kind NAME]
 *                    [--verbose]
 */
#include "tests/fault/fault.h"

#include "core/rng.h"

#include <sluice/sluice.h>

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WAIT_MS 30000 /* for a run as a whole */

static const char *const kind_name[FAULT_KINDS] = {
    [FAULT_KILL] = "kill",       [FAULT_STOP] = "stop",       [FAULT_RESET] = "reset",
    [FAULT_HALF] = "half-open",  [FAULT_ABORT] = "abort",     [FAULT_DESTROY] = "destroy",
    [FAULT_GARBAGE] = "garbage", [FAULT_SLOW] = "slow-loris", [FAULT_LINK] = "link",
    [FAULT_GONE] = "port-gone",
};

static const char *const kind_promise[FAULT_KINDS] = {
    [FAULT_KILL] = "after a rank was killed, all others end and name it",
    [FAULT_STOP] =
        ("after a rank was stopped beyond the timeout, all others time out and name it; it "
         "ends when it goes on"), /* the parentheses tell clang that no comma is missing */
    [FAULT_RESET] = "after a connection was reset, all ranks end with an error",
    [FAULT_HALF] = "after what a rank sends is lost on the way, all others end and name it",
    [FAULT_ABORT] = "after an abort from another thread, all ranks end as canceled",
    [FAULT_DESTROY] = "after a rank destroyed its communicator, all others end and name it",
    [FAULT_GARBAGE] = "garbage at the meeting place disturbs neither start nor collectives",
    [FAULT_SLOW] = "slow connections at the meeting place disturb neither start nor collectives",
    [FAULT_LINK] = "after a port lost its link, which came back, collectives go on",
    [FAULT_GONE] = "after a port was lost, collectives go on by the other, or all end and name it",
};

struct options {
    const struct fault_transport *transport;
    uint64_t seed;
    int runs, only; /* -1: all kinds */
    bool verbose;
};

struct tally {
    int runs, failed;
    const char *skip;
    uint64_t *ns; /* from the fault to the last rank's end, one each run */
};

static void draw(struct fault_run *run, const struct options *options, uint64_t seed)
{
    const unsigned *weight = options->transport->weight;
    unsigned sum = 0, at;
    struct sl_rng rng;

    sl_rng_init(&rng, seed);
    memset(run, 0, sizeof(*run));
    run->seed = seed;
    run->transport = options->transport;
    for (int k = 0; k < FAULT_KINDS; k++)
        sum += weight[k];
    at = (unsigned)sl_rng_below(&rng, sum);
    for (int k = 0; at >= weight[k]; k++) {
        at -= weight[k];
        run->kind = (enum fault_kind)(k + 1);
    }
    if (options->only >= 0)
        run->kind = (enum fault_kind)options->only;
    run->ranks = (int)sl_rng_range(&rng, 2, RANKS_MAX);
    run->victim = (int)sl_rng_below(&rng, (uint64_t)run->ranks);
    run->moment_us = (uint32_t)sl_rng_below(&rng, 40000);
    if (fault_has_ports(run))
        run->rails = (int)sl_rng_range(&rng, 1, 2);
    if (fault_has_strangers(run))
        atomic_store(&run->last_round, UNHARMED_ROUNDS);
}

/* A port that nobody listens at and that the kernel gives to no outgoing connection. */
static int free_port(uint64_t seed)
{
    for (int tries = 0; tries < 1000; tries++) {
        int port = 15000 + (int)((seed * 7919 + (uint64_t)getpid() * 31 + (uint64_t)tries) % 15000);
        struct sockaddr_in at = {.sin_family = AF_INET,
                                 .sin_port = htons((uint16_t)port),
                                 .sin_addr.s_addr = htonl(INADDR_ANY)};
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        int err = bind(fd, (struct sockaddr *)&at, sizeof(at));

        close(fd);
        if (err == 0)
            return port;
    }
    return -1;
}

/* ---- a run ---- */

static void nap(uint32_t us)
{
    struct timespec pause = {.tv_sec = us / 1000000, .tv_nsec = (long)(us % 1000000) * 1000};

    nanosleep(&pause, NULL);
}

static pid_t start_process(struct fault_run *run, int rank)
{
    pid_t parent = getpid(), pid = fork();

    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    if (rank < 0)
        stranger_main(run);
    rank_main(run, rank);
}

/* Waits until done() of every rank (or of all but one), or the deadline. */
static bool wait_ranks(struct fault_run *run, bool (*done)(const struct rank_report *), int but,
                       uint64_t deadline)
{
    for (int i = 0; i < run->ranks; i++)
        while (i != but && !done(&run->report[i])) {
            if (now_ns() > deadline)
                return false;
            nap(200);
        }
    return true;
}

static bool is_running(const struct rank_report *report)
{
    return atomic_load(&report->running) != 0 || atomic_load(&report->ended_ns) != 0;
}

static bool has_ended(const struct rank_report *report)
{
    return atomic_load(&report->ended_ns) != 0;
}

static void fire(struct fault_run *run, const pid_t *pid, uint64_t deadline)
{
    nap(run->moment_us);
    atomic_store(&run->fired_ns, now_ns());
    if (run->kind == FAULT_KILL) {
        kill(pid[run->victim], SIGKILL);
    } else if (run->kind == FAULT_HALF) {
        if (cut_now() != 0)
            snprintf(run->report[run->victim].complaint, 64,
                     "the rule to drop packets was refused");
        atomic_store(&run->fired_ns, now_ns());
    } else if (run->kind == FAULT_GONE) {
        fault_folder_hide(run);
        atomic_store(&run->fire, 1);
    } else if (run->kind == FAULT_STOP) {
        kill(pid[run->victim], SIGSTOP);
        wait_ranks(run, has_ended, run->victim, deadline);
        kill(pid[run->victim], SIGCONT);
    } else {
        atomic_store(&run->fire, 1);
    }
}

/* Waits until the process has ended by itself, or ends it after the deadline. NULL, or what went
 * wrong. */
static const char *reap(pid_t pid, uint64_t deadline)
{
    int status = 0;

    if (pid <= 0)
        return NULL;
    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (now_ns() > deadline) {
            kill(pid, SIGKILL);
            waitpid(pid, NULL, 0);
            return "did not end by itself";
        }
        nap(300);
    }
    return WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : NULL;
}

static bool reap_ranks(const struct fault_run *run, const pid_t *pid, uint64_t deadline, char *why,
                       size_t cap)
{
    for (int i = 0; i < run->ranks; i++) {
        const char *end = reap(pid[i], deadline);

        if (end != NULL && (run->kind != FAULT_KILL || i != run->victim) && why[0] == '\0')
            snprintf(why, cap, "rank %d: %s", i, end);
    }
    return why[0] == '\0';
}

/* In a process of its own, for the network namespace. Exit status: 0, 1 trouble, 77 skipped. */
static int run_processes(struct fault_run *run, char *why, size_t cap)
{
    uint64_t deadline = now_ns() + WAIT_MS * NS_PER_MS;
    pid_t pid[RANKS_MAX + 1] = {0};
    bool good = true;

    why[0] = '\0';
    run->port = free_port(run->seed);
    if (fault_has_strangers(run))
        pid[run->ranks] = start_process(run, -1);
    for (int i = 0; i < run->ranks; i++)
        pid[i] = start_process(run, i);
    if (!wait_ranks(run, is_running, -1, deadline)) {
        snprintf(why, cap, "not every rank came to its first collective");
        good = false;
        deadline = 0;
    } else if (!fault_has_strangers(run)) {
        fire(run, pid, deadline);
    } else {
        wait_ranks(run, has_ended, -1, deadline);
    }
    good &= reap_ranks(run, pid, deadline, why, cap);
    atomic_store(&run->fire, 1);
    (void)reap(pid[run->ranks], deadline);
    return good ? 0 : 1;
}

/* What the process of the run and this one share. */
struct shared {
    struct fault_run run;
    char why[1024];
};

static void one_run(struct shared *shared, const struct options *options, struct tally *tally)
{
    struct fault_run *run = &shared->run;
    struct tally *mine = &tally[run->kind];
    uint64_t worst = 0;
    int status = 0;

    if (run->transport->weight[run->kind] == 0) {
        mine->skip = "this transport has no such fault";
        return;
    }
    pid_t pid = fork();

    if (pid == 0) {
        const char *missing = run->kind == FAULT_HALF ? cut_prepare() : fault_folder_make(run);

        if (missing != NULL)
            snprintf(shared->why, sizeof(shared->why), "%s", missing);
        _exit(missing != NULL ? 77 : run_processes(run, shared->why, sizeof(shared->why)));
    }
    waitpid(pid, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        mine->skip = strdup(shared->why);
        return;
    }
    bool good = WIFEXITED(status) && WEXITSTATUS(status) == 0;

    if (!fault_folder_remove(run, shared->why, sizeof(shared->why)))
        good = false;
    if (good)
        good = fault_judge(run, shared->why, sizeof(shared->why), &worst);
    if (good)
        mine->ns[mine->runs] = worst;
    mine->runs++;
    if (options->verbose || !good)
        printf("# seed %llu: %s of rank %d of %d over %s after %u us: %.2f ms%s%s\n",
               (unsigned long long)run->seed, kind_name[run->kind], run->victim, run->ranks,
               run->transport->name, run->moment_us, (double)worst / 1e6, good ? "" : ": ",
               good ? "" : shared->why);
    if (options->verbose)
        for (int i = 0; i < run->ranks; i++)
            printf("#   rank %d, %u rounds, %d: %s\n", i, run->report[i].rounds,
                   run->report[i].code, run->report[i].text);
    if (good)
        return;
    mine->failed++;
    printf("# again: build/tests/fault/fault_ranks --transport %s --runs 1 --seed %llu%s%s\n",
           run->transport->name, (unsigned long long)run->seed,
           options->only >= 0 ? " --kind " : "",
           options->only >= 0 ? kind_name[options->only] : "");
}

/* ---- the program ---- */

static int compare_ns(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

/* What the figures are. */
static const char *time_of(int kind)
{
    switch (kind) {
    case FAULT_LINK: return "longest round after the fault";
    case FAULT_GONE: return "last rank's end after the fault, or longest round";
    default: return "last rank's end after the fault";
    }
}

static int print_tally(struct tally *tally, const struct options *options)
{
    int number = 0, failed = 0;

    for (int k = 0; k < FAULT_KINDS; k++) {
        struct tally *t = &tally[k];
        int good = t->runs - t->failed;

        if (t->runs == 0 && t->skip != NULL)
            printf("ok %d - %s # SKIP %s\n", ++number, kind_promise[k], t->skip);
        if (t->runs == 0)
            continue;
        printf("%sok %d - %s (%d of %d runs over %s)\n", t->failed != 0 ? "not " : "", ++number,
               kind_promise[k], good, t->runs, options->transport->name);
        failed += t->failed;
        qsort(t->ns, (size_t)t->runs, sizeof(*t->ns), compare_ns);
        uint64_t *ns = t->ns + t->failed; /* failed ones are 0 */

        if (good != 0 && k != FAULT_GARBAGE && k != FAULT_SLOW)
            printf("# %s: %s: median %.2f ms, p99 %.2f ms, max %.2f ms\n", kind_name[k], time_of(k),
                   (double)ns[good / 2] / 1e6, (double)ns[(good * 99) / 100] / 1e6,
                   (double)ns[good - 1] / 1e6);
    }
    printf("1..%d\n", number);
    return failed;
}

static int find_kind(const char *name)
{
    for (int k = 0; k < FAULT_KINDS; k++)
        if (strcmp(kind_name[k], name) == 0)
            return k;
    fprintf(stderr, "there is no fault '%s'\n", name);
    exit(2);
}

static void parse(int argc, char **argv, struct options *options)
{
    static const struct option longs[] = {
        {"transport", required_argument, NULL, 't'}, {"runs", required_argument, NULL, 'r'},
        {"seed", required_argument, NULL, 's'},      {"kind", required_argument, NULL, 'k'},
        {"verbose", no_argument, NULL, 'v'},         {NULL, 0, NULL, 0}};

    for (int c; (c = getopt_long(argc, argv, "t:r:s:k:v", longs, NULL)) != -1;) {
        switch (c) {
        case 't': options->transport = fault_transport(optarg); break;
        case 'r': options->runs = atoi(optarg); break;
        case 's': options->seed = strtoull(optarg, NULL, 0); break;
        case 'k': options->only = find_kind(optarg); break;
        case 'v': options->verbose = true; break;
        default: exit(2);
        }
    }
}

int main(int argc, char **argv)
{
    struct options options = {
        .transport = fault_transport("shm"), .seed = 1, .runs = 20, .only = -1};
    struct tally tally[FAULT_KINDS] = {0};
    const char *missing;
    struct shared *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGPIPE, SIG_IGN);
    parse(argc, argv, &options);
    if (options.transport->missing != NULL && (missing = options.transport->missing()) != NULL) {
        printf("1..0 # SKIP %s\n", missing);
        return 0;
    }
    for (int k = 0; k < FAULT_KINDS; k++)
        tally[k].ns = calloc((size_t)options.runs + 1, sizeof(uint64_t));
    for (int i = 0; i < options.runs && shared != MAP_FAILED; i++) {
        memset(shared, 0, sizeof(*shared));
        draw(&shared->run, &options, options.seed + (uint64_t)i);
        one_run(shared, &options, tally);
    }
    int failed = print_tally(tally, &options);

    for (int k = 0; k < FAULT_KINDS; k++)
        free(tally[k].ns);
    return failed != 0;
}
