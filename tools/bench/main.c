/* SPDX-License-Identifier: Apache-2.0 */
/* sluice-bench: starts or joins the ranks, runs what the command line asks for, writes the reports.
 */
#include "collectives/connect.h"
#include "kernels/reduce.h"
#include "collectives/select.h"
#include "colls.h"
#include "core/clock.h"
#include "core/config.h"
#include "core/err.h"
#include "core/host.h"
#include "core/log.h"
#include "core/registry.h"
#include "core/stderr_line.h"
#include "facts.h"
#include "inspect.h"
#include "status.h"
#include "launch/launch.h"
#include "list.h"
#include "options.h"
#include "paths.h"
#include "report.h"
#include "sweep.h"
#include "lib/compress.h"
#include "lib/compress_report.h"
#include "lib/start.h"
#include "tools/bench/config.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXIT_WRONG 1
#define EXIT_USAGE 2
#define GRACE_MS 5000
#define SIGNAL_MS 200 /* in which a signal reaches all ranks that it was sent to */

extern char **environ;

/* ---- Ctrl-C: what was measured so far is reported ---- */

static struct sluice_comm *running;       /* what the signal ends; NULL outside a run */
static volatile sig_atomic_t interrupted; /* the signal */

/* Operations end with an error, and the run with its report. The second signal ends the process. */
static void on_interrupt(int sig)
{
    interrupted = sig;
    sluice_comm_abort(running); /* a store, and nothing else */
}

static void watch_interrupts(struct sluice_comm *comm)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_flags = SA_RESETHAND | SA_RESTART};

    action.sa_handler = comm != NULL ? on_interrupt : SIG_DFL;
    running = comm != NULL ? comm : running; /* a handler that still runs finds it alive */
    for (size_t i = 0; i < SL_ARRAY_LEN(signals); i++) {
        struct sigaction before;

        if (sigaction(signals[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(signals[i], &action, NULL);
    }
}

/* ---- */

static int complain(int rank)
{
    if (rank >= 0)
        sl_stderr_line("sluice-bench: rank %d: %s", rank, sluice_last_error());
    else
        sl_stderr_line("sluice-bench: %s", sluice_last_error());
    return EXIT_WRONG;
}

/* What this run was told wrong, and no file or wire. */
static int exit_code_of(int err)
{
    return err == -EINVAL || err == -ENODEV || err == -ENOTSUP ? EXIT_USAGE : EXIT_WRONG;
}

/* One rank reports an error that all ranks know: the lowest living one, if the error has ended the
 * communicator. */
static int complain_once(const struct sluice_comm *comm, int err)
{
    int rank = sluice_comm_rank(comm);
    bool speaks = comm->health.error.code != 0 ? comm->health.is_speaker
                                               : rank == 0 || exit_code_of(err) != EXIT_USAGE;

    return speaks ? complain(rank) : EXIT_WRONG;
}

/* Options that have a variable go into the environment, where ranks started here find them too. */
static void export_options(const struct sb_options *o)
{
    char text[32];

    if (o->transport != NULL)
        setenv("SLUICE_TRANSPORT", o->transport, 1);
    if (o->algo != NULL)
        setenv("SLUICE_ALGO", o->algo, 1);
    if (o->kernel != NULL)
        setenv("SLUICE_KERNEL", o->kernel, 1);
    if (o->timeout_s > 0) {
        snprintf(text, sizeof(text), "%.0f", o->timeout_s * 1000 < 1 ? 1 : o->timeout_s * 1000);
        setenv("SLUICE_TIMEOUT_MS", text, 1);
    }
    setenv("SLUICE_STATUS_SIGNAL", "on", 0);
}

static const char *variable(void *arg, const char *name)
{
    (void)arg;
    return getenv(name);
}

/* -n under a launcher would start ranks in every rank. */
static int refuse_two_launchers(const struct sl_config *config)
{
    struct sl_identity who = {0};
    int err = sl_identify(config, variable, NULL, &who);

    if (err != 0)
        return err;
    if (who.rank >= 0 && who.size <= 1)
        return 0;
    return sl_fail(-EINVAL,
                   "-n starts ranks, but %s has already started this process as one of several: "
                   "leave -n away, or set SLUICE_LAUNCHER=none",
                   sl_launcher_name(who.launcher));
}

/* What programs are told by the environment is shown as if it had been asked for. */
static void take_codec(const struct sl_config *config, struct sb_options *o)
{
    if (o->codec_count == 0 && config->compress[0] != '\0' &&
        strlen(config->compress) < SB_CODEC_TEXT)
        snprintf(o->codecs[o->codec_count++], SB_CODEC_TEXT, "%s", config->compress);
}

static int check_codecs(const struct sb_options *o)
{
    int err = 0;

    for (int i = 0; i < o->codec_count && err == 0; i++) {
        struct sl_coding *coding;

        err = sl_compression_create(o->codecs[i], &coding);
        sl_coding_put(coding);
    }
    return err;
}

/* What every rank would refuse alike: said once, before there are several. */
static int check_environment(const struct sl_config *config)
{
    const struct sl_transport_ops *ops[SL_IFACES_MAX];
    const struct sl_kernels *kernels;
    unsigned count = 0;
    int err = sl_kernels_select(config->kernel, &kernels);

    if (err == 0)
        err = sl_forced_check(config->algo);
    if (err == 0)
        err = sl_transport_list(config->transport, ops, SL_IFACES_MAX, &count);
    return err;
}

static int check_files(const struct sb_options *o)
{
    int err = o->json != NULL ? sb_file_check(o->json) : 0;

    if (err == 0 && o->csv != NULL)
        err = sb_file_check(o->csv);
    return err == 0 && o->plot != NULL ? sb_file_check(o->plot) : err;
}

static int write_files(const struct sb_options *o, const struct sb_results *results)
{
    int worst = 0;

    if (o->json != NULL && sb_json_write(o->json, results) != 0)
        worst = complain(-1);
    if (o->csv != NULL && sb_csv_write(o->csv, results) != 0)
        worst = complain(-1);
    if (o->plot != NULL && sb_plot_write(o->plot, results) != 0)
        worst = complain(-1);
    return worst;
}

static int run(struct sluice_comm *comm, const struct sb_options *o, uint64_t since_ns)
{
    char paths[SB_PATHS_MAX], error[1200];
    struct sb_results results = {.options = o};
    struct sb_paths path_stats = {0};
    FILE *out = sluice_comm_rank(comm) == 0 ? stdout : NULL;
    int exit_code = 0;

    /* "--json -" is for other programs: the table would be in the way. */
    if (out != NULL && ((o->json != NULL && strcmp(o->json, "-") == 0) ||
                        (o->csv != NULL && strcmp(o->csv, "-") == 0)))
        out = stderr;
    sb_facts_fill(&results.facts, comm, o, paths);
    if (out != NULL)
        sb_report_head(out, &results.facts, o);
    watch_interrupts(comm);
    int err = sb_sweep(comm, o, out, &results);

    if (err != 0) {
        snprintf(error, sizeof(error), "%s", sluice_last_error());
        results.error = error;
        exit_code = EXIT_WRONG;
        if (err == -ECANCELED && interrupted == 0)
            poll(NULL, 0, SIGNAL_MS); /* another rank's signal came first: ours is on its way */
        if (interrupted != 0)         /* the others are, too: one word of rank 0 will do */
            snprintf(error, sizeof(error), "interrupted by signal %d, %s", (int)interrupted,
                     strsignal(interrupted));
        else
            complain_once(comm, err);
    }
    watch_interrupts(NULL);
    if (o->stats || o->json != NULL) {
        int lost = sb_paths_collect(comm, since_ns, results.error == NULL, &path_stats);

        if (lost != 0)
            exit_code = complain_once(comm, lost);
        results.paths = &path_stats;
    }
    if (out != NULL) {
        sb_report_tail(out, &results);
        exit_code |= write_files(o, &results);
    }
    if (results.wrong != 0 || results.differing != 0)
        exit_code = EXIT_WRONG;
    sb_results_fini(&results);
    sb_paths_fini(&path_stats);
    return interrupted != 0 ? 128 + interrupted : exit_code;
}

/* Rank 0 writes the reports. It checks that it can, and tells the others. */
static bool can_write(struct sluice_comm *comm, const struct sb_options *o)
{
    int32_t good = sluice_comm_rank(comm) != 0 || check_files(o) == 0;

    if (good == 0)
        complain(-1);
    return sluice_broadcast(comm, &good, &good, 1, SLUICE_I32, 0, NULL) == 0 && good != 0;
}

static int join_and_run(const struct sb_options *o)
{
    uint64_t since_ns = sl_now(&sl_clock_monotonic);
    struct sluice_comm *comm;
    int exit_code = 0;

    int err = sluice_comm_from_env(&comm);

    if (err != 0)
        return complain(-1), exit_code_of(err);
    if (o->root >= sluice_comm_size(comm)) {
        sl_fail(-EINVAL, "-r %d is not a rank: there are %d", o->root, sluice_comm_size(comm));
        if (sluice_comm_rank(comm) == 0)
            complain(-1);
        exit_code = EXIT_USAGE;
    } else if (!can_write(comm, o)) {
        exit_code = EXIT_WRONG;
    } else if (o->mode == SB_RUN) {
        exit_code = run(comm, o, since_ns);
    } else {
        err = sb_inspect(comm, o, stdout);
        if (err != 0)
            exit_code = complain_once(comm, err);
    }
    int rank = sluice_comm_rank(comm);

    sluice_comm_destroy(comm);
    if (rank == 0 && o->codec_count != 0)
        sl_compression_tell(rank);
    return exit_code;
}

/* Ranks of one name share memory with each other alone. */
static int pretend_hosts(const struct sb_options *o, const char *rank)
{
    char name[32];

    if (o->hosts == 0 || rank == NULL)
        return 0;
    snprintf(name, sizeof(name), "bench-host-%d", (int)((int64_t)atoi(rank) * o->hosts / o->ranks));
    return setenv("SLUICE_HOST_ID", name, 1) == 0
               ? 0
               : sl_fail(-ENOMEM, "no memory for the variables of rank %s", rank);
}

static int start(struct sb_options *o)
{
    struct sl_config config;
    int err, status = 0;

    export_options(o);
    if (sl_config_register(&sl_bench_section) != 0 || sl_start(&config, environ) != 0 ||
        sl_log_configure(config.log) != 0)
        return complain(-1), EXIT_USAGE;
    take_codec(&config, o);
    if (check_codecs(o) != 0)
        return complain(-1), EXIT_USAGE;
    if (o->mode == SB_LIST)
        return sb_list(stdout, &config, o->json) != 0 ? complain(-1) : 0;
    if (o->plot != NULL && sb_plot_check(o->plot) != 0)
        return complain(-1), EXIT_USAGE;
    if (o->ranks == 0)
        return join_and_run(o);
    if (refuse_two_launchers(&config) != 0 || check_environment(&config) != 0)
        return complain(-1), EXIT_USAGE;
    if (check_files(o) != 0)
        return complain(-1);
    err = sl_local_start(o->ranks, GRACE_MS, &status);
    if (err < 0)
        return complain(-1);
    if (err == 0)
        return status;
    const char *local = getenv("SLUICE_LOCAL_RANK");

    if (pretend_hosts(o, local) != 0)
        return complain(-1);
    if (sl_bench_config(&config)->bind != SL_OFF && local != NULL)
        sl_host_bind((unsigned)atoi(local), (unsigned)o->ranks);
    return join_and_run(o);
}

static int run_mode(int argc, char **argv)
{
    struct sb_options options;

    if (sb_options_parse(&options, argc, argv) != 0)
        return complain(-1), EXIT_USAGE;
    switch (options.mode) {
    case SB_HELP: sb_options_help(stdout); return 0;
    case SB_VERSION: printf("sluice-bench %s\n", sluice_version_string()); return 0;
    case SB_STATUS:
        return sb_status(options.status_pid, options.json, stdout) != 0 ? complain(-1) : 0;
    default: return start(&options);
    }
}

/* What standard output did not take, of whatever mode, is a file that could not be written. */
int main(int argc, char **argv)
{
    int exit_code = run_mode(argc, argv);

    errno = 0;
    if (fflush(stdout) == 0 && ferror(stdout) == 0)
        return exit_code;
    fprintf(stderr, "sluice-bench: cannot write standard output%s%s\n", errno != 0 ? ": " : "",
            errno != 0 ? strerror(errno) : "; what was printed is not complete");
    return exit_code != 0 ? exit_code : EXIT_WRONG;
}
