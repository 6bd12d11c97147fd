/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fault runs: ranks over a real transport, one fault at a random moment, drawn from a seed. Every
 * rank that is left must end in time with the right code, rank and step, results that were given
 * must be exact, and nothing may be left behind.
 *
 * usage: fault_ranks [--transport shm|epoll|uring] [--runs N] [--seed S] [--kind NAME] [--verbose]
 */
#include "tests/fault/fault.h"

#include "core/rng.h"
#include "tcp/engine.h"

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

#define NS_PER_MS UINT64_C(1000000)
#define WAIT_MS 30000 /* for a run as a whole */

static const char *const kind_name[FAULT_KINDS] = {
    [FAULT_KILL] = "kill",       [FAULT_STOP] = "stop",       [FAULT_RESET] = "reset",
    [FAULT_HALF] = "half-open",  [FAULT_ABORT] = "abort",     [FAULT_DESTROY] = "destroy",
    [FAULT_GARBAGE] = "garbage", [FAULT_SLOW] = "slow-loris",
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
};

/* How often each is drawn. */
static const unsigned kind_weight[FAULT_KINDS] = {6, 2, 4, 2, 2, 2, 1, 1};

struct options {
    const char *transport;
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
    unsigned sum = 0, at;
    struct sl_rng rng;

    sl_rng_init(&rng, seed);
    memset(run, 0, sizeof(*run));
    run->seed = seed;
    run->transport = options->transport;
    for (int k = 0; k < FAULT_KINDS; k++)
        sum += kind_weight[k];
    at = (unsigned)sl_rng_below(&rng, sum);
    for (int k = 0; at >= kind_weight[k]; k++) {
        at -= kind_weight[k];
        run->kind = (enum fault_kind)(k + 1);
    }
    if (run->kind == FAULT_HALF && strcmp(run->transport, "shm") == 0)
        run->kind = FAULT_KILL; /* shared memory loses no packets */
    if (options->only >= 0)
        run->kind = (enum fault_kind)options->only;
    run->ranks = (int)sl_rng_range(&rng, 2, RANKS_MAX);
    run->victim = (int)sl_rng_below(&rng, (uint64_t)run->ranks);
    run->moment_us = (uint32_t)sl_rng_below(&rng, 40000);
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
    } else if (run->kind == FAULT_STOP) {
        kill(pid[run->victim], SIGSTOP);
        wait_ranks(run, has_ended, run->victim, deadline);
        kill(pid[run->victim], SIGCONT);
    } else {
        atomic_store(&run->fire, 1);
    }
}

/* Every process has ended by itself, or is ended after the deadline. Returns what went wrong. */
static bool reap(pid_t *pid, int count, uint64_t deadline)
{
    bool all = true;

    for (int i = 0; i < count; i++) {
        while (pid[i] > 0 && waitpid(pid[i], NULL, WNOHANG) == 0) {
            if (now_ns() > deadline) {
                kill(pid[i], SIGKILL);
                waitpid(pid[i], NULL, 0);
                all = false;
                break;
            }
            nap(300);
        }
        pid[i] = 0;
    }
    return all;
}

static bool has_strangers(const struct fault_run *run)
{
    return run->kind == FAULT_GARBAGE || run->kind == FAULT_SLOW;
}

/* In a process of its own, for the network namespace. Exit status: 0, 1 trouble, 77 skipped. */
static int run_processes(struct fault_run *run, char *why, size_t cap)
{
    uint64_t deadline = now_ns() + WAIT_MS * NS_PER_MS;
    pid_t pid[RANKS_MAX + 1] = {0};
    bool good = true;

    why[0] = '\0';
    run->port = free_port(run->seed);
    if (has_strangers(run))
        pid[run->ranks] = start_process(run, -1);
    for (int i = 0; i < run->ranks; i++)
        pid[i] = start_process(run, i);
    if (!wait_ranks(run, is_running, -1, deadline)) {
        snprintf(why, cap, "not every rank came to its first collective");
        good = false;
        deadline = 0;
    } else if (!has_strangers(run)) {
        fire(run, pid, deadline);
    } else {
        wait_ranks(run, has_ended, -1, deadline);
    }
    if (!reap(pid, run->ranks, deadline) && good) {
        snprintf(why, cap, "a rank did not end by itself");
        good = false;
    }
    atomic_store(&run->fire, 1);
    reap(&pid[run->ranks], 1, deadline);
    return good ? 0 : 1;
}

/* ---- the verdict ---- */

static bool names(const char *text, int rank)
{
    char name[16];
    const char *at = text;

    snprintf(name, sizeof(name), "rank %d", rank);
    while ((at = strstr(at, name)) != NULL) {
        at += strlen(name);
        if (*at < '0' || *at > '9')
            return true;
    }
    return false;
}

static bool right_code(const struct fault_run *run, int code)
{
    switch (run->kind) {
    case FAULT_KILL:
    case FAULT_RESET: return code == -ECONNRESET;
    case FAULT_STOP: return code == -ETIMEDOUT;
    case FAULT_HALF: return code == -ETIMEDOUT || code == -ECONNRESET;
    case FAULT_ABORT: return code == -ECANCELED;
    case FAULT_DESTROY: return code == -ECANCELED || code == -ECONNRESET;
    default: return code == 0;
    }
}

static bool judge_error(const struct fault_run *run, int rank, char *why, size_t cap)
{
    const struct rank_report *report = &run->report[rank];
    const char *here = strstr(report->text, "; here: ");
    char head[640];

    snprintf(head, sizeof(head), "%.*s",
             here != NULL ? (int)(here - report->text) : (int)sizeof(head) - 1, report->text);
    if (!right_code(run, report->code))
        snprintf(why, cap, "rank %d ended with %d: %s", rank, report->code, report->text);
    else if (run->kind == FAULT_RESET ? strstr(head, "rank ") == NULL : !names(head, run->victim))
        snprintf(why, cap, "rank %d does not name rank %d: %s", rank, run->victim, report->text);
    else if (here != NULL && strstr(here, " at step ") == NULL)
        snprintf(why, cap, "rank %d does not name the step: %s", rank, report->text);
    return why[0] == '\0';
}

static bool judge(const struct fault_run *run, char *why, size_t cap, uint64_t *worst_ns)
{
    uint64_t fired = atomic_load(&run->fired_ns), allowed = SLACK_MS * NS_PER_MS;

    if (run->kind == FAULT_STOP || run->kind == FAULT_HALF)
        allowed += TIMEOUT_MS * NS_PER_MS;
    *worst_ns = 0;
    for (int i = 0; i < run->ranks; i++) {
        const struct rank_report *report = &run->report[i];
        uint64_t ended = atomic_load(&report->ended_ns);
        bool is_victim = i == run->victim && !has_strangers(run);

        if (is_victim && run->kind == FAULT_KILL)
            continue;
        if (report->complaint[0] != '\0') {
            snprintf(why, cap, "rank %d: %s: %.300s", i, report->complaint, report->text);
            return false;
        }
        if (ended == 0) {
            snprintf(why, cap, "rank %d did not end", i);
            return false;
        }
        if (has_strangers(run)) {
            if (report->code == 0)
                continue;
            snprintf(why, cap, "rank %d ended with %d: %s", i, report->code, report->text);
            return false;
        }
        /* One that was stopped, cut off or left learns in its own way. */
        if (is_victim && run->kind != FAULT_ABORT && run->kind != FAULT_RESET) {
            if (report->code != 0 || run->kind == FAULT_DESTROY)
                continue;
            snprintf(why, cap, "rank %d, the victim, ended without an error", i);
            return false;
        }
        if (!judge_error(run, i, why, cap))
            return false;
        uint64_t took = ended > fired ? ended - fired : 0;

        *worst_ns = took > *worst_ns ? took : *worst_ns;
        if (took > allowed) {
            snprintf(why, cap, "rank %d ended %llu ms after the fault, but %llu ms are allowed: %s",
                     i, (unsigned long long)(took / NS_PER_MS),
                     (unsigned long long)(allowed / NS_PER_MS), report->text);
            return false;
        }
    }
    return true;
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

    if (run->kind == FAULT_HALF && strcmp(run->transport, "shm") == 0) {
        mine->skip = "shared memory loses no packets";
        return;
    }
    pid_t pid = fork();

    if (pid == 0) {
        const char *missing = run->kind == FAULT_HALF ? cut_prepare() : NULL;

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

    if (good)
        good = judge(run, shared->why, sizeof(shared->why), &worst);
    if (good)
        mine->ns[mine->runs] = worst;
    mine->runs++;
    if (options->verbose || !good)
        printf("# seed %llu: %s of rank %d of %d over %s after %u us: %.2f ms%s%s\n",
               (unsigned long long)run->seed, kind_name[run->kind], run->victim, run->ranks,
               run->transport, run->moment_us, (double)worst / 1e6, good ? "" : ": ",
               good ? "" : shared->why);
    if (options->verbose)
        for (int i = 0; i < run->ranks; i++)
            printf("#   rank %d, %u rounds, %d: %s\n", i, run->report[i].rounds,
                   run->report[i].code, run->report[i].text);
    if (good)
        return;
    mine->failed++;
    printf("# again: build/tests/fault/fault_ranks --transport %s --runs 1 --seed %llu%s%s\n",
           run->transport, (unsigned long long)run->seed, options->only >= 0 ? " --kind " : "",
           options->only >= 0 ? kind_name[options->only] : "");
}

/* ---- the program ---- */

static int compare_ns(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
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
               kind_promise[k], good, t->runs, options->transport);
        failed += t->failed;
        qsort(t->ns, (size_t)t->runs, sizeof(*t->ns), compare_ns);
        uint64_t *ns = t->ns + t->failed; /* failed ones are 0 */

        if (good != 0 && k != FAULT_GARBAGE && k != FAULT_SLOW)
            printf(
                "# %s: last rank's end after the fault: median %.2f ms, p99 %.2f ms, max %.2f ms\n",
                kind_name[k], (double)ns[good / 2] / 1e6, (double)ns[(good * 99) / 100] / 1e6,
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
        case 't': options->transport = optarg; break;
        case 'r': options->runs = atoi(optarg); break;
        case 's': options->seed = strtoull(optarg, NULL, 0); break;
        case 'k': options->only = find_kind(optarg); break;
        case 'v': options->verbose = true; break;
        default: exit(2);
        }
    }
}

/* Exits when the engine cannot be had here. */
static void need_engine(enum sl_tcp_engine_kind kind)
{
    const struct sl_tcp_engine_ops *ops;
    void *engine;

    if (sl_tcp_engine_open(kind, &ops, &engine) == 0) {
        ops->close(engine);
        return;
    }
    printf("1..0 # SKIP %s\n", sluice_last_error());
    exit(0);
}

int main(int argc, char **argv)
{
    struct options options = {.transport = "shm", .seed = 1, .runs = 20, .only = -1};
    struct tally tally[FAULT_KINDS] = {0};
    struct shared *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGPIPE, SIG_IGN);
    parse(argc, argv, &options);
    if (strcmp(options.transport, "shm") != 0)
        need_engine(strcmp(options.transport, "uring") == 0 ? SL_TCP_ENGINE_URING
                                                            : SL_TCP_ENGINE_EPOLL);
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
