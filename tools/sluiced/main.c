/* SPDX-License-Identifier: Apache-2.0 */
/* sluiced: the node agent, and with --cluster what watches all agents (cluster.c). Options, signals
 * and the loop; the rest is monitor/. */
#include "core/err.h"
#include "lib/api.h"
#include "monitor/agent.h"
#include "monitor/api.h"
#include "monitor/mqtt.h"
#include "monitor/publish.h"
#include "tools/sluiced/cluster.h"
#include "tools/sluiced/notify.h"

#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <unistd.h>

static const char usage[] =
    "usage: sluiced [--config FILE] [--record BUNDLE]\n"
    "       sluiced --cluster [--config FILE]\n"
    "       sluiced [--cluster] [--config FILE] --check\n"
    "       sluiced --print-config | --help | --version\n"
    "\n"
    "Watches the links, NICs, GPUs and the kernel of this host, and says what is wrong with which "
    "of\n"
    "them, since when, and by what evidence.\n"
    "\n"
    "  --cluster       watch all agents of a cluster, and serve a page of what they see and what\n"
    "                  the diagnosis says of it ([cluster]); docs/cluster.md\n"
    "  --config FILE   the configuration (default: /etc/sluiced.conf, if it is there)\n"
    "  --record BUNDLE record what it is told, for sluicectl replay ([output] bundle)\n"
    "  --check         read the configuration, say what is wrong with it, and end\n"
    "  --print-config  print all keys with their defaults and what they mean\n"
    "\n"
    "Examples:\n"
    "  sluiced --print-config >/etc/sluiced.conf\n"
    "  sluiced --cluster --config ./cluster.conf\n"
    "  sluiced --config ./sluiced.conf | jq -c 'select(.to == \"bad\")'\n"
    "\n"
    "Transitions are lines of JSON on standard output. SIGHUP reads the configuration again; what "
    "is\n"
    "wrong with it is said, and the old one stays in force. SIGTERM ends it.\n"
    "Exit status: 0; 1 when it could not begin; 2 when the arguments are wrong.\n";

#define STANDARD "/etc/sluiced.conf"

struct daemon {
    const char *path;   /* of the configuration; NULL: none */
    const char *record; /* NULL: as the configuration says */
    struct sl_mon_config config;
    struct sl_agent *agent;
    struct sl_api *api;
    struct sl_mon_publish *publish; /* NULL: no broker is asked for */
    int timer, signals;
    bool is_over, is_cluster;
};

static int fail(void)
{
    fprintf(stderr, "sluiced: %s\n", sluice_last_error());
    return 1;
}

/* ---- outputs ---- */

/* Whole or not at all, as it may be read at any time. */
static void write_textfile(struct daemon *daemon)
{
    const char *path = daemon->config.textfile_path;
    char part[SL_MON_PATH + 16];
    FILE *out;
    bool good;

    if (path[0] == '\0')
        return;
    snprintf(part, sizeof(part), "%s.part", path);
    out = fopen(part, "we");
    if (out == NULL) {
        fprintf(stderr, "sluiced: %s cannot be written: %s\n", part, strerror(errno));
        return;
    }
    good = sl_agent_metrics(daemon->agent, SL_MON_TEXT_FORMAT, out);
    if (fclose(out) != 0 || !good || rename(part, path) != 0)
        fprintf(stderr, "sluiced: %s cannot be written: %s\n", path, strerror(errno));
}

/* The watchdog hears of it only while every source that is asked for is read: an agent that goes
 * round and sees nothing is to be ended. */
static void tell_systemd(struct daemon *daemon)
{
    char why[512], line[600];

    if (sl_agent_is_fresh(daemon->agent, why, sizeof(why))) {
        sld_notify("WATCHDOG=1\nSTATUS=all sources are read");
        return;
    }
    snprintf(line, sizeof(line), "STATUS=not read: %s", why);
    sld_notify(line);
}

/* ---- the loop ---- */

static void say(const char *sentence)
{
    fprintf(stderr, "sluiced: %s\n", sentence);
}

static void set_period(struct daemon *daemon)
{
    const struct timespec period = {.tv_sec = daemon->config.period_ms / 1000,
                                    .tv_nsec = daemon->config.period_ms % 1000 * 1000000};
    const struct itimerspec when = {.it_interval = period, .it_value = period};

    (void)timerfd_settime(daemon->timer, 0, &when, NULL);
}

static int open_agent(struct daemon *daemon, const struct sl_mon_config *config,
                      struct sl_agent **out)
{
    const struct sl_agent_options options = {.config = config, .version = sluice_version_string()};
    int err = sl_agent_open(&options, out);

    if (err == 0 && sl_agent_note(*out)[0] != '\0')
        fprintf(stderr, "sluiced: %s\n", sl_agent_note(*out));
    (void)daemon;
    return err;
}

/* A broker that cannot be published to is said: what the agent is for goes on. */
static void begin_publish(struct daemon *daemon)
{
    if (sl_mon_publish_open(daemon->agent, &daemon->publish) != 0)
        fail();
}

/* With what the command line says besides. */
static int load(const struct daemon *daemon, struct sl_mon_config *out)
{
    int err = 0;

    if (daemon->path != NULL)
        err = sl_mon_config_load(daemon->path, out);
    else
        sl_mon_config_defaults(out);
    if (err == 0)
        err = sl_mqtt_check(out);
    if (err == 0 && daemon->record != NULL)
        snprintf(out->bundle_path, sizeof(out->bundle_path), "%s", daemon->record);
    return err;
}

/* What is wrong with the file leaves the old one in force. */
static void reload(struct daemon *daemon)
{
    struct sl_mon_config config;

    if (daemon->path == NULL && access(STANDARD, F_OK) == 0)
        daemon->path = STANDARD; /* it was not there yet */
    if (daemon->path == NULL)
        return;
    if (load(daemon, &config) != 0) {
        fail();
        sl_agent_reloaded(daemon->agent, false);
        return;
    }
    /* The store is one agent's at a time. */
    sl_mon_publish_close(daemon->publish);
    daemon->publish = NULL;
    sl_agent_close(daemon->agent);
    daemon->agent = NULL;
    if (open_agent(daemon, &config, &daemon->agent) == 0) {
        daemon->config = config;
    } else {
        fail();
        if (open_agent(daemon, &daemon->config, &daemon->agent) != 0) {
            fail();
            sl_api_set_agent(daemon->api, NULL);
            daemon->is_over = true;
            return;
        }
        sl_agent_reloaded(daemon->agent, false);
    }
    sl_api_set_agent(daemon->api, daemon->agent);
    begin_publish(daemon);
    set_period(daemon);
}

static void on_signal(struct daemon *daemon)
{
    struct signalfd_siginfo info;

    if (read(daemon->signals, &info, sizeof(info)) != sizeof(info))
        return;
    if (info.ssi_signo == SIGHUP)
        reload(daemon);
    else
        daemon->is_over = true;
}

static void on_timer(struct daemon *daemon)
{
    uint64_t times;

    if (read(daemon->timer, &times, sizeof(times)) != sizeof(times))
        return;
    sl_agent_tick(daemon->agent);
    sl_api_tick(daemon->api);
    sl_mon_publish_tick(daemon->publish);
    write_textfile(daemon);
    tell_systemd(daemon);
}

static void loop(struct daemon *daemon)
{
    bool is_more = false;

    while (!daemon->is_over) {
        struct pollfd fds[] = {{.fd = daemon->signals, .events = POLLIN},
                               {.fd = daemon->timer, .events = POLLIN},
                               {.fd = sl_agent_fd(daemon->agent), .events = POLLIN},
                               {.fd = sl_api_fd(daemon->api), .events = POLLIN}};

        if (poll(fds, SL_ARRAY_LEN(fds), is_more ? 0 : -1) < 0)
            continue;
        if (fds[2].revents != 0)
            sl_agent_turn(daemon->agent);
        if (fds[1].revents != 0)
            on_timer(daemon);
        is_more = sl_api_turn(daemon->api);
        if (fds[0].revents != 0)
            on_signal(daemon);
    }
}

/* A descriptor for each counter of each port: 1,024 are not enough for 64 ports. */
static void raise_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* SIGHUP: with the configuration as it is then; one that is wrong is said, and the old one
 * stays. */
static int run_cluster(struct daemon *daemon)
{
    bool again = true;
    int status = 0;

    raise_limit();
    while (again) {
        struct sl_mon_config config;

        status = sld_cluster_run(&daemon->config, daemon->signals, &again);
        if (!again)
            break;
        if (load(daemon, &config) == 0 && sld_cluster_check(&config) == 0)
            daemon->config = config;
        else
            fail();
    }
    sld_notify("STOPPING=1");
    return status;
}

static int run(struct daemon *daemon)
{
    sigset_t signals;

    sigemptyset(&signals);
    sigaddset(&signals, SIGHUP);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    signal(SIGPIPE, SIG_IGN); /* a reader of events that ends must not end the agent */
    daemon->signals = signalfd(-1, &signals, SFD_CLOEXEC);
    daemon->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (daemon->signals < 0 || daemon->timer < 0) {
        sl_fail(-errno, "no signals or timer: %s", strerror(errno));
        return fail();
    }
    if (daemon->is_cluster)
        return run_cluster(daemon);
    raise_limit();
    if (open_agent(daemon, &daemon->config, &daemon->agent) != 0)
        return fail();
    if (sl_api_create(daemon->agent, say, &daemon->api) != 0)
        return fail();
    begin_publish(daemon);
    set_period(daemon);
    sld_notify("READY=1");
    loop(daemon);
    sld_notify("STOPPING=1");
    sl_api_destroy(daemon->api);
    sl_mon_publish_close(daemon->publish);
    sl_agent_close(daemon->agent);
    return 0;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"cluster", no_argument, NULL, 'C'},      {"config", required_argument, NULL, 'c'},
        {"record", required_argument, NULL, 'r'}, {"check", no_argument, NULL, 'k'},
        {"print-config", no_argument, NULL, 'p'}, {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'v'},      {NULL, 0, NULL, 0}};
    static struct daemon daemon;
    bool only_check = false;
    int option;

    while ((option = getopt_long(argc, argv, "c:h", options, NULL)) != -1)
        switch (option) {
        case 'C': daemon.is_cluster = true; break;
        case 'c': daemon.path = optarg; break;
        case 'r': daemon.record = optarg; break;
        case 'k': only_check = true; break;
        case 'p': sl_mon_config_print(stdout); return 0;
        case 'h': fputs(usage, stdout); return 0;
        case 'v': printf("sluiced %s\n", sluice_version_string()); return 0;
        default: fputs(usage, stderr); return 2;
        }
    if (optind != argc) {
        fputs(usage, stderr);
        return 2;
    }
    if (daemon.record != NULL && strlen(daemon.record) >= SL_MON_PATH) {
        fprintf(stderr, "sluiced: that name of a bundle is too long\n");
        return 2;
    }
    if (daemon.path == NULL && access(STANDARD, F_OK) == 0)
        daemon.path = STANDARD;
    if (load(&daemon, &daemon.config) != 0)
        return fail();
    if (daemon.is_cluster && sld_cluster_check(&daemon.config) != 0)
        return fail();
    return only_check ? 0 : run(&daemon);
}
